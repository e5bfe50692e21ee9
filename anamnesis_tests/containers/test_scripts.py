"""deploy.sh, start.sh and stop.sh as the shell runs them, with a `docker` of this test that keeps a list of runs in a
file.
"""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from pymongo.uri_parser import parse_uri

OWNER, GROUP = os.getuid() or 7, os.getgid() or 8
"""Of what is mounted; a user who is not root makes files for nobody else."""
BUILT_FOR = f"--build-arg UID={OWNER} --build-arg GID={GROUP}"
ROOT = Path(__file__).parents[2]
DOCKER = """#!/bin/bash
# `ps` prints the runs; `stop` ends those that it is given, and fails for the ones that are gone, or do not end.
# What Compose fills in is kept in a file: what .env says of a variable, then what counts before it.
here=$(dirname "$0")
{ cat .env 2>/dev/null; env; } > "$here/filled_in"
cd "$here"
echo "$*" >> calls
case $1 in
  compose) [[ ! -e docker-compose ]] ;;
  ps) cat runs; if [[ -e launched ]]; then mv launched runs; fi ;;
  stop)
    : > runs
    for run in "${@:4}"; do
      if [[ $run == gone* ]]; then echo "No such container: $run" >&2; failed=1; fi
      if [[ $run == stuck* ]]; then echo "$run" >> runs; failed=1; fi
    done
    exit "${failed:-0}" ;;
esac
"""


Called = tuple["subprocess.CompletedProcess[str]", list[str]]


def stop(folder: Path, *runs: str, launched: str = "", **environment: str) -> Called:
    """Run the script; what it printed, and what it asked of Docker.

    :param launched: a run that the daemon launches right after Docker was asked for runs first.
    """
    folder.joinpath("runs").write_text("".join(f"{run}\n" for run in runs))
    if launched:
        folder.joinpath("launched").write_text(f"{launched}\n")
    return called(folder, ROOT / "stop.sh", **environment)


def filled_in(folder: Path) -> dict[str, str]:
    """Name -> the value that Compose took for it when it was last called: of the shell, else of .env."""
    lines = folder.joinpath("filled_in").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def called(folder: Path, script: Path, *arguments: str, **environment: str) -> Called:
    """Run a script with the `docker` above in `folder`; what it printed, and what it asked of Docker."""
    folder.joinpath("docker").write_text(DOCKER)
    folder.joinpath("docker").chmod(0o755)
    done = subprocess.run(
        ["bash", str(script), *arguments],
        env={"PATH": f"{folder}:/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls = folder / "calls"
    asked = calls.read_text().splitlines() if calls.exists() else []
    return done, [call for call in asked if call != "compose version"]


@pytest.mark.parametrize(
    "runs", [(), ("one",), ("one", "two"), ("gone", "one"), ("stuck",)], ids=["none", "one", "two", "gone", "stuck"]
)
def test_databases_are_stopped_after_the_runs_whatever_these_do(tmp_path: Path, runs: tuple[str, ...]) -> None:
    done, calls = stop(tmp_path, *runs)
    assert done.returncode == 0
    assert calls[-1] == "compose stop"
    assert "compose stop daemon" in calls
    if "stuck" not in runs:
        assert [call for call in calls if call.startswith("stop")] == [f"stop -t 60 {' '.join(runs)}"] * bool(runs)
    assert ("stuck" in done.stderr) == ("stuck" in runs), "a run that does not end is named"


def test_run_launched_while_others_were_stopped_is_stopped_too(tmp_path: Path) -> None:
    _, calls = stop(tmp_path, launched="late")
    assert "stop -t 60 late" in calls
    assert calls[-1] == "compose stop"


def test_runs_of_another_project_are_left_alone(tmp_path: Path) -> None:
    _, calls = stop(tmp_path, "one", COMPOSE_PROJECT_NAME="second")
    assert "ps --quiet --filter label=anamnesis=run --filter network=second_dagster" in calls


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What deploy.sh needs of the repository, with an .env of a user whose folders are there."""
    copy = tmp_path / "repository"
    shutil.copytree(ROOT / "deploy", copy / "deploy")
    for name in ("deploy.sh", "start.sh", "docker-compose.yml"):
        shutil.copy2(ROOT / name, copy / name)
    for folder in (".claude/projects", ".ssh"):
        (tmp_path / folder).mkdir(parents=True)
    write_env(copy)
    return copy


def write_env(repository: Path, **changed: str) -> None:
    """An .env of the user whose home the folder above the repository is, with other values for some variables."""
    values = {"ANAMNESIS_USER_HOME": str(repository.parent), "ANAMNESIS_SECRETS": f"{repository.parent}/secrets"}
    values |= {"ANAMNESIS_UID": str(OWNER), "ANAMNESIS_GID": str(GROUP)}
    (repository / ".env").write_text("".join(f"{name}={value}\n" for name, value in (values | changed).items()))


def test_what_is_built_is_started_with_the_builds_arguments(repository: Path, tmp_path: Path) -> None:
    done, calls = called(tmp_path, repository / "deploy.sh", "--build-arg", "TORCH_INDEX=")
    assert done.returncode == 0, done.stderr
    assert calls[0] == f"build {BUILT_FOR} --build-arg TORCH_INDEX= --tag anamnesis:latest ."
    assert calls[1] == "compose up --detach --no-build"
    write_env(repository, ANAMNESIS_DEFAULT_MODEL="all-MiniLM-L6-v2")
    _, calls = called(tmp_path, repository / "deploy.sh", "--build-arg", "BAKE=1")
    model = "--build-arg MODEL=all-MiniLM-L6-v2"
    assert f"build {BUILT_FOR} {model} --build-arg BAKE=1 --tag anamnesis:latest ." in calls


@pytest.mark.parametrize(
    ("settings", "dagster", "service"),
    [
        ({}, "http://127.0.0.1:3000", "http://127.0.0.1:3010"),
        ({"DAGSTER_PORT": "3100", "PORT": "3110"}, "http://127.0.0.1:3100", "http://127.0.0.1:3110"),
        (
            {"DAGSTER_PORT": "1", "DAGSTER_LINK": "https://ui.x", "SERVICE_LINK": "https://m.x"},
            "https://ui.x",
            "https://m.x",
        ),
    ],
)
def test_links_lead_to_the_ports_that_the_pages_are_published_on(
    repository: Path, tmp_path: Path, settings: dict[str, str], dagster: str, service: str
) -> None:
    write_env(repository, **{f"ANAMNESIS_{name}": value for name, value in settings.items()})
    other = {"DAGSTER_LINK": "http://other:1", "DAGSTER_PORT": "1", "SERVICE_LINK": "http://other:2", "PORT": "2"}
    for exported in ({}, {f"ANAMNESIS_{name}": value for name, value in other.items()}):
        called(tmp_path, repository / "start.sh", **exported)
        filled = filled_in(tmp_path)
        assert (filled["ANAMNESIS_DAGSTER_LINK"], filled["ANAMNESIS_SERVICE_LINK"]) == (dagster, service)


EXPORTED = {"ANAMNESIS_IMAGE": "another:1", "ANAMNESIS_SECRETS": "/another", "ANAMNESIS_API_TOKEN": "another token"}
EXPORTED |= {"ANAMNESIS_MONGO_URI": "mongodb://another"}


@pytest.mark.parametrize("old_compose", [False, True])
def test_env_decides_and_not_the_shell(repository: Path, tmp_path: Path, old_compose: bool) -> None:
    if old_compose:
        (tmp_path / "docker-compose").symlink_to("docker")
    write_env(repository, ANAMNESIS_IMAGE="mine:1", ANAMNESIS_MONGO_URI="mongodb://mine")
    done, calls = called(
        tmp_path, repository / "deploy.sh", **EXPORTED, ANAMNESIS_UID="3", COMPOSE_PROJECT_NAME="second"
    )
    assert done.returncode == 0, done.stderr
    assert calls[0] == f"build {BUILT_FOR} --tag mine:1 ."
    assert ("up --detach --no-build" if old_compose else "compose up --detach --no-build") in calls
    found = filled_in(tmp_path)
    assert (found["ANAMNESIS_IMAGE"], found["ANAMNESIS_MONGO_URI"]) == ("mine:1", "mongodb://mine")
    assert (found["ANAMNESIS_SECRETS"], found["ANAMNESIS_UID"]) == (f"{tmp_path}/secrets", str(OWNER))
    assert "ANAMNESIS_API_TOKEN" not in found
    assert found["COMPOSE_PROJECT_NAME"] == "second"  # Docker's own


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))))
def test_only_dockers_own_variables_come_from_the_shell(repository: Path, tmp_path: Path, name: str) -> None:
    called(tmp_path, repository / "start.sh", **{name: "of the shell"})
    assert (filled_in(tmp_path).get(name) == "of the shell") == name.startswith("COMPOSE_")


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({}, "in {home}/secrets/settings/anamnesis_api_token"),
        ({"ANAMNESIS_API_TOKEN": "mine"}, "ANAMNESIS_API_TOKEN in .env"),
    ],
)
def test_token_is_said_to_be_where_it_is(
    repository: Path, tmp_path: Path, settings: dict[str, str], where: str
) -> None:
    write_env(repository, **settings)
    done, _ = called(tmp_path, repository / "start.sh", ANAMNESIS_API_TOKEN="of the shell")
    assert done.stdout.splitlines()[-1] == f"The token that the memory wants: {where.format(home=tmp_path)}"
    assert "mine" not in done.stdout


def test_memory_can_be_restored_before_the_first_start(repository: Path, tmp_path: Path) -> None:
    done, calls = called(tmp_path, repository / "deploy.sh", "--no-start", "--pull")
    assert done.returncode == 0, done.stderr
    assert calls == [f"build {BUILT_FOR} --pull --tag anamnesis:latest ."]


def test_a_home_of_root_is_refused_before_anything_is_written(repository: Path) -> None:
    (repository / ".env").unlink()
    environment = {"PATH": "/usr/bin:/bin", "ANAMNESIS_USER_HOME": "/", "HOME": "/"}
    command = ["bash", str(repository / "deploy.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "must not be root" in done.stderr
    assert not (repository / ".env").exists()


def test_mongodb_may_read_its_health_check(repository: Path, tmp_path: Path) -> None:
    script = repository / "deploy/mongo-health.sh"
    script.chmod(0o700)
    called(tmp_path, repository / "deploy.sh", "--no-start")
    assert script.stat().st_mode & 0o777 == 0o744


@pytest.fixture
def new_repository(repository: Path) -> Path:
    """The same before there is an .env, in the home of a user."""
    (repository / ".env").unlink()
    os.chown(repository.parent, OWNER, GROUP)
    return repository


def test_an_env_is_written_whole(new_repository: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as docker:
        docker.bind(str(tmp_path / "docker.sock"))
        done, calls = called(
            tmp_path,
            new_repository / "deploy.sh",
            "--no-start",
            HOME=str(tmp_path),
            DOCKER_SOCKET=str(tmp_path / "docker.sock"),
        )
    assert done.returncode == 0, done.stderr
    assert calls == [f"build {BUILT_FOR} --tag anamnesis:latest ."]
    written = dict(line.split("=", 1) for line in (new_repository / ".env").read_text().splitlines())
    assert all(written.values())
    assert written["DOCKER_GID"] == str((tmp_path / "docker.sock").stat().st_gid)
    assert (new_repository / "secrets/settings/anamnesis_mongo_uri").is_file()


def test_a_comment_behind_a_value_is_none_of_it(repository: Path, tmp_path: Path) -> None:
    write_env(repository, ANAMNESIS_IMAGE="mine:1  # not anybody's", ANAMNESIS_UID=f'"{OWNER}"')
    _, calls = called(tmp_path, repository / "deploy.sh", "--no-start")
    assert calls == [f"build {BUILT_FOR} --tag mine:1 ."]


def test_without_dockers_socket_no_env_is_written(new_repository: Path, tmp_path: Path) -> None:
    done, calls = called(
        tmp_path, new_repository / "deploy.sh", HOME=str(tmp_path), DOCKER_SOCKET=str(tmp_path / "none")
    )
    assert done.returncode == 1
    assert "DOCKER_SOCKET=PATH ./deploy.sh" in done.stderr
    assert (calls, list(new_repository.glob(".env*"))) == ([], [])


@pytest.mark.parametrize("name", ["ANAMNESIS_UID", "ANAMNESIS_GID"])
@pytest.mark.parametrize("value", ["", "0", "somebody"])
def test_user_that_is_none_or_root_is_refused(repository: Path, tmp_path: Path, name: str, value: str) -> None:
    write_env(repository, **{name: value})
    done, calls = called(tmp_path, repository / "deploy.sh")
    assert done.returncode == 1
    assert f"{name}={value} in .env" in done.stderr
    assert calls == []


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_that_compose_takes_are_taken(repository: Path, tmp_path: Path, quote: str) -> None:
    write_env(repository, ANAMNESIS_UID=f"{quote}{OWNER}{quote}", ANAMNESIS_SECRETS=f"{quote}{tmp_path}/my own{quote}")
    done, calls = called(tmp_path, repository / "deploy.sh", "--no-start")
    assert done.returncode == 0, done.stderr
    assert calls == [f"build {BUILT_FOR} --tag anamnesis:latest ."]
    assert (tmp_path / "my own/databases/mongo_password").is_file()


def write_secrets(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(ROOT / "deploy/write-secrets.sh"), str(folder), str(OWNER), str(GROUP)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_secret_is_made_once_and_another_one_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert write_secrets(tmp_path / name).returncode == 0
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert [str(file) for file in files] == [
        "databases/mongo_password",
        "databases/postgres_password",
        "settings/anamnesis_api_token",
        "settings/anamnesis_mongo_uri",
    ]
    first = [(tmp_path / "one" / file).read_text() for file in files]
    assert len({*first, *((tmp_path / "two" / file).read_text() for file in files)}) == 8
    assert all(len(secret.strip()) >= 48 for secret in first)
    assert write_secrets(tmp_path / "one").returncode == 0
    assert [(tmp_path / "one" / file).read_text() for file in files] == first


def test_nobody_else_on_the_machine_reads_a_secret(tmp_path: Path) -> None:
    write_secrets(tmp_path / "secrets")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").rglob("*")}
    assert modes == {
        "settings": 0o700,
        "anamnesis_api_token": 0o600,
        "anamnesis_mongo_uri": 0o600,
        "databases": 0o700,
        "mongo_password": 0o644,
        "postgres_password": 0o644,
    }


@pytest.mark.parametrize("password", ["p@ss", "a/b", "50%", "a:b", "it's $HOME \"`\\", "späße", "-n"])
def test_a_password_of_ones_own_may_have_any_character(tmp_path: Path, password: str) -> None:
    (tmp_path / "databases").mkdir()
    (tmp_path / "databases/mongo_password").write_text(f"{password}\n")
    assert write_secrets(tmp_path).returncode == 0
    found = parse_uri((tmp_path / "settings/anamnesis_mongo_uri").read_text().strip())
    assert (found["username"], found["password"]) == ("anamnesis", password)
    assert (found["nodelist"], found["options"]["directConnection"]) == ([("mongo", 27017)], True)


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "databases").mkdir()
    (tmp_path / "databases/postgres_password").touch()
    done = write_secrets(tmp_path)
    assert done.returncode == 1
    assert "postgres_password is empty" in done.stderr

"""deploy.sh and stop.sh as the shell runs them, with a `docker` of this test that keeps a list of runs in a file."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = """#!/bin/bash
# `ps` prints the runs; `stop` ends those that it is given, and fails for the ones that are gone, or do not end.
cd "$(dirname "$0")"
echo "$*" >> calls
case $1 in
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


def stop(folder: Path, *runs: str, launched: str = "") -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    """Run the script; what it printed, and what it asked of Docker.

    :param launched: a run that the daemon launches right after Docker was asked for runs first.
    """
    folder.joinpath("runs").write_text("".join(f"{run}\n" for run in runs))
    if launched:
        folder.joinpath("launched").write_text(f"{launched}\n")
    return called(folder, ROOT / "stop.sh")


def called(folder: Path, script: Path, *arguments: str) -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    """Run a script with the `docker` above in `folder`; what it printed, and what it asked of Docker."""
    folder.joinpath("docker").write_text(DOCKER)
    folder.joinpath("docker").chmod(0o755)
    done = subprocess.run(
        ["bash", str(script), *arguments], env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    return done, [call for call in (folder / "calls").read_text().splitlines() if call != "compose version"]


@pytest.mark.parametrize("runs", [(), ("one",), ("one", "two")])
def test_the_databases_are_stopped_after_the_runs(tmp_path: Path, runs: tuple[str, ...]) -> None:
    done, calls = stop(tmp_path, *runs)
    assert done.returncode == 0
    assert calls[-1] == "compose stop"
    assert "compose stop daemon" in calls
    assert [call for call in calls if call.startswith("stop")] == [f"stop -t 60 {' '.join(runs)}"] * bool(runs)


def test_a_run_that_ended_by_itself_meanwhile_does_not_keep_the_rest_from_being_stopped(tmp_path: Path) -> None:
    done, calls = stop(tmp_path, "gone", "one")
    assert done.returncode == 0
    assert calls[-1] == "compose stop"


def test_a_run_that_was_launched_while_others_were_stopped_is_stopped_too(tmp_path: Path) -> None:
    _, calls = stop(tmp_path, launched="late")
    assert "stop -t 60 late" in calls
    assert calls[-1] == "compose stop"


def test_a_run_that_does_not_end_is_named_and_the_rest_is_stopped_all_the_same(tmp_path: Path) -> None:
    done, calls = stop(tmp_path, "stuck")
    assert done.returncode == 0
    assert "stuck" in done.stderr
    assert calls[-1] == "compose stop"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What deploy.sh needs of the repository, with an .env of a user whose folders are there."""
    copy = tmp_path / "repository"
    shutil.copytree(ROOT / "deploy", copy / "deploy")
    for name in ("deploy.sh", "start.sh"):
        shutil.copy2(ROOT / name, copy / name)
    for folder in (".claude/projects", ".ssh", "secrets"):
        (tmp_path / folder).mkdir(parents=True)
    (copy / ".env").write_text(
        f"ANAMNESIS_USER_HOME={tmp_path}\nANAMNESIS_UID=7\nANAMNESIS_GID=8\nANAMNESIS_SECRETS={tmp_path}/secrets\n"
    )
    return copy


def test_what_is_built_is_started_with_the_arguments_handed_to_the_build(repository: Path, tmp_path: Path) -> None:
    done, calls = called(tmp_path, repository / "deploy.sh", "--build-arg", "TORCH_INDEX=")
    assert done.returncode == 0, done.stderr
    assert calls[0] == ("build --build-arg UID=7 --build-arg GID=8 --build-arg TORCH_INDEX= --tag anamnesis:latest .")
    assert calls[1] == "compose up --detach --no-build"


def test_a_memory_can_be_restored_between_the_build_and_the_first_start(repository: Path, tmp_path: Path) -> None:
    done, calls = called(tmp_path, repository / "deploy.sh", "--no-start", "--pull")
    assert done.returncode == 0, done.stderr
    assert calls == ["build --build-arg UID=7 --build-arg GID=8 --pull --tag anamnesis:latest ."]


def test_a_home_of_root_is_refused_before_anything_is_written(repository: Path) -> None:
    (repository / ".env").unlink()
    environment = {"PATH": "/usr/bin:/bin", "ANAMNESIS_USER_HOME": "/", "HOME": "/"}
    done = subprocess.run(
        ["bash", str(repository / "deploy.sh")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "must not be root" in done.stderr
    assert not (repository / ".env").exists()


def test_mongodb_may_read_its_health_check_whatever_the_umask_of_the_checkout(repository: Path, tmp_path: Path) -> None:
    script = repository / "deploy/mongo-health.sh"
    script.chmod(0o700)
    called(tmp_path, repository / "deploy.sh", "--no-start")
    assert script.stat().st_mode & 0o777 == 0o744

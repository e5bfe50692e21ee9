"""What the files of the containers say: read as they are, without Docker."""

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster_docker import DockerRunLauncher
from dagster_postgres.utils import DagsterPostgresException

from anamnesis_pipeline.settings import ENV_PREFIX, NOT_STORABLE, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OWN_IMAGE = ("sidecar", "code-server", "webserver", "daemon")
LINKED = {
    "front": {"sidecar", "webserver", "mongo"},
    "dagster": {"webserver", "daemon", "code-server", "postgres", "mongo"},
}
"""Network -> who is in it."""
FILES = {"anamnesis_pipeline", "anamnesis_api_token"}
OF_THE_GUARD = {"ANAMNESIS_ALLOWED_HOSTS"}


Services = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """docker-compose.yml with its anchors resolved and the variables of example.env filled in."""
    known = dict(line.split("=", 1) for line in (DEPLOY / "example.env").read_text().splitlines() if line[:1].isupper())

    def fill(match: re.Match[str]) -> str:
        name, _, default = match[1].partition(":")
        return known.get(name, default.removeprefix("-"))

    text = re.sub(r"\$\{([^}]*)\}", fill, (ROOT / "docker-compose.yml").read_text())
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.fixture(scope="module")
def services(stack: dict[str, Any]) -> Services:
    found: Services = stack["services"]
    return found


@pytest.fixture(scope="module")
def launcher() -> dict[str, Any]:
    """The configuration of what starts runs."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())["run_launcher"]["config"]
    return found


def test_health_checks_are_quick_and_cannot_pile_up(services: Services) -> None:
    programs = {name: service["healthcheck"]["test"][1].split()[-1] for name, service in services.items()}
    assert programs.pop("mongo") == "/usr/local/bin/mongo-health.sh"
    assert programs == dict.fromkeys(OWN_IMAGE, "probe.sh") | {"postgres": "pg_isready"}, "they start in milliseconds"
    for name, service in services.items():
        timeout, interval = (int(service["healthcheck"][key].removesuffix("s")) for key in ("timeout", "interval"))
        assert timeout * 5 <= interval, name
    check = services["mongo"]["healthcheck"]
    assert (check["interval"], check["timeout"], check["retries"]) == ("30s", "6s", 5)
    script = (DEPLOY / "mongo-health.sh").read_text()
    assert "serverSelectionTimeoutMS=3000" in script
    assert "read -r -t 3 " in script


def test_ports_are_open_to_this_machine_only(services: Services) -> None:
    published = {name: port for name, service in services.items() for port in service.get("ports", ())}
    assert published == {
        "mongo": "127.0.0.1:5438:27017",
        "sidecar": "127.0.0.1:3010:3010",
        "webserver": "127.0.0.1:3000:3000",
    }


def test_every_container_is_bounded_and_comes_back(services: Services) -> None:
    for name, service in services.items():
        assert service["mem_limit"], name
        assert service["pids_limit"] <= 2048, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert service["logging"]["options"]["max-size"], name


def test_our_image_runs_without_any_right_that_it_does_not_need(services: Services) -> None:
    assert re.search(r"^USER anamnesis$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for name in OWN_IMAGE:
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "user" not in service


def test_image_has_no_mode_of_a_checkout() -> None:
    *_, final = re.split(r"^FROM .*$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    copies = re.findall(r"^(?:COPY|ADD) .*", final, re.MULTILINE)
    assert copies
    assert all(copy.startswith("COPY --from=") for copy in copies)
    assert not re.search(r"^(?:COPY|ADD|RUN) --(?:chmod|link|mount|parents)", (ROOT / "Dockerfile").read_text(), re.M)


def test_logs_keys_and_secrets_are_mounted_read_only(services: Services) -> None:
    for name in ("sidecar", "code-server"):
        outside = [volume for volume in services[name]["volumes"] if volume.startswith("/")]
        assert {volume.split(":")[1] for volume in outside} >= {
            "/home/you/.claude/projects",
            "/home/you/.ssh",
            "/run/secrets",
        }
        assert all(volume.endswith(":ro") for volume in outside), name


def test_only_what_starts_and_ends_runs_has_dockers_socket(services: Services) -> None:
    with_socket = {name for name, service in services.items() if "docker.sock" in str(service.get("volumes"))}
    assert with_socket == {"webserver", "daemon"}


def test_dagsters_port_is_guarded_and_its_token_known(services: Services) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "deploy/dagster-webserver" in dockerfile
    assert "PATH=/usr/local/bin:/opt/venv/bin" in dockerfile, "it is found before Dagster's own command"
    assert "anamnesis_pipeline.sidecar.dagster_ui" in (DEPLOY / "dagster-webserver").read_text()
    assert services["webserver"]["command"][0] == "dagster-webserver"
    token = "/home/you/anamnesis/secrets/settings/anamnesis_api_token:/run/secrets/anamnesis_api_token:ro"
    for name in ("webserver", "daemon"):
        assert token in services[name]["volumes"]


def test_token_of_env_reaches_every_role_and_every_run(launcher: dict[str, Any]) -> None:
    """Where one of them read the file instead, the guard would refuse it."""
    text = (ROOT / "docker-compose.yml").read_text().replace("${ANAMNESIS_API_TOKEN:-}", "of-env")
    roles = yaml.safe_load(text)["services"]
    assert {roles[name]["environment"].get("ANAMNESIS_API_TOKEN") for name in OWN_IMAGE} == {"of-env"}
    assert "ANAMNESIS_API_TOKEN" in launcher["env_vars"]


def test_what_opens_the_store_waits_for_a_mongodb_of_ours(services: Services) -> None:
    for name in ("sidecar", "code-server"):
        assert services[name]["depends_on"]["mongo"] == {"condition": "service_healthy"}
    assert services["mongo"]["scale"] == 1
    assert "    scale: ${MONGO_CONTAINERS:-1}" in (ROOT / "docker-compose.yml").read_text()


def test_other_machines_do_not_reach_dagsters_database(services: Services, stack: dict[str, Any]) -> None:
    assert stack["networks"].keys() == LINKED.keys()
    for name, linked in LINKED.items():
        assert {each for each, service in services.items() if name in service["networks"]} == linked
    assert "postgres" not in str(services["sidecar"]).lower()
    for name in ("code-server", "webserver", "daemon"):
        file = services[name]["environment"]["DAGSTER_POSTGRES_PASSWORD_FILE"]
        assert f"/home/you/anamnesis/secrets/databases/postgres_password:{file}:ro" in services[name]["volumes"]


def test_no_secret_is_a_variable_of_a_container_unless_told_so(services: Services) -> None:
    for service in services.values():
        for name, value in service["environment"].items():
            assert (
                not re.search("PASSWORD|TOKEN|URI", name)
                or not value
                or (name.endswith("_FILE") and value.startswith("/run/"))
            ), name


def test_a_second_project_has_networks_and_volumes_of_its_own(stack: dict[str, Any]) -> None:
    for kind in ("networks", "volumes"):
        for name, settings in stack[kind].items():
            assert settings == {"name": f"anamnesis_{name}"}
    names = re.findall(r"anamnesis[}]?_\w+", (ROOT / "docker-compose.yml").read_text())
    assert names
    assert all(name.startswith("anamnesis}_") for name in names if name not in FILES)


def test_run_has_what_the_code_server_has(services: Services, stack: dict[str, Any], launcher: dict[str, Any]) -> None:
    environment = services["daemon"]["environment"]
    own = {"WAIT_FOR", "ANAMNESIS_CODE_HOST", "DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS"}
    assert set(launcher["env_vars"]) == environment.keys() - own - OF_THE_GUARD
    code_server = services["code-server"]
    context = json.loads(code_server["environment"]["DAGSTER_CONTAINER_CONTEXT"])["docker"]
    assert context["networks"] == [stack["networks"][name]["name"] for name in code_server["networks"]]
    home, *others = code_server["volumes"]
    assert context["container_kwargs"]["volumes"] == [f"anamnesis_{home}", *others]
    kwargs, logging = launcher["container_kwargs"], code_server["logging"]
    for right in ("read_only", "cap_drop", "pids_limit"):
        assert kwargs[right] == code_server[right]
    assert [f"{each}:true" for each in kwargs["security_opt"]] == code_server["security_opt"]
    assert kwargs["log_config"] == {"Type": logging["driver"], "Config": logging["options"]}


def test_settings_that_cannot_be_stored_reach_every_role_and_run(services: Services, launcher: dict[str, Any]) -> None:
    of_the_image = {"home", "secrets_dir", "default_model"}
    of_the_sidecar = {"port", "bind", "allowed_hosts"}
    of_up = {"dagster_port", "code_port"}
    in_files_of_their_own = {"openai_api_key", "anthropic_api_key", "voyage_api_key", "gemini_api_key"}
    wanted = NOT_STORABLE - of_the_image - of_the_sidecar - of_up - in_files_of_their_own
    for known in (launcher["env_vars"], *(services[name]["environment"] for name in OWN_IMAGE)):
        assert {ENV_PREFIX + name.upper() for name in wanted} <= set(known)


def test_image_names_the_default_model_that_env_explains(stack: dict[str, Any]) -> None:
    dockerfile, example = (ROOT / "Dockerfile").read_text(), (DEPLOY / "example.env").read_text()
    (model,) = re.findall(r"^ARG MODEL=(.+)$", dockerfile, re.MULTILINE)
    assert model == stack["services"]["sidecar"]["build"]["args"]["MODEL"] == "BAAI/bge-large-en-v1.5"
    assert f"# ANAMNESIS_DEFAULT_MODEL={model}\n" in example
    assert "ANAMNESIS_DEFAULT_MODEL=$MODEL" in dockerfile


def test_env_leaves_settings_to_config(services: Services, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in services["daemon"]["environment"].items():
        if name.startswith(ENV_PREFIX):
            monkeypatch.setenv(name, str(value or ""))
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text('mongo_quantization = "scalar"\n')
    settings = load()
    assert (settings.mongo_quantization, settings.mongo_wait_s, settings.embed_run_tags) == ("scalar", 60, {})
    assert not settings.lock_env


def test_run_is_ended_patiently_enough_to_save_its_checkpoint(launcher: dict[str, Any]) -> None:
    kwargs = launcher["container_kwargs"]
    assert f"docker stop -t {kwargs['stop_timeout']} " in (ROOT / "stop.sh").read_text()
    assert kwargs["labels"] == {"anamnesis": "run"}
    assert "label=anamnesis=run" in (ROOT / "stop.sh").read_text()


def test_dagster_differs_from_that_of_up_where_it_has_to() -> None:
    here, there = (yaml.safe_load(path.read_text()) for path in (ROOT / "dagster.yaml", DEPLOY / "dagster.yaml"))
    assert there.keys() - here.keys() == {"storage", "compute_logs", "local_artifact_storage", "run_launcher"}
    differing = {name for name in here if here[name] != there[name]}
    assert differing == {"run_coordinator"}


def test_live_reload_finds_the_mounted_code_first(services: Services) -> None:
    live = yaml.safe_load((DEPLOY / "compose.dev.yml").read_text())["services"]
    assert live.keys() == {"sidecar", "code-server"} <= services.keys()
    for name, service in live.items():
        path = service["environment"]["PYTHONPATH"]
        assert service["volumes"] == [f"./anamnesis_pipeline:{path}/anamnesis_pipeline:ro"]
        assert service["command"][0] == "watchfiles"
        assert service["command"][-1] == f"{path}/anamnesis_pipeline"
        assert service["command"][-2].split() == services[name]["command"]


def test_dagster_takes_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    file = tmp_path / "dagster.yaml"
    file.write_text(yaml.safe_dump(configuration))
    for name in ("HOST", "USER", "PASSWORD", "DB"):
        monkeypatch.setenv(f"DAGSTER_POSTGRES_{name}", "nowhere.invalid")
    with pytest.raises(DagsterPostgresException, match="DB connection"):  # it is taken, and PostgreSQL is asked
        dg.DagsterInstance.from_config(str(tmp_path))
    del configuration["storage"], configuration["local_artifact_storage"], configuration["compute_logs"]  # not here
    file.write_text(yaml.safe_dump(configuration))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance.run_launcher, DockerRunLauncher)
        assert instance.run_launcher.container_kwargs["pids_limit"] == 512


def test_every_variable_of_the_stack_is_explained() -> None:
    explained = set(re.findall(r"^(?:# )?([A-Z_]+)=", (DEPLOY / "example.env").read_text(), re.MULTILINE))
    asked = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))
    of_tests_and_other_builds = {
        "ANAMNESIS_IMAGE",
        "MONGO_IMAGE",
        "POSTGRES_IMAGE",
        "ANAMNESIS_MONGO_DATABASE",
    }
    assert asked - explained == of_tests_and_other_builds

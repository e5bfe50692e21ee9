"""What `up` starts, and with which settings."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from anamnesis_pipeline.cli.up import child_environment, child_specs, sidecar_url, waited_for, wanted_ports
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.pipeline.source_specs import put_spec, remove_spec
from anamnesis_pipeline.runtime.dagster_home import bundled, write_dagster_home
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import SourceSpec


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, port=4010, dagster_port=4000, code_port=4011)


def test_sidecar_waits_for_nobody_and_the_daemon_for_recovery(settings: Settings) -> None:
    after = {spec.name: spec.after for spec in child_specs(settings)}
    assert after["sidecar"] is None
    assert after["daemon"] == after["webserver"] == "code-server"
    assert after["code-server"] == "recovery"


def test_daemon_is_dagsters_own_command(settings: Settings) -> None:
    (command,) = (spec.command for spec in child_specs(settings) if spec.name == "daemon")
    python, daemon, *options = command
    assert (python, Path(daemon).name) == (sys.executable, "dagster-daemon")
    assert options == ["run", "-w", str(settings.dagster_home / "workspace.yaml")]
    said = subprocess.run([python, daemon, "run", "--help"], capture_output=True, text=True, check=True).stdout
    assert "Run any daemons" in said


def test_children_get_what_is_configured(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = child_environment(settings, {"ANAMNESIS_PORT": "1", "PATH": "/bin", "ANAMNESIS_LOG_ROOTS": "logs:/l"})
    assert environment["ANAMNESIS_PORT"] == "4010"
    assert environment["ANAMNESIS_CODE_PORT"] == "4011"
    assert environment["DAGSTER_HOME"] == str(tmp_path / "dagster")
    assert environment["PATH"] == "/bin"
    assert environment["ANAMNESIS_LOG_ROOTS"] == f"{tmp_path}/logs:/l", "relative ones are meant from here"


def test_no_token_stands_on_a_command_line(settings: Settings) -> None:
    secret = settings.model_copy(update={"api_token": SecretStr("s3cret-token")})
    assert not any("s3cret-token" in " ".join(spec.command) for spec in child_specs(secret))


def test_ports_are_checked_and_reached_over_loopback(settings: Settings) -> None:
    wanted = {want.variable: want.port for want in wanted_ports(settings)}
    assert wanted == {"ANAMNESIS_PORT": 4010, "ANAMNESIS_DAGSTER_PORT": 4000, "ANAMNESIS_CODE_PORT": 4011}
    assert sidecar_url(settings.model_copy(update={"bind": "0.0.0.0"})) == "http://127.0.0.1:4010"
    assert sidecar_url(settings.model_copy(update={"bind": "::1"})) == "http://[::1]:4010"


def test_source_that_was_removed_is_not_waited_for(settings: Settings) -> None:
    with closing(open_store(settings)) as store:
        put_spec(store.settings, SourceSpec("notes", "documents", "/notes", host="ann@nas"), [], "box")
        assert waited_for(settings, store)["notes"] == "ann@nas"
        remove_spec(store.settings, "notes")
        assert "notes" not in waited_for(settings, store)


def test_instance_is_written_or_it_is_told_why_not(tmp_path: Path) -> None:
    for _ in range(2):
        write_dagster_home(tmp_path / "dagster")
    instance = yaml.safe_load((tmp_path / "dagster" / "dagster.yaml").read_text())
    workspace = yaml.safe_load((tmp_path / "dagster" / "workspace.yaml").read_text())
    assert instance["telemetry"] == {"enabled": False}
    assert workspace["load_from"][0]["grpc_server"]["port"] == {"env": "ANAMNESIS_CODE_PORT"}
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GiveUp, match="ANAMNESIS_HOME"):
        write_dagster_home(tmp_path / "file")
    with pytest.raises(GiveUp, match=r"absent\.yaml"):
        bundled("absent.yaml")

"""The files that Dagster reads are where it looks."""

from pathlib import Path

import pytest
import yaml

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.supervisor.dagster_home import bundled, write_dagster_home


def test_the_instance_and_the_workspace_are_written(tmp_path: Path) -> None:
    write_dagster_home(tmp_path / "dagster")
    write_dagster_home(tmp_path / "dagster")
    instance = yaml.safe_load((tmp_path / "dagster" / "dagster.yaml").read_text())
    workspace = yaml.safe_load((tmp_path / "dagster" / "workspace.yaml").read_text())
    assert instance["telemetry"] == {"enabled": False}
    assert workspace["load_from"][0]["grpc_server"]["port"] == {"env": "ANAMNESIS_CODE_PORT"}


def test_a_file_that_is_missing_from_the_installation_is_named() -> None:
    with pytest.raises(GiveUp, match=r"absent\.yaml"):
        bundled("absent.yaml")


def test_a_home_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "dagster").write_text("in the way")
    with pytest.raises(GiveUp, match="ANAMNESIS_HOME"):
        write_dagster_home(tmp_path / "dagster")

"""Each way in which Dagster finds the definitions: it loads them as it does for people, and torch stays out."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from anamnesis_pipeline.cli.up import child_specs
from anamnesis_pipeline.runtime.ports import Probe
from anamnesis_pipeline.services.dagster.api import DagsterApi
from anamnesis_pipeline.services.dagster.graphql import REPOSITORY
from anamnesis_pipeline.settings import load
from anamnesis_tests.runtime.conftest import wait_for
from anamnesis_tests.support.live_system import free_ports

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
HEAVY = ("torch", "sentence_transformers", "transformers")
"""Half a gigabyte that a process which only tells Dagster what there is must not load."""


@pytest.fixture(autouse=True)
def heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What was imported of the heavy libraries, in processes that inherit this environment: their stand-ins say so."""
    imported, stand_ins = tmp_path / "imported", tmp_path / "stand_ins"
    stand_ins.mkdir()
    for name in HEAVY:
        (stand_ins / f"{name}.py").write_text(f"print({name!r}, file=open({str(imported)!r}, 'a'))\n")
    dagster_home = tmp_path / "dagster"
    dagster_home.mkdir()
    (dagster_home / "dagster.yaml").write_bytes((ROOT / "dagster.yaml").read_bytes())
    variables = {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(stand_ins),
        "VIRTUAL_ENV": sys.prefix,
        "ANAMNESIS_CODE_HOST": LOOPBACK,
        "DAGSTER_HOME": str(dagster_home),
        "ANAMNESIS_HOME": str(tmp_path / "home"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return imported


def said(*command: str, keeps_errors: bool = True) -> str:
    """What a command that must succeed in the checkout prints."""
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr if keeps_errors else done.stdout


def validated(workspace: Path) -> str:
    """What Dagster says of every code location of a workspace."""
    return said(sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(workspace))


@contextmanager
def served(command: Sequence[str], port: int) -> Iterator[None]:
    """A code server that answers, for as long as it is wanted."""
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        try:
            wait_for(lambda: Probe(LOOPBACK, port).is_ready() or process.poll() is not None, 120)
            assert process.poll() is None
            yield
        finally:
            os.killpg(process.pid, 9)


def test_heavy_stand_ins_report_an_import(heavy: Path) -> None:
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    assert heavy.read_text() == "torch\n"


def test_workspace_of_up_loads_without_torch(heavy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("ANAMNESIS_CODE_PORT", str(port))
    (server,) = [spec for spec in child_specs(load()) if spec.name == "code-server"]
    with served(server.command, port):
        assert "code location anamnesis." in validated(ROOT / "workspace.yaml")
    assert not heavy.exists()


def test_workspace_of_containers_loads_without_torch(heavy: Path, tmp_path: Path) -> None:
    """By the command of the code server's container, on a port that is free here."""
    (port,) = free_ports(1)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    moved = {"python": sys.executable, "0.0.0.0": LOOPBACK, "3011": str(port)}
    command = [moved.get(word, word) for word in compose["services"]["code-server"]["command"]]
    if command[0] == "dagster":
        command[:1] = [sys.executable, "-m", "dagster"]
    workspace = yaml.safe_load((ROOT / "deploy/workspace.yaml").read_text())
    workspace["load_from"][0]["grpc_server"]["port"] = port
    there = tmp_path / "workspace.yaml"
    there.write_text(yaml.safe_dump(workspace))
    with served(command, port):
        assert "code location anamnesis." in validated(there)
    assert not heavy.exists()


DG = str(Path(sys.executable).with_name("dg"))


def test_dg_loads_and_lists_every_definition_without_torch(heavy: Path) -> None:
    said(DG, "check", "toml")
    assert "All definitions loaded successfully" in said(DG, "check", "defs")
    listed = json.loads(said(DG, "list", "defs", "--json", keeps_errors=False))
    names = {kind: {each.get("name") or each["asset_key"] for each in found} for kind, found in listed.items()}
    assert {"crawled_files", "embeddings", "consolidation_report"} <= names["assets"]
    assert names["jobs"] == {"ingest", "embed", "index", "consolidate", "draw_map", "dream", "review", "finish_posted"}
    assert names["sensors"] == {"crawl_sensor", "quick_crawl_sensor", "embed_sensor"}
    assert names["schedules"] == {"daily_ingest", "daily_consolidation", "daily_map", "daily_dream", "weekly_review"}
    assert names["resources"] == {"memory", "embedding_pool", "llm", "ssh"}
    assert "elemetry" not in said(DG, "list", "defs"), "dagster.yaml turns it off"
    assert not heavy.exists()


@pytest.mark.slow
def test_dg_dev_serves_the_definitions(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    api = DagsterApi(f"http://{LOOPBACK}:{port}")
    with served([DG, "dev", "--port", str(port)], port):
        schedules = {each.name for each in api.schedules()}
    assert schedules == {"daily_ingest", "daily_consolidation", "daily_map", "daily_dream", "weekly_review"}


def test_dg_serves_the_location_that_the_service_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert project["code_location_name"] == REPOSITORY["repositoryLocationName"]

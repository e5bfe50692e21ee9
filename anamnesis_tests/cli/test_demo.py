"""The demo keeps off everything that is in use."""

import io
import re
import socket
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from anamnesis_pipeline.cli import up
from anamnesis_pipeline.cli.up import Up, demo_environment, run_demo
from anamnesis_pipeline.settings import Settings


def test_a_demo_takes_free_ports_and_its_own_home(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = demo_environment(Settings(port=port, home=tmp_path / "mine"), tmp_path / "demo")
    assert environment["ANAMNESIS_PORT"] != str(port)
    assert environment["ANAMNESIS_HOME"] == str(tmp_path / "demo")
    assert len({environment[f"ANAMNESIS_{name}"] for name in ("PORT", "DAGSTER_PORT", "CODE_PORT")}) == 3
    assert Path(environment["ANAMNESIS_LOG_ROOTS"]).is_dir()


def test_command_of_a_demo_names_its_home_and_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ready(Up):
        def run(self) -> int:
            self._on_ready()
            return 0

    for name in demo_environment(Settings(home=tmp_path), tmp_path):  # whatever it sets is taken back
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "mine"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(up, "Up", Ready)
    said = io.StringIO()
    assert run_demo(Console(file=said)) == 0
    place = rf"ANAMNESIS_HOME={tmp_path}/anamnesis-demo-\S+ ANAMNESIS_PORT=\d+"
    assert re.search(rf"try: {place} anamnesis search '", said.getvalue())

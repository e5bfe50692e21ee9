"""The demo keeps off everything that is in use."""

import socket
from pathlib import Path

from anamnesis_pipeline.commands.demo import demo_environment
from anamnesis_pipeline.settings import Settings


def test_a_demo_takes_free_ports_and_its_own_home(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = demo_environment(Settings(port=port, home=tmp_path / "mine"), tmp_path / "demo")
    assert environment["ANAMNESIS_PORT"] != str(port)
    assert environment["ANAMNESIS_HOME"] == str(tmp_path / "demo")
    assert len({environment[f"ANAMNESIS_{name}"] for name in ("PORT", "DAGSTER_PORT", "CODE_PORT")}) == 3
    assert Path(environment["ANAMNESIS_LOG_ROOTS"]).is_dir()

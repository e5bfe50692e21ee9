"""`anamnesis demo`: the whole thing on a temporary home and the bundled example logs."""

import os
import shutil
import socket
import tempfile
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.text import Text

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.up import run_up
from anamnesis_pipeline.runtime.dagster_home import bundled
from anamnesis_pipeline.runtime.log_roots import EXAMPLE_LOGS
from anamnesis_pipeline.settings import ENV_PREFIX, Settings

PORTS = ("port", "dagster_port", "code_port")
EXAMPLE_QUERY = "why were customers charged twice"


def run_demo(console: Console) -> int:
    """Run until Ctrl-C, then remove the home; the exit status of `up`."""
    home = Path(tempfile.mkdtemp(prefix="anamnesis-demo-"))
    try:
        # The children read their settings from the environment, as they always do.
        os.environ |= demo_environment(settings_file.load(), home)
        settings = settings_file.load()

        def invite() -> None:
            place = f"{ENV_PREFIX}HOME={quote(str(home))} {ENV_PREFIX}PORT={settings.port}"
            command = f"{place} anamnesis search {EXAMPLE_QUERY!r}"
            console.print(Text(f"In another terminal, try: {command}"), soft_wrap=True)

        return run_up(settings, console, invite)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def demo_environment(settings: Settings, home: Path) -> dict[str, str]:
    """The variables of a demo: its home, the example logs, and ports that are free now, the configured ones first."""
    ports: dict[str, int] = {}
    for name in PORTS:
        wanted = getattr(settings, name)
        ports[name] = wanted if wanted not in ports.values() and _is_free(wanted) else _any_free_port()
    return {
        f"{ENV_PREFIX}HOME": str(home),
        f"{ENV_PREFIX}LOG_ROOTS": str(bundled(EXAMPLE_LOGS)),
        f"{ENV_PREFIX}BIND": "127.0.0.1",
        **{f"{ENV_PREFIX}{name.upper()}": str(port) for name, port in ports.items()},
    }


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def _any_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])

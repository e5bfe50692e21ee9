"""Dagster as tests need it, by its public parts: runs that a launcher left behind, and a webserver."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import httpx

from anamnesis_pipeline.services.dagster.api import DagsterApi


def created_run(
    instance: dg.DagsterInstance,
    job_name: str = "ingest",
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED,
    tags: Mapping[str, str] | None = None,
) -> dg.DagsterRun:
    """A run in some state, of a job without steps that no process works on. One that is queued has to be launched."""
    return instance.create_run_for_job(dg.GraphDefinition(name=job_name).to_job(), status=status, tags=tags)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def dagster_webserver(home: Path, code: str) -> Iterator[DagsterApi]:
    """A webserver behind its guard on an empty Dagster home; no daemon, so what is launched stays requested.

    :param code: what workspace.yaml says of the code location, which is named `anamnesis`.
    """
    (home / "workspace.yaml").write_text(f"load_from:\n  - {code}\n")
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    port = free_port()
    guarded = "anamnesis_pipeline.sidecar.dagster_ui"
    command = [sys.executable, "-m", guarded, "-h", "127.0.0.1", "-p", str(port), "-w", "workspace.yaml"]
    environment = {**os.environ, "DAGSTER_HOME": str(home), "ANAMNESIS_HOME": str(home)}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}", process, home / "log")
        yield DagsterApi(f"http://127.0.0.1:{port}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 90
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        try:
            if httpx.get(f"{url}/server_info", timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)

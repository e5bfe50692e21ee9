"""The code server as its container starts it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dagster._grpc.client import DagsterGrpcClient

from anamnesis_tests.live_system import free_ports
from anamnesis_tests.supervisor.conftest import wait_for


def answers(client: DagsterGrpcClient) -> bool:
    try:
        return bool(client.ping("Are you there?"))
    except Exception:  # of whatever kind: it is not there yet
        return False


def awakenings(process_id: int) -> int:
    """How often the main thread has waited and gone on."""
    status = Path(f"/proc/{process_id}/task/{process_id}/status").read_text()
    return int(status.partition("nonvoluntary_ctxt_switches")[0].rpartition("voluntary_ctxt_switches:")[2])


@pytest.mark.e2e
def test_its_main_thread_sleeps_and_yet_hears_a_signal_at_once(home: Path) -> None:
    (port,) = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "anamnesis_pipeline.defs.container_code_server",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with subprocess.Popen(
        [*command, "-m", "anamnesis_pipeline.definitions"], env={**os.environ, "ANAMNESIS_HOME": str(home)}
    ) as process:
        try:
            client = DagsterGrpcClient(port=port)
            wait_for(lambda: answers(client), 120)
            before = awakenings(process.pid)
            time.sleep(3)
            assert awakenings(process.pid) - before < 10, "by itself it is 30"
            process.send_signal(signal.SIGTERM)
            told = time.monotonic()
            process.wait(60)
            assert time.monotonic() - told < 25, "it wakes up every 30 s"
        finally:
            process.kill()

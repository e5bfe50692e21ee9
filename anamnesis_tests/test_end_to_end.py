"""The whole system as a user runs it: `anamnesis up` on a temporary home with the example logs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from anamnesis_pipeline.supervisor.life import end_life, members
from anamnesis_pipeline.supervisor.up_lock import read_lock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[1] / "examples" / "claude_logs"
IN_THE_EXAMPLES = "customers were charged twice when the payment webhook was retried"
POSTED = {
    "summary": "The greenhouse thermostat reboots when its clock crosses midnight.",
    "instance": "test",
    "project": "greenhouse",
    "raw_exchange": "Q: why does it reboot? A: an overflow in the minute counter.",
}
START_S = 180.0
"""Generous: two cores, shared with whatever else the machine does."""


class System:
    """One home with its ports; at most one `anamnesis up` on it at a time."""

    def __init__(self, folder: Path) -> None:
        self.home, self.output = folder / "home", folder / "up.txt"
        self.port, self.dagster_port, self.code_port = free_ports(3)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ANAMNESIS_")}
        self.environment = {
            **inherited,
            "HOME": str(folder / "user"),
            "ANAMNESIS_HOME": str(self.home),
            "ANAMNESIS_LOG_ROOTS": str(EXAMPLES),
            "ANAMNESIS_PORT": str(self.port),
            "ANAMNESIS_DAGSTER_PORT": str(self.dagster_port),
            "ANAMNESIS_CODE_PORT": str(self.code_port),
        }
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30, trust_env=False)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "anamnesis_pipeline.cli", *arguments]

    def start(self) -> "subprocess.Popen[bytes]":
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self.command("up"), env=self.environment, stdout=output, stderr=output)
        return self.process

    def run(self, *arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*arguments), env=self.environment | extra, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip

    @property
    def life(self) -> str:
        running = read_lock(self.home / "up.lock")
        assert running is not None
        return running.life

    def is_ready(self) -> bool:
        return self.answers("/ready")

    def answers(self, path: str) -> bool:
        try:
            return self.http.get(path).status_code == 200
        except httpx.HTTPError:
            return False

    def search(self, query: str, **options: Any) -> list[dict[str, Any]]:
        response = self.http.post("/api/episodes/search", json={"query": query, **options})
        response.raise_for_status()
        results: list[dict[str, Any]] = response.json()["results"]
        return results

    def graphql(self, query: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.dagster_port}/graphql"
        try:
            answer = httpx.post(url, json={"query": query}, timeout=30, trust_env=False).json()
        except (httpx.HTTPError, json.JSONDecodeError):
            return {}
        data: dict[str, Any] = answer.get("data") or {}
        return data

    def wait_until(self, what: str, condition: Callable[[], object], timeout_s: float = START_S) -> None:
        """Poll until `condition` holds; a supervisor that ended, or the time-out, fails with its output and logs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            ended = self.process is not None and self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                pytest.fail(f"{what}: {'up has ended' if ended else 'waited in vain'}\n{self.traces()}")
            time.sleep(0.2)

    def traces(self) -> str:
        logs = [self.output, *sorted((self.home / "logs").glob("*.log"))]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs if log.exists())

    def end(self) -> None:
        self.http.close()
        running = read_lock(self.home / "up.lock")
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if running is not None:
            end_life(running.life, grace_s=0)


def free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports


def left_of(life: str) -> list[str]:
    """Command lines of all processes of a life, its watcher included."""
    watchers = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if life in (p.info["cmdline"] or [])]
    return [" ".join(command) for command in watchers] + [str(process) for process in members(life)]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path)
    yield system
    system.end()


def test_memory_survives_kill_9_and_no_process_does(system: System) -> None:
    first = system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    system.wait_until("an example episode is found", lambda: system.search(IN_THE_EXAMPLES))
    assert "webhook" in system.search(IN_THE_EXAMPLES)[0]["excerpt"].lower()
    life = system.life

    posted = system.http.post("/api/episodes", json=POSTED)
    assert posted.status_code == 201, posted.text
    posted_id = posted.json()["episode_id"]
    assert system.search("thermostat reboots at midnight")[0]["episode_id"] == posted_id

    system.wait_until("Dagster lists its assets", lambda: assets_of(system))
    expected = {"crawled_files", "exchanges", "summaries", "episodes", "embeddings", "vector_index"}
    assert expected <= assets_of(system)
    system.wait_until("all passages are embedded", lambda: covered(system))
    system.wait_until("up says where to go", lambda: f"http://127.0.0.1:{system.port}" in system.output.read_text())

    before = episode_ids(system)
    first.send_signal(signal.SIGKILL)
    first.wait()
    system.process = None
    system.wait_until("no process of the killed life is left", lambda: not left_of(life), timeout_s=30)

    second = system.start()
    system.wait_until("the sidecar is ready again", system.is_ready)
    assert episode_ids(system) >= before
    assert system.search(IN_THE_EXAMPLES)
    assert system.search("thermostat reboots at midnight")[0]["episode_id"] == posted_id
    system.wait_until("Dagster lists its assets again", lambda: assets_of(system))

    life = system.life
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0, system.traces()
    system.process = None
    system.wait_until("no process is left after SIGTERM", lambda: not left_of(life), timeout_s=10)


def test_a_second_up_says_that_it_is_already_running_and_keyword_search_answers_early(system: System) -> None:
    started = time.monotonic()
    system.start()
    system.wait_until("keyword search answers", lambda: system.answers("/health"))
    system.search("anything", mode="exact")
    assert time.monotonic() - started < 30  # 5 s on a machine of its own; this one may be shared
    again = system.run("up")
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert f"http://127.0.0.1:{system.port}" in again.stdout
    assert f"http://127.0.0.1:{system.dagster_port}" in again.stdout


def test_a_port_in_use_is_named_with_the_variable_that_changes_it_and_nothing_is_started(system: System) -> None:
    with socket.create_server(("127.0.0.1", system.dagster_port)):
        refused = system.run("up")
    assert refused.returncode == 1
    assert f"port {system.dagster_port}" in refused.stderr
    assert f"process {os.getpid()}" in refused.stderr
    assert "ANAMNESIS_DAGSTER_PORT" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (system.home / "logs" / "sidecar.log").exists()


def assets_of(system: System) -> set[str]:
    nodes = system.graphql("{ assetNodes { assetKey { path } } }").get("assetNodes") or []
    return {"/".join(node["assetKey"]["path"]) for node in nodes}


def covered(system: System) -> bool:
    coverage = system.http.get("/ready").json()["coverage"]
    return coverage["stored"] > 1 and coverage["embedded"] == coverage["stored"]


def episode_ids(system: System) -> set[str]:
    ids: set[str] = set()
    cursor = None
    while True:
        parameters = {"limit": 100} | ({"cursor": cursor} if cursor else {})
        page = system.http.get("/api/episodes", params=parameters).json()
        ids |= {item["episode_id"] for item in page["items"]}
        if not (cursor := page["next_cursor"]):
            return ids

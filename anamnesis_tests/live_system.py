"""A whole system, started as a user starts it: `anamnesis up` on a home and ports of its own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from anamnesis_pipeline.supervisor.life import end_life, members
from anamnesis_pipeline.supervisor.up_lock import read_lock

EXAMPLES = Path(__file__).parents[1] / "examples" / "claude_logs"
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

    def graphql(self, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.dagster_port}/graphql"
        body = {"query": query, "variables": dict(variables or {})}
        try:
            answer = httpx.post(url, json=body, timeout=30, trust_env=False).json()
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

    def is_covered(self) -> bool:
        """Whether every passage has its vectors in the active space."""
        coverage = self.http.get("/ready").json()["coverage"]
        return bool(coverage["stored"] > 1 and coverage["embedded"] == coverage["stored"])

    def kill_9(self) -> None:
        """Kill the supervisor and wait until nothing of its life is left."""
        assert self.process is not None
        life = self.life
        self.process.kill()
        self.process.wait()
        self.process = None
        self.wait_until("no process of the killed life is left", lambda: not left_of(life), timeout_s=30)

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

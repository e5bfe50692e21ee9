"""A whole system, started as a user starts it: `anamnesis up` on a home and ports of its own."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from anamnesis_pipeline.runtime.process_group import end_life, members
from anamnesis_pipeline.runtime.up_lock import read_lock

EXAMPLES = Path(__file__).parents[2] / "examples" / "claude_logs"
JOURNAL_FOLDER = Path(__file__).parent / "embedding_journal"
START_S = 180.0
"""Generous: two cores, shared with whatever else the machine does."""


class System:
    """One home with its ports; at most one `anamnesis up` on it at a time.

    :param settings: more environment variables, such as ANAMNESIS_MODEL.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.home, self.output = folder / "home", folder / "up.txt"
        self.journal = folder / "embedded.jsonl"
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
            "EMBEDDING_JOURNAL": str(self.journal),
            "PYTHONPATH": os.pathsep.join([str(JOURNAL_FOLDER), *filter(None, [inherited.get("PYTHONPATH")])]),
            **settings,
        }
        once = httpx.Limits(max_keepalive_connections=0)  # a server may close an idle connection just as it is used
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30, trust_env=False, limits=once)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "anamnesis_pipeline", *arguments]

    def start(self) -> "subprocess.Popen[bytes]":
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self.command("up"), env=self.environment, stdout=output, stderr=output)
        return self.process

    def run(self, *arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*arguments),
            env=self.environment | extra,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

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

    def kill_9(self, *, everything: bool = False) -> None:
        """Kill the supervisor, and with `everything` each of its processes; wait until none of them is left."""
        assert self.process is not None
        life, process, self.process = self.life, self.process, None
        process.kill()
        for other in [*watchers_of(life), *members(life)] if everything else ():
            with suppress(psutil.NoSuchProcess):
                other.kill()
        process.wait()
        self.wait_until("no process of the killed life is left", lambda: not left_of(life), timeout_s=30)

    def terminate(self) -> None:
        """SIGTERM to the supervisor, which ends with status 0 and leaves no process behind."""
        assert self.process is not None
        life, process, self.process = self.life, self.process, None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, self.traces()
        assert left_of(life) == []

    def children(self, word: str) -> list[psutil.Process]:
        """Processes of this life that have a word, or a file of that name, in their command line."""
        return [
            process
            for process in members(self.life)
            if any(word in (each, Path(each).name) for each in command_line(process))
        ]

    def child(self, word: str) -> psutil.Process:
        """The only process of this life that has a word in its command line."""
        (found,) = self.children(word)
        return found

    def run_process(self, run_id: str) -> psutil.Process | None:
        """The process that works on a run of Dagster, as the run's log names it; None before it has begun."""
        wanted = "metadataEntries { label ... on TextMetadataEntry { text } }"
        events = f"eventConnection(limit: 100) {{ events {{ ... on EngineEvent {{ {wanted} }} }} }}"
        answer = self.graphql(
            f"query($id: ID!) {{ runOrError(runId: $id) {{ ... on Run {{ {events} }} }} }}", {"id": run_id}
        )
        events = answer["runOrError"]["eventConnection"]["events"]
        entries = [entry for event in events for entry in event.get("metadataEntries", [])]
        named = {int(entry["text"]) for entry in entries if entry["label"] == "pid"}
        return next((process for process in members(self.life) if process.pid in named), None)

    def embedded(self, space: str) -> int:
        """How many episodes were embedded in a space."""
        return len(self._times_embedded(space))

    def embedded_twice(self, space: str) -> int:
        """How often an episode was embedded again in a space, what ended processes did not write included."""
        return sum(count - 1 for count in self._times_embedded(space).values())

    def _times_embedded(self, space: str) -> Counter[str]:
        begun = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return Counter(episode for work in begun if work["space"] == space for episode in work["episodes"])

    def vectors_written_again(self) -> int:
        """How many vectors were written beyond those that are there: each write takes a number of its own."""
        with closing(sqlite3.connect(f"file:{self.home / 'anamnesis.db'}?mode=ro", uri=True)) as connection:
            query = "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'vectors') - count(*) FROM vectors"
            return int(connection.execute(query).fetchone()[0])

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


def command_line(process: psutil.Process) -> list[str]:
    """Its words; none when it is gone meanwhile."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def watchers_of(life: str) -> list[psutil.Process]:
    """The process that ends a life whose supervisor is gone; it is no member of it."""
    return [process for process in psutil.process_iter(["cmdline"]) if life in (process.info["cmdline"] or [])]


def left_of(life: str) -> list[str]:
    """All processes of a life, its watcher included."""
    return [str(process) for process in [*watchers_of(life), *members(life)]]

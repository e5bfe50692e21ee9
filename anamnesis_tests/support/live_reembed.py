"""What the end-to-end tests of a re-embed ask a running system, and what they fill it with."""

import threading
from typing import Any, Self

import httpx

from anamnesis_tests.support.live_system import System

ASKED = {"query": "which valve of the greenhouse leaks", "track": False, "min_score": 0}
"""Without a floor: to models of random weights everything is as near as anything else."""
CHECKPOINT = 25
"""Episodes between two writes: the most that an end of the process may cost."""
WORK_S = 600.0
"""What waits for embedding is patient: a re-embed lets every other process on these cores go first."""
RUNS = """query($space: String!) {
  runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING],
      tags: [{key: "anamnesis/embed", value: $space}]}) { ... on Runs { results { runId status } } } }"""


class Searcher:
    """Searches all the time while the block runs, and notes every answer that was refused, degraded or empty."""

    def __init__(self, system: System) -> None:
        self.url = f"http://127.0.0.1:{system.port}/api/episodes/search"
        self.bad: list[str] = []
        self.answers = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self._ended.wait(0.25):
                self.answers += 1
                try:
                    response = client.post(self.url, json=ASKED)
                except httpx.HTTPError as exc:
                    self.bad.append(repr(exc))
                    continue
                body = response.json()
                if response.status_code != 200 or not body["results"] or body["degraded"]:
                    self.bad.append(f"{response.status_code} {body.get('degraded')} {response.text[:200]}")


def note(text: str, number: int) -> dict[str, str]:
    sentences = (f"Valve {number}-{n} of the greenhouse: {number * n % 97} kPa, checked." for n in range(15))
    return {
        "summary": f"Note {number}: {text}",
        "instance": "test",
        "project": "greenhouse",
        "raw_exchange": " ".join(sentences),
    }


def post_many(system: System, count: int) -> None:
    for first in range(0, count, 50):
        notes = [note("a valve leaks", number) for number in range(first, first + 50)]
        response = system.http.post("/api/episodes/bulk", json={"episodes": notes}, timeout=120)
        assert response.json()["created"] == 50, response.text


def start_full(system: System, notes: int) -> None:
    """Start it with so many notes beside its logs; everything is embedded, and Dagster answers."""
    system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    post_many(system, notes)
    system.wait_until("all logs are read", lambda: "Memory is up to date" in system.output.read_text(), WORK_S)
    system.wait_until("everything is embedded", system.is_covered, WORK_S)
    system.wait_until("Dagster answers", lambda: system.graphql("{ version }"))


def status(system: System) -> dict[str, Any]:
    answer: dict[str, Any] = system.http.get("/api/episodes/reembed/status").json()
    return answer


def done(system: System) -> int:
    return int(status(system)["done"])


def wait_for_more(system: System, what: str) -> None:
    """Wait until more is embedded than now."""
    before = done(system)
    system.wait_until(what, lambda: done(system) > before, WORK_S)


def is_over(system: System) -> bool:
    return bool(status(system)["state"] == "complete")


def spaces(system: System) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = system.http.get("/api/embedding/spaces").json()["spaces"]
    return listed


def active(system: System) -> str:
    return next(str(space["key"]) for space in spaces(system) if space["status"] == "active")


def model_of_answer(system: System) -> str:
    answer = system.http.post("/api/episodes/search", json=ASKED).json()
    return str(answer["model_id"])


def unfinished_runs(system: System, space: str) -> dict[str, str]:
    """Run of Dagster that embeds a space, or is about to -> its status."""
    answer = system.graphql(RUNS, {"space": space})
    return {run["runId"]: run["status"] for run in answer["runsOrError"]["results"]}

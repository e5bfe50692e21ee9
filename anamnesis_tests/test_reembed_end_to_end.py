"""A re-embed as a user drives it through a running `anamnesis up`: paused, killed three times, switched back."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from anamnesis_tests.embeddings.tiny_models import random_model
from anamnesis_tests.live_system import System

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

EPISODES = 300
QUESTION = "which valve of the greenhouse leaks"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path)
    yield system
    system.end()


class Searcher:
    """Searches all the time and notes every answer that was refused, degraded or empty."""

    def __init__(self, system: System) -> None:
        self.url = f"http://127.0.0.1:{system.port}/api/episodes/search"
        self.bad: list[str] = []
        self.answers = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Searcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def _work(self) -> None:
        with httpx.Client(timeout=30, trust_env=False) as client:
            while not self._ended.wait(0.25):
                response = client.post(self.url, json={"query": QUESTION, "track": False})
                body = response.json()
                if response.status_code != 200 or not body["results"] or body["degraded"]:
                    self.bad.append(response.text[:300])
                self.answers += 1


def test_a_reembed_outlives_pause_and_three_kills_switches_and_goes_back(system: System, tmp_path: Path) -> None:
    model = random_model(tmp_path / "other-model", dim=96, layers=24)
    system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    post_many(system, EPISODES)
    system.wait_until("everything is embedded", system.is_covered, timeout_s=300)
    system.wait_until("Dagster answers", lambda: system.graphql("{ version }"))
    old = active(system)

    with Searcher(system) as searcher:
        started = system.http.post("/api/embedding/model", json={"model_id": str(model)})
        assert started.status_code == 202, started.text
        new = started.json()["space"]
        assert started.json()["backfill_id"]
        assert system.http.post("/api/episodes/reembed", json={}).status_code == 409
        system.wait_until("the first checkpoint is written", lambda: done(system) > 0)
        assert status(system)["state"] == "running"

        paused = system.http.post("/api/episodes/reembed/pause").json()
        assert paused["state"] == "paused"
        system.wait_until("the paused run ends", lambda: not unfinished(system, "embeddings"), timeout_s=60)
        left_at = done(system)
        assert active(system) == old

        assert system.http.post("/api/episodes/reembed/resume").json()["state"] == "running"
        system.wait_until("it goes on after the pause", lambda: done(system) > left_at)
    assert searcher.answers > 10
    assert searcher.bad == []

    for _ in range(3):
        before = done(system)
        assert not is_over(system), "too few episodes: nothing was left to kill"
        system.kill_9()
        system.start()
        system.wait_until("the sidecar is ready again", system.is_ready)
        assert done(system) >= before
        assert active(system) == old
        system.wait_until("it goes on by itself", lambda before=before: done(system) > before)

    with Searcher(system) as searcher:
        posted = system.http.post("/api/episodes", json=note("the cistern pump was replaced", 0))
        assert posted.status_code == 201
        system.wait_until("the new space is active", lambda: active(system) == new, timeout_s=600)
        system.wait_until("the new model answers", lambda: model_of_answer(system) == str(model))
        assert status(system)["state"] == "complete"
        assert status(system)["errors"] == 0

        back = system.http.post(f"/api/embedding/spaces/{old}/use")
        assert back.status_code in (200, 202), back.text
        system.wait_until("the old space is active again", lambda: active(system) == old)
        system.wait_until("the old model answers again", lambda: model_of_answer(system) != str(model))
    assert searcher.bad == []
    assert system.search("cistern pump replaced")[0]["episode_id"] == posted.json()["episode_id"]

    assert system.http.delete(f"/api/embedding/spaces/{old}").status_code == 409
    assert system.http.delete(f"/api/embedding/spaces/{new}").status_code == 204
    assert [space["key"] for space in spaces(system)] == [old]


def note(text: str, number: int) -> dict[str, str]:
    sentences = (f"Valve {number}-{n} of the greenhouse: {number * n % 97} kPa, checked." for n in range(15))
    return {"summary": f"Note {number}: {text}", "instance": "test", "project": "greenhouse",
            "raw_exchange": " ".join(sentences)}  # fmt: skip


def post_many(system: System, count: int) -> None:
    for first in range(0, count, 50):
        notes = [note("a valve leaks", number) for number in range(first, first + 50)]
        response = system.http.post("/api/episodes/bulk", json={"episodes": notes}, timeout=120)
        assert response.json()["created"] == 50, response.text


def status(system: System) -> dict[str, Any]:
    answer: dict[str, Any] = system.http.get("/api/episodes/reembed/status").json()
    return answer


def done(system: System) -> int:
    return int(status(system)["done"])


def is_over(system: System) -> bool:
    return bool(status(system)["state"] == "complete")


def spaces(system: System) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = system.http.get("/api/embedding/spaces").json()["spaces"]
    return listed


def active(system: System) -> str:
    return next(str(space["key"]) for space in spaces(system) if space["status"] == "active")


def model_of_answer(system: System) -> str:
    answer = system.http.post("/api/episodes/search", json={"query": QUESTION, "track": False}).json()
    return str(answer["model_id"])


def unfinished(system: System, asset: str) -> list[str]:
    found = system.graphql(
        "{ runsOrError(limit: 20) { ... on Runs { results { runId status assetSelection { path } } } } }"
    )
    over = {"SUCCESS", "FAILURE", "CANCELED"}
    runs = found["runsOrError"]["results"]
    return [r["runId"] for r in runs if r["status"] not in over and {"path": [asset]} in (r["assetSelection"] or [])]

"""A re-embed as a user drives it through `anamnesis up`: paused, everything ended, switched back."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from anamnesis_tests.support.live_reembed import (
    CHECKPOINT,
    WORK_S,
    Searcher,
    active,
    done,
    is_over,
    model_of_answer,
    note,
    spaces,
    start_full,
    status,
    unfinished_runs,
    wait_for_more,
)
from anamnesis_tests.support.live_system import System
from anamnesis_tests.support.tiny_models import random_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

ALL_KILLED, KILLED, ENDED = "all killed", "killed", "ended"
"""All processes of `up`, it alone, and it by SIGTERM."""
LOGS = (Path(__file__).parents[1] / "../shared/data/claude_logs").resolve()
WITH_LOGS = pytest.param(
    "logs", marks=[pytest.mark.slow, pytest.mark.skipif(not LOGS.is_dir(), reason=f"no logs at {LOGS}")]
)


@pytest.fixture(params=["notes", WITH_LOGS])
def system(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[System]:
    """Running, and full: everything is embedded with a small model."""
    settings = {"ANAMNESIS_MODEL": str(random_model(tmp_path / "first-model"))}
    if request.param == "logs":
        settings |= {"CLAUDE_CONFIG_DIR": str(LOGS), "ANAMNESIS_LOG_ROOTS": ""}
    system = System(tmp_path, **settings)
    try:
        start_full(system, notes=400 if request.param == "notes" else 0)
        yield system
    finally:
        system.end()


@pytest.mark.parametrize("ends", [(ALL_KILLED,), pytest.param((KILLED, ENDED), marks=pytest.mark.kills)], ids=" ".join)
def test_reembed_outlives_pause_and_ends(system: System, tmp_path: Path, ends: tuple[str, ...]) -> None:
    model = random_model(tmp_path / "other-model", dim=96, layers=24)
    old, written_again = active(system), system.vectors_written_again()

    with Searcher(system) as searcher:
        started = system.http.post("/api/embedding/model", json={"model_id": str(model)})
        assert started.status_code == 202, started.text
        new = started.json()["space"]
        assert started.json()["backfill_id"]
        assert system.http.post("/api/episodes/reembed", json={}).status_code == 409
        system.wait_until("the first checkpoint is written", lambda: done(system) > 0, WORK_S)
        assert status(system)["state"] == "running"

        paused = system.http.post("/api/episodes/reembed/pause").json()
        assert paused["state"] == "paused"
        system.wait_until("the paused run ends", lambda: not unfinished_runs(system, new), WORK_S)
        left_at = done(system)
        assert active(system) == old

        assert system.http.post("/api/episodes/reembed/resume").json()["state"] == "running"
        system.wait_until("it goes on after the pause", lambda: done(system) > left_at, WORK_S)
    assert searcher.answers > 10
    assert searcher.bad == []
    assert system.embedded_twice(new) == 0

    how = {ALL_KILLED: partial(system.kill_9, everything=True), KILLED: system.kill_9, ENDED: system.terminate}
    for end in map(how.__getitem__, ends):
        before, twice = done(system), system.embedded_twice(new)
        assert not is_over(system), "too few episodes: nothing was left to do"
        end()
        system.start()
        system.wait_until("the sidecar is ready again", system.is_ready)
        assert done(system) >= before
        assert active(system) == old
        wait_for_more(system, "it goes on by itself")
        assert system.embedded_twice(new) <= twice + CHECKPOINT
    assert system.vectors_written_again() == written_again

    with Searcher(system) as searcher:
        posted = system.http.post("/api/episodes", json=note("the cistern pump was replaced", 0))
        assert posted.status_code == 201
        system.wait_until("the new space is active", lambda: active(system) == new, WORK_S)
        system.wait_until("the new model answers", lambda: model_of_answer(system) == str(model))
        assert status(system)["state"] == "complete"
        assert status(system)["errors"] == 0

        back = system.http.post(f"/api/embedding/spaces/{old}/use")
        assert back.status_code in (200, 202), back.text
        system.wait_until("the old space is active again", lambda: active(system) == old, WORK_S)
        system.wait_until("the old model answers again", lambda: model_of_answer(system) != str(model))
    assert searcher.bad == []
    found = system.search("cistern pump replaced")
    assert posted.json()["episode_id"] in {hit["episode_id"] for hit in found}

    assert system.http.delete(f"/api/embedding/spaces/{old}").status_code == 409
    assert system.http.delete(f"/api/embedding/spaces/{new}").status_code == 204
    assert [space["key"] for space in spaces(system)] == [old]

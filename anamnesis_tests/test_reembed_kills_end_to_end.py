"""A re-embed through a running `anamnesis up` of which single processes are ended: its run, and Dagster's daemon."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from anamnesis_tests.support.live_reembed import (
    CHECKPOINT,
    WORK_S,
    Searcher,
    active,
    done,
    is_over,
    start_full,
    status,
    unfinished_runs,
    wait_for_more,
)
from anamnesis_tests.support.live_system import System
from anamnesis_tests.support.tiny_models import random_model

pytestmark = [pytest.mark.kills, pytest.mark.timeout(1800)]

EPISODES = 400


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path, ANAMNESIS_MODEL=str(random_model(tmp_path / "first-model")))
    yield system
    system.end()


def test_reembed_outlives_the_ends_of_its_runs(system: System, tmp_path: Path) -> None:
    model = random_model(tmp_path / "other-model", dim=192, layers=24)
    start_full(system, EPISODES)
    written_again = system.vectors_written_again()

    with Searcher(system) as searcher:
        started = system.http.post("/api/embedding/model", json={"model_id": str(model)})
        assert started.status_code == 202, started.text
        new = started.json()["space"]
        system.wait_until("the first checkpoint is written", lambda: done(system) > 0, WORK_S)

        for number in (signal.SIGTERM, signal.SIGKILL):
            end_run(system, new, number)
        for number in (signal.SIGKILL, signal.SIGTERM):
            end_daemon(system, new, number)

        system.wait_until("the new space is active", lambda: active(system) == new, WORK_S)
    assert searcher.answers > 10
    assert searcher.bad == []
    assert status(system)["errors"] == 0
    assert system.embedded(new) >= EPISODES
    assert system.vectors_written_again() == written_again


def end_run(system: System, space: str, number: signal.Signals) -> None:
    """End the process of the run that embeds; another run goes on, and repeats no more than a checkpoint."""
    assert not is_over(system), "too few episodes: nothing was left to do"
    process, twice = embedding_process(system, space), system.embedded_twice(space)
    process.send_signal(number)
    system.wait_until(f"{number.name} ends the run's process", lambda: not is_running(process), timeout_s=30)
    wait_for_more(system, "another run goes on by itself")
    assert system.embedded_twice(space) <= twice + CHECKPOINT


def end_daemon(system: System, space: str, number: signal.Signals) -> None:
    """End Dagster's daemon; it is started again, and the run that embeds goes on. What is repeated is at most the last
    checkpoint of a run that was ended before, which its successor may still have before it.
    """
    process, before, twice = system.child("dagster-daemon"), done(system), system.embedded_twice(space)
    process.send_signal(number)
    system.wait_until(f"{number.name} ends the daemon", lambda: not is_running(process), timeout_s=30)
    system.wait_until("the daemon is started again", lambda: system.children("dagster-daemon"))
    system.wait_until("it goes on", lambda: done(system) > before or is_over(system), WORK_S)
    assert system.embedded_twice(space) <= twice + CHECKPOINT


def embedding_process(system: System, space: str) -> psutil.Process:
    found: list[psutil.Process] = []

    def look() -> bool:
        started = [run for run, state in unfinished_runs(system, space).items() if state == "STARTED"]
        found[:] = filter(None, map(system.run_process, started))
        return bool(found)

    system.wait_until("a run embeds", look, WORK_S)
    assert len(found) == 1, found
    return found[0]


def is_running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE

"""However often an ingest is killed, and wherever a log is torn when it is read: the memory is the same in the end."""

import random
import shutil
from pathlib import Path

import pytest

from anamnesis_tests.pipeline.soaked import ENOUGH_S, EXAMPLES, SHARED_LOGS, SoakedHome, fresh_home, undisturbed_home

needs_logs = pytest.mark.skipif(not SHARED_LOGS.is_dir(), reason=f"no logs at {SHARED_LOGS}")
LIFE = 0.25
"""Longest time until a kill, as a share of what the whole ingest takes."""


def killed_ingests(logs: Path, place: Path, kills: int, seed: int) -> None:
    """Kill ingests, each of which goes on where the last one was, until one is done; then the next home."""
    chance, killed = random.Random(seed), 0
    undisturbed, expected, whole_s = undisturbed_home(place / "undisturbed", logs)
    assert expected.vectors
    while killed < kills:
        home, before = fresh_home(undisturbed, place / f"killed-{killed}", logs), killed
        while killed < kills and home.ingest_killed_after(chance.random() * LIFE, whole_s):
            killed += 1
        assert not home.ingest_killed_after(1, ENOUGH_S)
        assert home.remembered().differences(expected) == [], f"seed {seed}, kills {before} to {killed}"
        shutil.rmtree(home.place)


@pytest.mark.kills
def test_an_ingest_killed_at_five_moments_remembers_the_same(tmp_path: Path) -> None:
    killed_ingests(EXAMPLES, tmp_path, kills=5, seed=1)


@needs_logs
@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_ingests_killed_at_a_hundred_moments_remember_the_same(tmp_path: Path) -> None:
    killed_ingests(SHARED_LOGS, tmp_path, kills=100, seed=random.SystemRandom().randrange(10**6))


def ticks_over_a_growing_log(log: Path, place: Path, ticks: int, seed: int) -> None:
    """Append a log in pieces that end anywhere, and ingest after each."""
    data, chance = log.read_bytes(), random.Random(seed)
    grown = place / "logs" / log.parent.name / log.name
    grown.parent.mkdir(parents=True)
    grown.write_bytes(data)
    undisturbed, _, _ = undisturbed_home(place / "undisturbed", place / "logs")
    expected = undisturbed.remembered(of_sessions=False)  # the session is at rest, and recorded, after each tick
    assert expected.vectors
    home: SoakedHome = fresh_home(undisturbed, place / "ticked", place / "logs")
    grown.write_bytes(b"")
    ends = sorted(chance.sample(range(1, len(data)), ticks - 1))
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        with grown.open("ab") as file:
            file.write(data[start:end])
        home.ingest()
    assert home.remembered(of_sessions=False).differences(expected) == [], f"seed {seed}"


def test_ticks_over_a_log_torn_anywhere_remember_the_same(tmp_path: Path) -> None:
    log = max(EXAMPLES.rglob("*.jsonl"), key=lambda file: file.stat().st_size)
    ticks_over_a_growing_log(log, tmp_path, ticks=12, seed=1)


@needs_logs
@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_a_hundred_ticks_over_a_growing_log_remember_the_same(tmp_path: Path) -> None:
    log = max(SHARED_LOGS.rglob("*.jsonl"), key=lambda file: file.stat().st_size)
    ticks_over_a_growing_log(log, tmp_path, ticks=100, seed=random.SystemRandom().randrange(10**6))

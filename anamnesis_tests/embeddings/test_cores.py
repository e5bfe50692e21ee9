"""Cores and ranks of threads."""

import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

import anamnesis_pipeline
from anamnesis_pipeline.embeddings.cores import (
    Priority,
    available_cores,
    cores_for,
    has_gpu,
    pin_this_thread,
    rank_this_thread,
    run_ranked,
)
from anamnesis_pipeline.errors import BadSetting

on_linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins and ranks no threads")
BORROWED = re.compile(r"\bto_thread\(|run_in_executor\(\s*None")
"""The event loop's default executor, which embedding would starve, and whose threads are not pinned."""

T = TypeVar("T")


@pytest.fixture
def unranked() -> None:
    """Ranks count here."""


def in_a_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def rank_of(priority: Priority) -> tuple[int, int]:
    """Policy and niceness of a thread of this priority."""

    def ranked() -> tuple[int, int]:
        rank_this_thread(priority)
        return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    return in_a_thread(ranked)


@pytest.mark.parametrize(
    ("percent", "chosen", "there", "wanted"),
    [
        (100, (), range(4, 8), [4, 5, 6, 7]),
        (50, (), range(4, 8), [4, 5]),
        (60, (), range(4, 8), [4, 5]),
        (63, (), range(4, 8), [4, 5, 6]),
        (1, (), range(4, 8), [4]),
        (50, (), range(16), [*range(8)]),
        (10, (7, 4, 7), range(4, 8), [7, 4]),
    ],
)
def test_cores_are_those_chosen_or_a_share_of_all(
    percent: int, chosen: tuple[int, ...], there: Sequence[int], wanted: list[int]
) -> None:
    assert cores_for(percent, chosen, there) == wanted


def test_core_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadSetting, match=r"cores 2, 99, .*may use only cores 0, 1; name some of these"):
        cores_for(100, (1, 99, 2), [0, 1])


@on_linux
def test_pinned_thread_still_knows_all_cores_of_the_process() -> None:
    every = available_cores()

    def pinned() -> tuple[Sequence[int], set[int]]:
        pin_this_thread(every[-1:])
        return available_cores(), os.sched_getaffinity(0)

    assert in_a_thread(pinned) == (every, {every[-1]})


@on_linux
def test_rank_of_a_thread_follows_its_priority_and_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert rank_of(Priority.QUERY) == (os.SCHED_OTHER, own)
    assert rank_of(Priority.LIVE) == (os.SCHED_OTHER, max(own, 5))
    assert rank_of(Priority.BACKGROUND)[0] == os.SCHED_IDLE

    def refuse(*_: object) -> None:
        raise PermissionError("not in this container")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert rank_of(Priority.BACKGROUND)[1] == 19, "as nicely as can be"
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@on_linux
def test_ranked_work_and_its_threads_stay_on_their_cores() -> None:
    before, core = os.sched_getaffinity(0), available_cores()[0]

    def work() -> tuple[int, set[int]]:
        return os.sched_getscheduler(0), in_a_thread(lambda: os.sched_getaffinity(0))

    policy, cores = run_ranked(work, [core], Priority.BACKGROUND)
    assert policy in (os.SCHED_IDLE, os.SCHED_OTHER)
    assert cores == {core}
    assert os.sched_getaffinity(0) == before, "nobody else changes"


@pytest.mark.parametrize(("build", "usable"), [("2.13.0+cpu", False), ("2.13.0+cu130", True), ("2.13.0", True)])
def test_torch_for_processors_alone_uses_no_gpu(monkeypatch: pytest.MonkeyPatch, build: str, usable: bool) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self]))
    monkeypatch.setattr("anamnesis_pipeline.embeddings.cores.version", lambda name: build)
    assert has_gpu() is usable


def test_nothing_is_handed_to_the_event_loops_default_executor() -> None:
    assert BORROWED.search("await asyncio.to_thread(pool.embed, texts)")
    assert BORROWED.search("loop.run_in_executor(\n    None, pool.embed)")
    assert not BORROWED.search("anyio.to_thread.run_sync(work, limiter=mine)")
    files = list(Path(anamnesis_pipeline.__file__).parent.rglob("*.py"))
    assert len(files) > 50
    assert [str(file) for file in files if BORROWED.search(file.read_text(encoding="utf-8"))] == []

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.fixture
def unranked() -> None:
    """Ranks count here."""


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("percent", "wanted"), [(100, 4), (50, 2), (60, 2), (63, 3), (1, 1)])
def test_a_share_of_the_cores_is_at_least_one_and_never_more_than_there_are(percent: int, wanted: int) -> None:
    assert cores_for(percent, (), [4, 5, 6, 7]) == [4, 5, 6, 7][:wanted]


def test_half_of_sixteen_cores_are_the_first_eight() -> None:
    assert cores_for(50, (), range(16)) == list(range(8))


def test_chosen_cores_count_instead_of_the_share_and_in_their_order() -> None:
    assert cores_for(10, (7, 4, 7), [4, 5, 6, 7]) == [7, 4]


def test_a_core_that_is_not_there_is_refused_and_those_that_are_get_named() -> None:
    with pytest.raises(BadSetting, match=r"cores 2, 99, .*may use only cores 0, 1; name some of these"):
        cores_for(100, (1, 99, 2), [0, 1])


@on_linux
def test_a_pinned_thread_still_knows_all_cores_of_the_process() -> None:
    every, seen = available_cores(), []

    def pinned() -> None:
        pin_this_thread(every[-1:])
        seen.append((available_cores(), os.sched_getaffinity(0)))

    in_a_thread(pinned)
    assert seen == [(every, {every[-1]})]


@on_linux
@pytest.mark.parametrize("refused", [False, True])
def test_background_work_runs_only_when_a_core_is_idle_or_as_nicely_as_can_be(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def refuse(*_: object) -> None:
        raise PermissionError("not in this container")

    if refused:
        monkeypatch.setattr(os, "sched_setscheduler", refuse)

    def ranked() -> None:
        rank_this_thread(Priority.BACKGROUND)
        seen.append((os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    in_a_thread(ranked)
    ((policy, niceness),) = seen
    assert niceness == 19 if refused else policy == os.SCHED_IDLE
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "nobody else is ranked"


@on_linux
@pytest.mark.parametrize(("priority", "niceness"), [(Priority.QUERY, 0), (Priority.LIVE, 5)])
def test_queries_keep_their_rank_and_live_embedding_is_a_little_nicer(priority: Priority, niceness: int) -> None:
    seen = []

    def ranked() -> None:
        rank_this_thread(priority)
        seen.append((os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    in_a_thread(ranked)
    assert seen == [(os.SCHED_OTHER, niceness)]


@on_linux
def test_ranked_work_and_the_threads_it_starts_stay_on_their_cores_and_nobody_else_changes() -> None:
    before, core = os.sched_getaffinity(0), available_cores()[0]
    seen: list[set[int]] = []

    def work() -> int:
        in_a_thread(lambda: seen.append(os.sched_getaffinity(0)))
        return os.sched_getscheduler(0)

    assert run_ranked(work, [core], Priority.BACKGROUND) in (os.SCHED_IDLE, os.SCHED_OTHER)
    assert seen == [{core}]
    assert os.sched_getaffinity(0) == before


def test_a_torch_built_for_processors_alone_makes_no_use_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([self]))
    for build, usable in (("2.13.0+cpu", False), ("2.13.0+cu130", True), ("2.13.0", True)):
        monkeypatch.setattr("anamnesis_pipeline.embeddings.cores.version", lambda name, build=build: build)
        assert has_gpu() is usable

import os
import threading
from collections.abc import Callable

import pytest

from anamnesis_pipeline.embeddings.cores import Priority, available_cores, cores_for, pin_this_thread, rank_this_thread
from anamnesis_pipeline.errors import BadSetting

on_linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins and ranks no threads")


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

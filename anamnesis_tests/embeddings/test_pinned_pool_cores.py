"""Which cores and ranks the workers of a pool have."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.cores import Priority, available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.errors import BadSetting, ModelLoading
from anamnesis_tests.embeddings.fake_models import HashedWords, OpenPool, Threads, wait_for


@pytest.fixture
def unranked() -> None:
    """Ranks count here."""


def pinned_cores(threads: Threads) -> list[list[int]]:
    return sorted(sorted(os.sched_getaffinity(worker.native_id or 0)) for worker in threads.named("embed-"))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
def test_each_worker_is_pinned_to_its_own_core_and_nobody_else_is(open_pool: OpenPool, threads: Threads) -> None:
    cores = available_cores()
    open_pool(cores=cores, priority=Priority.LIVE).embed(["wait until they run"] * 50, "passage")
    wait_for(
        lambda: all(os.getpriority(os.PRIO_PROCESS, worker.native_id or 0) == 5 for worker in threads.named("embed-"))
    )
    pinned, names = [], {}
    for tid in map(int, os.listdir("/proc/self/task")):
        with open(f"/proc/self/task/{tid}/comm", encoding="utf-8") as file:
            names[tid] = file.read().strip()
    for worker in threads.named("embed-"):
        assert worker.native_id in names
        pinned += [os.sched_getaffinity(worker.native_id)]
    assert sorted(map(sorted, pinned)) == [[core] for core in cores]
    assert os.sched_getaffinity(0) == set(cores), "the caller keeps all its cores"
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0


@pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")
def test_other_cores_are_taken_while_work_goes_on_and_none_of_it_is_lost(open_pool: OpenPool, threads: Threads) -> None:
    every, models = available_cores(), set()
    pool = open_pool(lambda texts: time.sleep(0.001), cores=every[:1])
    models.add(id(pool._loaded))
    texts = [f"text {n} " + "word " * (n % 50) for n in range(300)]
    expected = pool.embed(texts, "passage")
    stop, problems, done = threading.Event(), [], []

    def keep_embedding() -> None:
        while not stop.is_set():
            if not np.array_equal(pool.embed(texts, "passage"), expected):
                problems.append("another vector")
            done.append(1)

    callers = [threading.Thread(target=keep_embedding) for _ in range(3)]
    for caller in callers:
        caller.start()
    for n in range(30):
        wanted = [every[:2], every[1:2], every[:1], every[1::-1]][n % 4]
        pool.use_cores(wanted)
        models.add(id(pool._loaded))
        assert (list(pool.cores), pool.workers) == (wanted, len(wanted))
        time.sleep(0.01)
    stop.set()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive(), "work was lost"
    assert (problems, len(models)) == ([], 1)
    assert len(done) >= 3
    pool.use_cores(every[:2])
    wait_for(lambda: pinned_cores(threads) == [[core] for core in every[:2]])


@pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")
def test_workers_without_work_move_to_other_cores_at_once(open_pool: OpenPool, threads: Threads) -> None:
    every = available_cores()
    pool = open_pool(cores=every[:2])
    pool.use_cores(every[1:2])
    wait_for(lambda: pinned_cores(threads) == [[every[1]]])
    pool.use_cores(every[:2])
    wait_for(lambda: pinned_cores(threads) == [[every[0]], [every[1]]])


def test_a_core_that_is_not_there_changes_nothing(open_pool: OpenPool) -> None:
    pool = open_pool()
    with pytest.raises(BadSetting, match="may use only cores"):
        pool.use_cores([9_999])
    assert list(pool.cores) == available_cores()[:1]
    assert pool.embed(["a"], "query").shape == (1, 16)


def test_cores_chosen_before_the_model_is_there_count_from_its_start(open_pool: OpenPool, threads: Threads) -> None:
    pool = open_pool(cores=available_cores(), loaded=False)
    pool.use_cores(available_cores()[-1:])
    assert pool.workers == 0
    pool.load()
    assert pool.workers == 1
    wait_for(lambda: pinned_cores(threads) == [available_cores()[-1:]])


def test_closing_while_cores_change_leaves_no_caller_waiting(open_pool: OpenPool, threads: Threads) -> None:
    every = available_cores()
    for _ in range(20):
        pool = open_pool(cores=every)
        with ThreadPoolExecutor(2) as callers:
            embedding = callers.submit(pool.embed, ["some words"] * 200, "passage")
            moving = callers.submit(pool.use_cores, every[:1])
            pool.close()
            moving.result(60)
            with suppress(ModelLoading):  # closed before it was asked
                assert embedding.result(60).shape == (200, 16)
    wait_for(lambda: not threads.named("embed-"))


def test_background_workers_let_everyone_else_go_first(open_pool: OpenPool, threads: Threads) -> None:
    open_pool(priority=Priority.BACKGROUND).embed(["wait until it runs"], "passage")
    (worker,) = threads.named("embed-")
    assert worker.native_id is not None
    idle = os.sched_getscheduler(worker.native_id) == os.SCHED_IDLE
    assert idle or os.getpriority(os.PRIO_PROCESS, worker.native_id) == 19


def test_who_loads_the_pool_is_told_of_the_model_and_loading_is_done_on_its_cores() -> None:
    told, loaded_on = [], []

    def load() -> HashedWords:
        loaded_on.append(os.sched_getaffinity(0))
        return HashedWords()

    def note(model: object) -> None:
        told.append((model, threading.current_thread().name))

    pool = PinnedPool(PoolModel("m", 16, load, on_loaded=note), available_cores()[-1:])
    pool.load()
    pool.load()
    pool.close()
    assert [name for _, name in told] == [threading.current_thread().name]
    assert isinstance(told[0][0], HashedWords)
    assert loaded_on == [{available_cores()[-1]}]


def test_a_gpu_has_one_worker_whatever_the_cores(threads: Threads) -> None:
    pool = PinnedPool(PoolModel("m", 16, HashedWords, device="cuda"), available_cores())
    pool.load()
    try:
        assert (pool.device, pool.workers, len(threads.named("embed-"))) == ("cuda", 1, 1)
        assert pool.embed(["a"] * 50, "passage").shape == (50, 16)
    finally:
        pool.close()

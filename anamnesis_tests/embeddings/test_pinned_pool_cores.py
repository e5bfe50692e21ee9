"""Which cores and ranks the workers of a pool have."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.cores import Priority, available_cores
from anamnesis_pipeline.errors import BadSetting, ModelLoading
from anamnesis_tests.support.fake_models import HashedWords, OpenPool, Threads, wait_for

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
with_two_cores = pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")


@pytest.fixture
def unranked() -> None:
    """Ranks count here."""


def pinned_cores(threads: Threads) -> list[list[int]]:
    return sorted(sorted(os.sched_getaffinity(worker.native_id or 0)) for worker in threads.named("embed-"))


def test_each_worker_is_pinned_to_its_own_core_and_nobody_else(open_pool: OpenPool, threads: Threads) -> None:
    cores, own = available_cores(), os.getpriority(os.PRIO_PROCESS, 0)
    ranks = {max(own, 5)}
    open_pool(cores=cores, priority=Priority.LIVE).embed(["wait until they run"] * 50, "passage")
    wait_for(lambda: pinned_cores(threads) == [[core] for core in cores])
    wait_for(
        lambda: {os.getpriority(os.PRIO_PROCESS, worker.native_id or 0) for worker in threads.named("embed-")} == ranks
    )
    assert os.sched_getaffinity(0) == set(cores), "the caller keeps all its cores"
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


@with_two_cores
def test_cores_change_during_work_and_none_of_it_is_lost(open_pool: OpenPool, threads: Threads) -> None:
    every = available_cores()
    pool = open_pool(lambda texts: time.sleep(0.001), cores=every[:1])
    models, texts = {id(pool._loaded)}, [f"text {n} " + "word " * (n % 50) for n in range(300)]
    expected = pool.embed(texts, "passage")
    stop = threading.Event()

    def keep_embedding() -> int:
        done = 0
        while not stop.is_set():
            assert np.array_equal(pool.embed(texts, "passage"), expected)
            done += 1
        return done

    with ThreadPoolExecutor(3) as callers:
        embedding = [callers.submit(keep_embedding) for _ in range(3)]
        for n in range(30):
            wanted = [every[:2], every[1:2], every[:1], every[1::-1]][n % 4]
            pool.use_cores(wanted)
            models.add(id(pool._loaded))
            assert (list(pool.cores), pool.workers) == (wanted, len(wanted))
            time.sleep(0.01)
        stop.set()
        assert min(each.result(60) for each in embedding) >= 1
    assert len(models) == 1
    pool.use_cores(every[:2])
    wait_for(lambda: pinned_cores(threads) == [[core] for core in every[:2]])


@with_two_cores
def test_workers_without_work_move_to_other_cores_at_once(open_pool: OpenPool, threads: Threads) -> None:
    every = available_cores()
    pool = open_pool(cores=every[:2])
    pool.use_cores(every[1:2])
    wait_for(lambda: pinned_cores(threads) == [[every[1]]])
    pool.use_cores(every[:2])
    wait_for(lambda: pinned_cores(threads) == [[every[0]], [every[1]]])


def test_core_that_is_not_there_changes_nothing(open_pool: OpenPool) -> None:
    pool = open_pool()
    with pytest.raises(BadSetting, match="may use only cores"):
        pool.use_cores([9_999])
    assert list(pool.cores) == available_cores()[:1]
    assert pool.embed(["a"], "query").shape == (1, 16)


def test_cores_chosen_before_the_model_is_there_count(open_pool: OpenPool, threads: Threads) -> None:
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


def test_model_is_loaded_on_the_cores_and_told_to_who_loads(open_pool: OpenPool) -> None:
    told, loaded_on = [], []

    def load() -> HashedWords:
        loaded_on.append(os.sched_getaffinity(0))
        return HashedWords()

    note = {"on_loaded": lambda model: told.append((type(model), threading.current_thread()))}
    pool = open_pool(load=load, model=note, cores=available_cores()[-1:])
    pool.load()
    assert told == [(HashedWords, threading.current_thread())]
    assert loaded_on == [{available_cores()[-1]}]


def test_gpu_has_one_worker_whatever_the_cores(open_pool: OpenPool, threads: Threads) -> None:
    pool = open_pool(model={"device": "cuda"}, cores=available_cores())
    assert (pool.device, pool.workers, len(threads.named("embed-"))) == ("cuda", 1, 1)
    assert pool.embed(["a"] * 50, "passage").shape == (50, 16)

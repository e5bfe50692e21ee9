import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel, available_cores, cores_for
from anamnesis_pipeline.errors import EmbeddingQueueFull, ModelLoading, UnknownModel
from anamnesis_tests.embeddings.fake_models import Gate, HashedWords

OpenPool = Callable[..., PinnedPool]


@pytest.fixture
def open_pool() -> Iterator[OpenPool]:
    """Opens pools of HashedWords, loaded unless told otherwise; closes them at the end."""
    opened: list[PinnedPool] = []

    def open_one(
        before: Callable[[int], object] = lambda texts: None,
        *,
        cores: list[int] | None = None,
        loaded: bool = True,
        **more: Any,
    ) -> PinnedPool:
        model = PoolModel("hashed", 16, lambda: HashedWords(16, before), query_prefix="query: ")
        opened.append(PinnedPool(model, cores or available_cores()[:1], **more))
        if loaded:
            opened[-1].load()
        return opened[-1]

    yield open_one
    for pool in opened:
        pool.close()


def test_vectors_come_back_in_the_order_of_the_texts(open_pool: OpenPool) -> None:
    texts = [("word " * (n * 7 % 40)) + str(n) for n in range(300)]
    whole = open_pool().embed(texts, "passage")
    assert whole.shape == (300, 16)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1.0, atol=1e-5)
    alone = open_pool()
    assert all(np.array_equal(whole[n], alone.embed([texts[n]], "passage")[0]) for n in (0, 150, 299))
    assert open_pool().embed([], "passage").shape == (0, 16)


def test_only_queries_get_the_query_prefix(open_pool: OpenPool) -> None:
    pool = open_pool()
    assert np.array_equal(pool.embed(["query: x"], "passage"), pool.embed(["x"], "query"))
    assert not np.array_equal(pool.embed(["x"], "passage"), pool.embed(["x"], "query"))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
def test_each_worker_is_pinned_to_its_own_core_and_nobody_else_is(open_pool: OpenPool) -> None:
    cores = available_cores()
    open_pool(cores=cores, niceness=5).embed(["wait until they run"] * 50, "passage")
    pinned, names = [], {}
    for tid in map(int, os.listdir("/proc/self/task")):
        with open(f"/proc/self/task/{tid}/comm", encoding="utf-8") as file:
            names[tid] = file.read().strip()
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("embed-")]
    for worker in workers:
        assert worker.native_id in names
        pinned += [os.sched_getaffinity(worker.native_id)]
        assert os.getpriority(os.PRIO_PROCESS, worker.native_id) == 5
    assert sorted(map(sorted, pinned)) == [[core] for core in cores]
    assert os.sched_getaffinity(0) == set(cores), "the caller keeps all its cores"
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == 0


@pytest.mark.parametrize(("percent", "wanted"), [(100, 4), (50, 2), (60, 2), (63, 3), (1, 1)])
def test_a_share_of_the_cores_is_at_least_one_and_never_more_than_there_are(percent: int, wanted: int) -> None:
    assert cores_for(percent, [4, 5, 6, 7]) == [4, 5, 6, 7][:wanted]


def test_a_query_overtakes_the_passages_that_wait(open_pool: OpenPool) -> None:
    gate, done = Gate(), []

    def before(texts: int) -> None:
        gate()
        done.append(texts)

    pool = open_pool(before)
    with ThreadPoolExecutor(2) as callers:
        passages = callers.submit(pool.embed, ["word " * 100] * 400, "passage")
        assert gate.reached.wait(5)
        query = callers.submit(pool.embed, ["which one"], "query")
        while pool.depth < 10:
            pass
        gate.opened.set()
        query.result(10)
        passages.result(10)
    assert done.index(1) == 1, "first the batch in hand, then the query, then the other passages"
    assert len(done) > 8


def test_a_batch_that_fails_fails_its_caller_only(open_pool: OpenPool) -> None:
    def before(texts: int) -> None:
        if texts == 3:
            raise MemoryError("no room for three")

    pool = open_pool(before)
    with pytest.raises(MemoryError, match="no room for three"):
        pool.embed(["a", "b", "c"], "passage")
    assert pool.embed(["a", "b"], "passage").shape == (2, 16)


def test_a_full_queue_is_refused_at_once_and_free_again_afterwards(open_pool: OpenPool) -> None:
    gate = Gate()
    pool = open_pool(gate, queue_max=1)
    with ThreadPoolExecutor(1) as caller:
        first = caller.submit(pool.embed, ["a"], "query")
        assert gate.reached.wait(5)
        with pytest.raises(EmbeddingQueueFull, match="1 calls wait"):
            pool.embed(["b"], "query")
        gate.opened.set()
        first.result(10)
    assert pool.embed(["b"], "query").shape == (1, 16)


def test_nothing_is_computed_before_the_model_is_there(open_pool: OpenPool) -> None:
    pool = open_pool(loaded=False)
    assert not pool.ready
    with pytest.raises(ModelLoading, match="hashed is still loading"):
        pool.embed(["a"], "query")
    pool.load()
    pool.load()
    assert pool.ready
    assert sum(thread.name == "embed-0" for thread in threading.enumerate()) == 1


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (UnknownModel("no such model; set ANAMNESIS_MODEL"), "no such model; set"),
        (MemoryError("2 GB"), "MemoryError: 2"),
    ],
)
def test_a_model_that_does_not_load_says_why_to_everyone(problem: Exception, said: str) -> None:
    calls = []

    def load() -> HashedWords:
        calls.append(1)
        raise problem

    pool = PinnedPool(PoolModel("m", 16, load), available_cores()[:1])
    for _ in range(2):
        with pytest.raises(UnknownModel, match=said):
            pool.load()
    with pytest.raises(UnknownModel, match=said):
        pool.embed(["a"], "query")
    assert pool.failure is not None
    assert said in pool.failure
    assert calls == [1], "a model that does not load is not tried again"


def test_closing_while_busy_finishes_what_was_asked_and_refuses_what_comes_later(open_pool: OpenPool) -> None:
    gate = Gate()
    pool = open_pool(gate)
    with ThreadPoolExecutor(3) as callers:
        running = callers.submit(pool.embed, ["word " * 100] * 200, "passage")
        assert gate.reached.wait(5)
        closing = callers.submit(pool.close)
        while pool.ready:
            pass
        with pytest.raises(ModelLoading, match="was unloaded"):
            pool.embed(["late"], "query")
        gate.opened.set()
        assert running.result(10).shape == (200, 16)
        closing.result(10)
    pool.close()
    assert not any(thread.name == "embed-0" for thread in threading.enumerate())


def test_many_callers_while_it_closes_get_a_vector_or_are_told_to_try_again(open_pool: OpenPool) -> None:
    expected = HashedWords(16).forward(HashedWords(16).token_ids(["one two"]))[0]
    for _ in range(20):
        pool = open_pool(cores=available_cores())
        outcomes: list[str] = []

        def ask(pool: PinnedPool = pool, outcomes: list[str] = outcomes) -> None:
            try:
                assert np.allclose(pool.embed(["one two"], "passage")[0], expected)
                outcomes.append("answered")
            except ModelLoading:
                outcomes.append("later")

        askers = [threading.Thread(target=ask) for _ in range(8)]
        for n, asker in enumerate(askers):
            asker.start()
            if n == 4:
                pool.close()
        for asker in askers:
            asker.join(5)
        assert len(outcomes) == 8, "nobody waits for ever"


def test_a_pool_closed_while_its_model_loads_starts_no_workers() -> None:
    gate = Gate()

    def load() -> HashedWords:
        gate()
        return HashedWords()

    pool = PinnedPool(PoolModel("m", 16, load), available_cores()[:1])
    pool.load_in_background()
    assert gate.reached.wait(5)
    pool.close()
    gate.opened.set()
    pool.load()
    assert not pool.ready
    assert not any(thread.name == "embed-0" for thread in threading.enumerate())

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.cores import Priority, available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.errors import BadSetting, EmbeddingQueueFull, InvalidVectors, ModelLoading, UnknownModel
from anamnesis_tests.embeddings.fake_models import Gate, HashedWords

OpenPool = Callable[..., PinnedPool]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("embed-")]


def pinned_cores() -> list[list[int]]:
    return sorted(sorted(os.sched_getaffinity(worker.native_id or 0)) for worker in workers())


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
    open_pool(cores=cores, priority=Priority.LIVE).embed(["wait until they run"] * 50, "passage")
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


def test_queries_that_wait_together_are_one_batch(open_pool: OpenPool) -> None:
    gate, done = Gate(), []

    def before(texts: int) -> None:
        gate()
        done.append(texts)

    pool = open_pool(before)
    questions = [f"question {n}" for n in range(12)]
    with ThreadPoolExecutor(13) as callers:
        first = callers.submit(pool.embed, ["word " * 100] * 20, "passage")
        assert gate.reached.wait(5)
        answers = [callers.submit(pool.embed, [question], "query") for question in questions]
        wait_for(lambda: pool.depth >= 12)
        gate.opened.set()
        found = [answer.result(10)[0] for answer in answers]
        first.result(10)
    assert done[1] == 12, "one forward pass right after the batch in hand"
    assert done.count(12) == 1
    assert all(np.array_equal(f, pool.embed([q], "query")[0]) for f, q in zip(found, questions, strict=True))


def test_very_long_queries_are_not_all_taken_at_once(open_pool: OpenPool) -> None:
    gate, done = Gate(), []

    def before(texts: int) -> None:
        gate()
        done.append(texts)

    pool = open_pool(before)
    with ThreadPoolExecutor(4) as callers:
        first = callers.submit(pool.embed, ["hold"], "query")
        assert gate.reached.wait(5)
        long = [callers.submit(pool.embed, ["x" * 5_000], "query") for _ in range(3)]
        wait_for(lambda: pool.depth == 3)
        gate.opened.set()
        assert [answer.result(10).shape for answer in (first, *long)] == [(1, 16)] * 4
    assert done == [1, 1, 1, 1]


def test_a_bad_query_fails_its_own_caller_only(open_pool: OpenPool) -> None:
    gate = Gate()
    pool = open_pool(gate)
    with ThreadPoolExecutor(3) as callers:
        first = callers.submit(pool.embed, ["hold"], "query")
        assert gate.reached.wait(5)
        good = callers.submit(pool.embed, ["fine"], "query")
        bad = callers.submit(pool.embed, ["\ud800"], "query")
        wait_for(lambda: pool.depth == 2)
        gate.opened.set()
        assert first.result(10).shape == good.result(10).shape == (1, 16)
        with pytest.raises(UnicodeEncodeError):
            bad.result(10)


@pytest.mark.parametrize("role", ["query", "passage"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_vectors_that_are_no_directions_are_not_returned(role: Role, value: float) -> None:
    class Broken(HashedWords):
        precision, fidelity = "bf16", 0.9999

        def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
            vectors = super().forward(batch)
            vectors[-1] = value
            return vectors

    pool = PinnedPool(PoolModel("acme/broken", 16, Broken), available_cores()[:1])
    pool.load()
    try:
        with pytest.raises(InvalidVectors, match="acme/broken in bf16 made 1 of"):
            pool.embed(["a", "b c"], role)
    finally:
        pool.close()


@pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")
def test_other_cores_are_taken_while_work_goes_on_and_none_of_it_is_lost(open_pool: OpenPool) -> None:
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
        caller.join(10)
        assert not caller.is_alive(), "work was lost"
    assert (problems, len(models)) == ([], 1)
    assert len(done) >= 3
    pool.use_cores(every[:2])
    wait_for(lambda: pinned_cores() == [[core] for core in every[:2]])


@pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")
def test_workers_without_work_move_to_other_cores_at_once(open_pool: OpenPool) -> None:
    every = available_cores()
    pool = open_pool(cores=every[:2])
    pool.use_cores(every[1:2])
    wait_for(lambda: pinned_cores() == [[every[1]]])
    pool.use_cores(every[:2])
    wait_for(lambda: pinned_cores() == [[every[0]], [every[1]]])


def test_a_core_that_is_not_there_changes_nothing(open_pool: OpenPool) -> None:
    pool = open_pool()
    with pytest.raises(BadSetting, match="may use only cores"):
        pool.use_cores([9_999])
    assert list(pool.cores) == available_cores()[:1]
    assert pool.embed(["a"], "query").shape == (1, 16)


def test_cores_chosen_before_the_model_is_there_count_from_its_start(open_pool: OpenPool) -> None:
    pool = open_pool(cores=available_cores(), loaded=False)
    pool.use_cores(available_cores()[-1:])
    assert pool.workers == 0
    pool.load()
    assert pool.workers == 1
    wait_for(lambda: pinned_cores() == [available_cores()[-1:]])


def test_closing_while_cores_change_leaves_no_caller_waiting(open_pool: OpenPool) -> None:
    every = available_cores()
    for _ in range(20):
        pool = open_pool(cores=every)
        with ThreadPoolExecutor(2) as callers:
            embedding = callers.submit(pool.embed, ["some words"] * 200, "passage")
            moving = callers.submit(pool.use_cores, every[:1])
            pool.close()
            moving.result(10)
            with suppress(ModelLoading):  # closed before it was asked
                assert embedding.result(10).shape == (200, 16)
    wait_for(lambda: not workers())


def test_background_workers_let_everyone_else_go_first(open_pool: OpenPool) -> None:
    open_pool(priority=Priority.BACKGROUND).embed(["wait until it runs"], "passage")
    (worker,) = workers()
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


def test_a_gpu_has_one_worker_whatever_the_cores() -> None:
    pool = PinnedPool(PoolModel("m", 16, HashedWords, device="cuda"), available_cores())
    pool.load()
    try:
        assert (pool.device, pool.workers, len(workers())) == ("cuda", 1, 1)
        assert pool.embed(["a"] * 50, "passage").shape == (50, 16)
    finally:
        pool.close()


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

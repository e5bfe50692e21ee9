"""What a pool answers, in which order, and whom a failure concerns."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.errors import EmbeddingQueueFull, InvalidVectors, ModelLoading, UnknownModel
from anamnesis_tests.embeddings.fake_models import Gate, HashedWords, OpenPool, Threads, wait_for


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


def test_a_query_overtakes_the_passages_that_wait(open_pool: OpenPool) -> None:
    gate, done = Gate(), []

    def before(texts: int) -> None:
        gate()
        done.append(texts)

    pool = open_pool(before)
    with ThreadPoolExecutor(2) as callers:
        passages = callers.submit(pool.embed, ["word " * 100] * 400, "passage")
        assert gate.reached.wait(60)
        waiting = pool.depth  # which stays so: the only worker stands at the gate
        query = callers.submit(pool.embed, ["which one"], "query")
        wait_for(lambda: pool.depth == waiting + 1)
        gate.opened.set()
        query.result(60)
        passages.result(60)
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
        assert gate.reached.wait(60)
        waiting = pool.depth
        answers = [callers.submit(pool.embed, [question], "query") for question in questions]
        wait_for(lambda: pool.depth == waiting + 12)
        gate.opened.set()
        found = [answer.result(60)[0] for answer in answers]
        first.result(60)
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
        assert gate.reached.wait(60)
        long = [callers.submit(pool.embed, ["x" * 5_000], "query") for _ in range(3)]
        wait_for(lambda: pool.depth == 3)
        gate.opened.set()
        assert [answer.result(60).shape for answer in (first, *long)] == [(1, 16)] * 4
    assert done == [1, 1, 1, 1]


def test_a_bad_query_fails_its_own_caller_only(open_pool: OpenPool) -> None:
    gate = Gate()
    pool = open_pool(gate)
    with ThreadPoolExecutor(3) as callers:
        first = callers.submit(pool.embed, ["hold"], "query")
        assert gate.reached.wait(60)
        good = callers.submit(pool.embed, ["fine"], "query")
        bad = callers.submit(pool.embed, ["\ud800"], "query")
        wait_for(lambda: pool.depth == 2)
        gate.opened.set()
        assert first.result(60).shape == good.result(60).shape == (1, 16)
        with pytest.raises(UnicodeEncodeError):
            bad.result(60)


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


def test_a_full_queue_is_refused_at_once_and_free_again_afterwards(open_pool: OpenPool) -> None:
    gate = Gate()
    pool = open_pool(gate, queue_max=1)
    with ThreadPoolExecutor(1) as caller:
        first = caller.submit(pool.embed, ["a"], "query")
        assert gate.reached.wait(60)
        with pytest.raises(EmbeddingQueueFull, match="1 calls wait"):
            pool.embed(["b"], "query")
        gate.opened.set()
        first.result(60)
    assert pool.embed(["b"], "query").shape == (1, 16)


def test_nothing_is_computed_before_the_model_is_there(open_pool: OpenPool, threads: Threads) -> None:
    pool = open_pool(loaded=False)
    assert not pool.ready
    with pytest.raises(ModelLoading, match="hashed is still loading"):
        pool.embed(["a"], "query")
    pool.load()
    pool.load()
    assert pool.ready
    assert len(threads.named("embed-")) == 1


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


def test_closing_while_busy_finishes_what_was_asked_and_refuses_what_comes_later(
    open_pool: OpenPool, threads: Threads
) -> None:
    gate = Gate()
    pool = open_pool(gate)
    with ThreadPoolExecutor(3) as callers:
        running = callers.submit(pool.embed, ["word " * 100] * 200, "passage")
        assert gate.reached.wait(60)
        closing = callers.submit(pool.close)
        wait_for(lambda: not pool.ready)
        with pytest.raises(ModelLoading, match="was unloaded"):
            pool.embed(["late"], "query")
        gate.opened.set()
        assert running.result(60).shape == (200, 16)
        closing.result(60)
    pool.close()
    wait_for(lambda: not threads.named("embed-"))


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
            asker.join(60)
        assert len(outcomes) == 8, "nobody waits for ever"


def test_a_pool_closed_while_its_model_loads_starts_no_workers(threads: Threads) -> None:
    gate = Gate()

    def load() -> HashedWords:
        gate()
        return HashedWords()

    pool = PinnedPool(PoolModel("m", 16, load), available_cores()[:1])
    pool.load_in_background()
    assert gate.reached.wait(60)
    pool.close()
    gate.opened.set()
    pool.load()
    assert not pool.ready
    assert not threads.named("embed-")

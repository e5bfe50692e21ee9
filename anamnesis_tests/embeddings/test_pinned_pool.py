"""What a pool answers, in which order, and whom a failure concerns."""

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.errors import EmbeddingQueueFull, InvalidVectors, ModelLoading, UnknownModel
from anamnesis_tests.support.fake_models import Gate, HashedWords, OpenPool, Threads, embed_behind, wait_for


def test_vectors_come_back_in_the_order_of_the_texts(open_pool: OpenPool) -> None:
    texts = [("word " * (n * 7 % 40)) + str(n) for n in range(300)]
    whole, alone = open_pool().embed(texts, "passage"), open_pool()
    assert whole.shape == (300, 16)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1.0, atol=1e-5)
    assert all(np.array_equal(whole[n], alone.embed([texts[n]], "passage")[0]) for n in (0, 150, 299))
    assert alone.embed([], "passage").shape == (0, 16)


def test_only_queries_get_the_query_prefix(open_pool: OpenPool) -> None:
    pool = open_pool()
    assert np.array_equal(pool.embed(["query: x"], "passage"), pool.embed(["x"], "query"))
    assert not np.array_equal(pool.embed(["x"], "passage"), pool.embed(["x"], "query"))


def test_query_overtakes_the_passages_that_wait(open_pool: OpenPool) -> None:
    gate = Gate()
    embed_behind(open_pool(gate), gate, (["word " * 100] * 400, "passage"), (["which one"], "query"))
    assert gate.passed.index(1) == 1, "first the batch in hand, then the query, then the other passages"
    assert len(gate.passed) > 8


def test_batch_that_fails_fails_its_caller_only(open_pool: OpenPool) -> None:
    def before(texts: int) -> None:
        if texts == 3:
            raise MemoryError("no room for three")

    pool = open_pool(before)
    with pytest.raises(MemoryError, match="no room for three"):
        pool.embed(["a", "b", "c"], "passage")
    assert pool.embed(["a", "b"], "passage").shape == (2, 16)


def test_queries_that_wait_together_are_one_batch(open_pool: OpenPool) -> None:
    gate = Gate()
    pool, queries = open_pool(gate), [[f"question {n}"] for n in range(12)]
    *answers, _ = embed_behind(pool, gate, (["word " * 100] * 20, "passage"), *((query, "query") for query in queries))
    assert gate.passed[1] == 12, "one forward pass right after the batch in hand"
    assert gate.passed.count(12) == 1
    for query, answer in zip(queries, answers, strict=True):
        assert np.array_equal(answer.result(), pool.embed(query, "query"))


def test_very_long_queries_are_not_all_taken_at_once(open_pool: OpenPool) -> None:
    gate = Gate()
    answers = embed_behind(open_pool(gate), gate, (["hold"], "query"), *[(["x" * 5_000], "query")] * 3)
    assert [answer.result().shape for answer in answers] == [(1, 16)] * 4
    assert gate.passed == [1, 1, 1, 1]


def test_bad_query_fails_its_own_caller_only(open_pool: OpenPool) -> None:
    gate = Gate()
    good, bad, first = embed_behind(
        open_pool(gate), gate, (["hold"], "query"), (["fine"], "query"), (["\ud800"], "query")
    )
    assert first.result().shape == good.result().shape == (1, 16)
    assert isinstance(bad.exception(), UnicodeEncodeError)


@pytest.mark.parametrize("role", ["query", "passage"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_vectors_that_are_no_directions_are_not_returned(open_pool: OpenPool, role: Role, value: float) -> None:
    class Broken(HashedWords):
        precision, fidelity = "bf16", 0.9999

        def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
            vectors = super().forward(batch)
            vectors[-1] = value
            return vectors

    with pytest.raises(InvalidVectors, match="hashed in bf16 made 1 of"):
        open_pool(load=Broken).embed(["a", "b c"], role)


def test_full_queue_is_refused_at_once_and_free_again_afterwards(open_pool: OpenPool) -> None:
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
def test_model_that_does_not_load_says_why_to_everyone(open_pool: OpenPool, problem: Exception, said: str) -> None:
    calls = []

    def load() -> HashedWords:
        calls.append(1)
        raise problem

    pool = open_pool(load=load, loaded=False)
    for ask in (pool.load, pool.load, lambda: pool.embed(["a"], "query")):
        with pytest.raises(UnknownModel, match=said):
            ask()
    assert said in str(pool.failure)
    assert calls == [1], "a model that does not load is not tried again"


def test_closing_finishes_what_was_asked_and_refuses_the_rest(open_pool: OpenPool, threads: Threads) -> None:
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


def test_callers_while_it_closes_get_a_vector_or_try_again(open_pool: OpenPool) -> None:
    expected = HashedWords(16).forward(HashedWords(16).token_ids(["one two"]))[0]
    for _ in range(20):
        pool = open_pool(cores=available_cores())
        with ThreadPoolExecutor(8) as askers:
            asked = [askers.submit(pool.embed, ["one two"], "passage") for _ in range(5)]
            pool.close()
            asked += [askers.submit(pool.embed, ["one two"], "passage") for _ in range(3)]
            for each in asked:
                if isinstance(each.exception(60), ModelLoading):
                    continue
                assert np.allclose(each.result()[0], expected)


def test_pool_closed_while_its_model_loads_starts_no_workers(open_pool: OpenPool, threads: Threads) -> None:
    gate = Gate()

    def load() -> HashedWords:
        gate()
        return HashedWords()

    pool = open_pool(load=load, loaded=False)
    pool.load_in_background()
    assert gate.reached.wait(60)
    pool.close()
    gate.opened.set()
    pool.load()
    assert not pool.ready
    assert not threads.named("embed-")


def test_batches_that_nobody_waits_for_are_not_computed(open_pool: OpenPool) -> None:
    class ToldToStop(BaseException):
        """What a run's signal handler raises."""

    def stop(*_: object) -> None:
        raise ToldToStop

    def interrupt() -> None:
        gate.reached.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    gate, before = Gate(), signal.signal(signal.SIGUSR1, stop)
    pool = open_pool(gate)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(ToldToStop):
            pool.embed(["word " * 100] * 400, "passage")
        interrupter.join()
        assert pool.depth > 5
    finally:
        gate.opened.set()
        pool.close()
        signal.signal(signal.SIGUSR1, before)
    assert len(gate.passed) == 1, "only the one in hand"

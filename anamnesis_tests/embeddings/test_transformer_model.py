"""The real MiniLM in the pool, loaded once for all tests here."""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.models import MINILM, find_model
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel, available_cores

TEXTS = [
    "why did webhook retries double-charge", "We moved the queue to Postgres.", "ok", "def pay(): return 1",
    "日本語のテキスト", "👩‍💻 emoji", "0123456789abcdef" * 30, "a much longer text " * 60,
    *(f"line {n}: " + "some words " * (n % 30) for n in range(60)),
]  # fmt: skip


class Observed:
    """A TransformerModel that notes, for every batch, how many threads computed it and on which cores."""

    def __init__(self) -> None:
        from anamnesis_pipeline.embeddings.transformer_model import TransformerModel

        self.model = TransformerModel(find_model(MINILM), "bf16")
        self.seen: list[tuple[int, frozenset[int]]] = []

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self.model.token_ids(texts)

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        import torch

        self.seen.append((torch.get_num_threads(), frozenset(os.sched_getaffinity(0))))
        return self.model.forward(batch)


def one_thread() -> None:
    from anamnesis_pipeline.embeddings.transformer_model import use_one_thread

    use_one_thread()


@pytest.fixture(scope="module")
def observed() -> Observed:
    return Observed()


@pytest.fixture(scope="module")
def pool(observed: Observed) -> Iterator[PinnedPool]:
    pool = PinnedPool(PoolModel(MINILM, 384, lambda: observed, one_thread), available_cores())
    pool.load()
    yield pool
    pool.close()


def test_vectors_equal_those_of_sentence_transformers(pool: PinnedPool) -> None:
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(find_model(MINILM).path), device="cpu", local_files_only=True)
    expected = plain.encode(TEXTS, normalize_embeddings=True, convert_to_numpy=True)
    ours = pool.embed(TEXTS, "passage")
    assert np.allclose(np.linalg.norm(ours, axis=1), 1.0, atol=1e-5)
    assert float(np.min(np.sum(ours * expected, axis=1))) >= 0.998


def test_a_text_has_the_same_vector_whatever_it_is_batched_with(pool: PinnedPool) -> None:
    together = pool.embed(TEXTS, "passage")
    for number in (0, 2, 4, 7, 40):
        alone = pool.embed([TEXTS[number]], "query")[0]
        assert float(alone @ together[number]) > 0.999


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
def test_each_worker_computes_alone_on_its_own_core(pool: PinnedPool, observed: Observed) -> None:
    observed.seen.clear()
    pool.embed(TEXTS * 2, "passage")
    assert {threads for threads, _ in observed.seen} == {1}
    assert {cores for _, cores in observed.seen} <= {frozenset({core}) for core in available_cores()}


def test_a_batch_computes_on_no_more_threads_than_there_are_cores(pool: PinnedPool) -> None:
    before = cpu_ticks()
    pool.embed(TEXTS * 6, "passage")
    busy = [tid for tid, ticks in cpu_ticks().items() if ticks - before.get(tid, 0) > 5]
    assert 1 <= len(busy) <= len(available_cores()) + 1, "the workers, and the caller that makes word pieces"


def cpu_ticks() -> dict[int, int]:
    """Thread -> user time in clock ticks, of this process."""
    found = {}
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/stat", encoding="utf-8") as file:
            found[int(tid)] = int(file.read().rsplit(")", 1)[1].split()[11])
    return found

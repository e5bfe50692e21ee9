"""The real MiniLM in the pool, loaded once for all tests here."""

import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.models import MINILM, find_model
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel

TEXTS = [
    "why did webhook retries double-charge",
    "We moved the queue to Postgres.",
    "ok",
    "def pay(): return 1",
    "日本語のテキスト",
    "👩‍💻 emoji",
    "0123456789abcdef" * 30,
    "a much longer text " * 60,
    *(f"line {n}: " + "some words " * (n % 30) for n in range(60)),
]


class Observed:
    """A TransformerModel that notes, for every batch, how many threads computed it and on which cores."""

    def __init__(self) -> None:
        from anamnesis_pipeline.embeddings.transformer_model import TransformerModel

        self.model = TransformerModel(find_model(MINILM), "bf16")
        self.precision, self.fidelity = self.model.precision, self.model.fidelity
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
    before = cpu_ticks()
    pool.embed(TEXTS * 2, "passage")
    busy = [tid for tid, ticks in cpu_ticks().items() if ticks - before.get(tid, 0) > 5]
    assert 1 <= len(busy) <= len(available_cores())
    assert {threads for threads, _ in observed.seen} == {1}
    assert {cores for _, cores in observed.seen} <= {frozenset({core}) for core in available_cores()}


@pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")
def test_with_one_core_set_nothing_embeds_on_another(pool: PinnedPool) -> None:
    core = available_cores()[-1]
    pool.use_cores([core])
    pool.embed(["the worker starts"], "passage")
    before = cpu_ticks()
    pool.embed(TEXTS, "passage")
    pool.embed(["and a question"], "query")
    busy = {tid for tid, ticks in cpu_ticks().items() if ticks - before.get(tid, 0) > 2}
    pool.use_cores(available_cores())
    assert {frozenset(os.sched_getaffinity(tid)) for tid in busy} <= {frozenset({core})}, "word pieces are work, too"
    (worker,) = [tid for tid in busy if os.sched_getaffinity(tid)]
    assert worker != os.getpid()


def test_word_pieces_are_made_on_the_calling_thread_alone(observed: Observed) -> None:
    before = cpu_ticks()
    observed.token_ids(TEXTS * 80)
    busy = {tid for tid, ticks in cpu_ticks().items() if ticks - before.get(tid, 0) > 2}
    assert busy == {threading.get_native_id()}


def test_threads_stay_as_many_as_there_were(pool: PinnedPool) -> None:
    short = [f"text {n} of very many" for n in range(60)]
    pool.embed(short, "passage")
    before = set(os.listdir("/proc/self/task"))
    for _ in range(3):
        pool.embed(short, "passage")
    assert set(os.listdir("/proc/self/task")) == before


def test_a_text_longer_than_the_window_is_embedded_to_its_end(observed: Observed, pool: PinnedPool) -> None:
    start = "we moved the queue to Postgres and wrote down why. " * 60
    one, other = pool.embed([start + "zeppelin hangar " * 150, start + "database locked " * 150], "passage")
    assert len(observed.token_ids([start])[0]) > 2 * observed.model.files.window
    assert float(one @ other) < 0.97, "the difference lies beyond the first window"
    short = pool.embed([start], "passage")[0]
    assert float(np.linalg.norm(one)) == pytest.approx(1, abs=1e-5)
    assert float(one @ short) > float(one @ pool.embed(["ok"], "passage")[0])


def test_the_vector_of_a_long_text_is_the_mean_of_its_windows(observed: Observed) -> None:
    model, body = observed.model, observed.token_ids(["a much longer text " * 200])[0][1:-1]
    lead, tail = observed.token_ids([""])[0]
    windows = [[lead, *body[first : first + 254], tail] for first in range(0, len(body), 254)]
    parts = np.stack([model.forward([window])[0] for window in windows])
    mean = (parts * np.array([[len(window)] for window in windows])).sum(axis=0)
    whole = model.forward([[lead, *body, tail], [lead, *body[:5], tail]])[0]
    assert len(windows) == 4
    assert float(whole @ mean / np.linalg.norm(mean)) > 0.9999


def cpu_ticks() -> dict[int, int]:
    """Thread -> user time in clock ticks, of this process."""
    found = {}
    for tid in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{tid}/stat", encoding="utf-8") as file:
            found[int(tid)] = int(file.read().rsplit(")", 1)[1].split()[11])
    return found

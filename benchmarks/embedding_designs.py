"""The ways to embed that embedding.py compares, and the matrix products it holds them against."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertConfig, BertModel

from anamnesis_pipeline.embeddings.batching import length_sorted_batches
from anamnesis_pipeline.embeddings.cores import pin_this_thread
from anamnesis_pipeline.embeddings.models import MINILM, find_model

BATCH_TEXTS = 16
BATCH_TOKENS = 2048
SQUARE = 2048

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """What decides how many operations a text costs."""

    hidden: int
    intermediate: int
    layers: int

    def operations(self, pieces: int) -> float:
        """Multiplications and additions of the matrix products that one text of so many pieces needs."""
        linear = 2 * pieces * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)
        return float(self.layers * (linear + 4 * pieces**2 * self.hidden))

    def products(self) -> list[tuple[int, int, int]]:
        """(inner, outer, how many) of the linear layers of one layer."""
        return [(self.hidden, self.hidden, 4), (self.hidden, self.intermediate, 1), (self.intermediate, self.hidden, 1)]


def on_cores(cores: Sequence[int], threads_each: int, work: Callable[[int], object]) -> float:
    """Seconds until `work(i)` is done on one thread for each core, pinned unless it computes with several."""
    started = threading.Barrier(len(cores) + 1)

    def run(number: int) -> None:
        if threads_each == 1:
            pin_this_thread({cores[number]})
        torch.set_num_threads(threads_each)
        started.wait()
        work(number)

    workers = [threading.Thread(target=run, args=(number,)) for number in range(len(cores))]
    for worker in workers:
        worker.start()
    started.wait()
    begun = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begun


def encode(
    model: SentenceTransformer,
    texts: Sequence[str],
    batches: Sequence[Sequence[int]],
    cores: Sequence[int],
    threads_each: int = 1,
) -> tuple[float, Vectors]:
    """Seconds and vectors when workers take batch after batch and call `SentenceTransformer.encode` with each."""
    queue: SimpleQueue[Sequence[int]] = SimpleQueue()
    for batch in batches:
        queue.put(batch)
    vectors = np.empty((len(texts), model.get_sentence_embedding_dimension() or 0), dtype=np.float32)

    def work(_: int) -> None:
        while True:
            try:
                batch = queue.get_nowait()
            except Empty:
                return
            made = model.encode(
                [texts[i] for i in batch], batch_size=len(batch), normalize_embeddings=True, convert_to_tensor=True,
                show_progress_bar=False,
            )  # fmt: skip
            vectors[batch] = made.float().numpy()

    return on_cores(cores, threads_each, work), vectors


def one_by_one(texts: Sequence[str]) -> list[list[int]]:
    """One text a call."""
    return [[number] for number in range(len(texts))]


def as_they_come(texts: Sequence[str]) -> list[list[int]]:
    """Sixteen texts a call, in the order given."""
    return [list(range(first, min(first + BATCH_TEXTS, len(texts)))) for first in range(0, len(texts), BATCH_TEXTS)]


def sorted_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Sixteen texts a call, of similar length."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [order[first : first + BATCH_TEXTS] for first in range(0, len(order), BATCH_TEXTS)]


def by_tokens(lengths: Sequence[int]) -> list[list[int]]:
    """As the pool cuts them."""
    return length_sorted_batches(lengths, BATCH_TOKENS)


def product_rates(shape: Shape, dtype: torch.dtype, cores: Sequence[int], seconds: float = 0.4) -> tuple[float, float]:
    """GFLOP/s of `torch.mm` at the model's own shapes, weighted as it uses them, and of a large square one."""
    own = [(inner, outer) for inner, outer, times in shape.products() for _ in range(times)]
    return (
        _rate([(BATCH_TOKENS, inner, outer) for inner, outer in own], dtype, cores, seconds),
        _rate([(SQUARE, SQUARE, SQUARE)], dtype, cores, seconds),
    )


def _rate(shapes: Sequence[tuple[int, int, int]], dtype: torch.dtype, cores: Sequence[int], seconds: float) -> float:
    done = [0.0] * len(cores)

    def work(number: int) -> None:
        pairs = [
            (torch.randn(rows, inner).to(dtype), torch.randn(inner, outer).to(dtype)) for rows, inner, outer in shapes
        ]
        for left, right in pairs:
            torch.mm(left, right)
        begun, operations = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            for (left, right), (rows, inner, outer) in zip(pairs, shapes, strict=True):
                torch.mm(left, right)
                operations += 2 * rows * inner * outer
        done[number] = operations / (time.perf_counter() - begun) / 1e9

    on_cores(cores, 1, work)
    return sum(done)


def random_bert(folder: Path, shape: Shape) -> Path:
    """A model of this shape with random weights."""
    from sentence_transformers.models import Pooling, Transformer  # noqa: PLC0415 - version 6 warns of this name

    tokenizer = AutoTokenizer.from_pretrained(find_model(MINILM).path)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=shape.hidden // 64, intermediate_size=shape.intermediate,
    )  # fmt: skip
    BertModel(config).to(torch.bfloat16).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=512), Pooling(shape.hidden)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return folder / "model"

"""The ways to embed that embedding.py compares, and the matrix products it holds them against."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from anamnesis_pipeline.embeddings.batching import length_sorted_batches
from anamnesis_pipeline.embeddings.cores import pin_this_thread

BATCH_TEXTS = 16
BATCH_TOKENS = 2048
SQUARE = 2048

Vectors = NDArray[np.float32]


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
                [texts[i] for i in batch],
                batch_size=len(batch),
                normalize_embeddings=True,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
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


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print in Markdown."""
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    sys.stdout.flush()

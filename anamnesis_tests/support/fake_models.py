"""Small deterministic models for the pool: a word is a piece, vectors come from hashing."""

import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.embeddings.token_vectors import Projection, Rows, project
from anamnesis_tests.support.hashing_embedder import HashingEmbedder, word_directions

OpenPool = Callable[..., PinnedPool]


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


class Threads:
    """Those started since; a process of tests may hold pools of others, which live as long as it does."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def named(self, start: str) -> list[threading.Thread]:
        """Whose name starts so."""
        return [each for each in threading.enumerate() if each.name.startswith(start) and each not in self._before]


class HashedWords:
    """`before` runs in the worker ahead of every batch, with the number of texts in it."""

    precision, fidelity = "fp32", None

    def __init__(self, dim: int = 16, before: Callable[[int], object] = lambda texts: None) -> None:
        self._embedder = HashingEmbedder(dim)
        self._before = before

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [[zlib.crc32(word.encode()) for word in text.split()] for text in texts]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        self._before(len(batch))
        return self._embedder.embed([" ".join(map(str, ids)) for ids in batch], "passage")

    def forward_with_tokens(
        self, batch: Sequence[Sequence[int]], projection: Projection | None
    ) -> tuple[NDArray[np.float32], list[Rows]]:
        rows = [word_directions(" ".join(map(str, ids)), 32) for ids in batch]
        return self.forward(batch), rows if projection is None else [project(found, projection) for found in rows]


class Gate:
    """Holds whoever passes it until it is opened, and tells when somebody stands there."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed: list[object] = []
        """What each came with, in order."""

    def __call__(self, *came_with: object) -> None:
        self.reached.set()
        assert self.opened.wait(60)
        self.passed += came_with


def embed_behind(
    pool: PinnedPool, gate: Gate, first: tuple[list[str], Role], *others: tuple[list[str], Role]
) -> list[Future[NDArray[np.float32]]]:
    """Calls of `embed`, all done: of `others`, which wait together while the only worker stands at the gate with the
    first batch of `first`, and then that.
    """
    with ThreadPoolExecutor(1 + len(others)) as callers:
        held = callers.submit(pool.embed, *first)
        assert gate.reached.wait(60)
        waiting = pool.depth  # which stays so
        asked = [callers.submit(pool.embed, *each) for each in others]
        wait_for(lambda: pool.depth == waiting + len(others))
        gate.opened.set()
    return [*asked, held]

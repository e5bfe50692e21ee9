"""Rerank passages with a cross-encoder, on a thread pinned to the cores of embedding.

A cross-encoder reads question and passage together. It is optional, and a search never waits long for it: while the
model loads, does not load, or is slow, `scores` raises, and the search keeps its order.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.cores import pin_this_thread
from anamnesis_pipeline.errors import AnamnesisError, ModelLoading, RerankerSlow, UnknownModel

MAX_WAIT_S = 2.0
"""Limit of a search's wait."""
RETRY_S = 300.0
"""Seconds from a failure to load to the next attempt, which a search then starts."""

log = logging.getLogger(__name__)


class CrossEncoding(Protocol):
    """A cross-encoder in memory. One thread calls it."""

    def scores(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers, shape (len(texts),); only comparable within a call."""


class Reranker:
    """Scores passages with one cross-encoder. Thread-safe."""

    def __init__(
        self,
        model_id: str,
        load: Callable[[], CrossEncoding],
        cores: Callable[[], Sequence[int]],
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        """:param load: loads the model on the pinned thread; may take a download.
        :param cores: reads the configured cores, before loading and before each call.
        """
        self._model_id = model_id
        self._load = load
        self._cores = cores
        self._max_wait_s = max_wait_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank")
        self._lock = threading.Lock()
        self._model: Future[CrossEncoding] | None = None
        self._failed_at = 0.0
        self._behind: Future[NDArray[np.float32]] | None = None

    def load_in_background(self) -> None:
        """Start loading, unless the model is loading, is loaded, or failed less than `RETRY_S` ago."""
        with self._lock:
            failed = self._model is not None and self._model.done() and self._model.exception() is not None
            if self._model is None or (failed and time.monotonic() - self._failed_at >= RETRY_S):
                self._model = self._thread.submit(self._loaded)

    def _loaded(self) -> CrossEncoding:
        try:
            pin_this_thread(self._cores())
            return self._load()
        except Exception as exc:
            self._failed_at = time.monotonic()
            known = isinstance(exc, AnamnesisError)
            problem = str(exc) if known else f"{self._model_id} does not load: {type(exc).__name__}: {exc}"
            log.error("reranker: %s", problem)  # noqa: TRY400 - the text says it all
            raise UnknownModel(problem) from exc

    def scores(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return how well each text answers, shape (len(texts),).

        :raises ModelLoading: the model is still loading.
        :raises RerankerSlow: it takes longer than `max_wait_s`, or still works for a search that stopped waiting.
        :raises UnknownModel: it does not load, or fails.
        """
        self.load_in_background()
        if self._model is None or not self._model.done():
            raise ModelLoading(f"{self._model_id} is still loading")
        model = self._model.result()
        if self._behind is not None and not self._behind.done():
            raise RerankerSlow(f"{self._model_id} still reads the passages of an earlier question")
        scored = self._thread.submit(self._scored, model, question, texts)
        try:
            return scored.result(self._max_wait_s)
        except TimeoutError as exc:
            if not scored.cancel():
                self._behind = scored
            raise RerankerSlow(f"{self._model_id} takes longer than {self._max_wait_s:g} s") from exc

    def _scored(self, model: CrossEncoding, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        pin_this_thread(self._cores())
        try:
            return model.scores(question, texts)
        except Exception as exc:
            raise UnknownModel(f"{self._model_id} fails: {type(exc).__name__}: {exc}") from exc

    def close(self) -> None:
        """Drop waiting work and end the thread after the current batch."""
        self._thread.shutdown(wait=False, cancel_futures=True)

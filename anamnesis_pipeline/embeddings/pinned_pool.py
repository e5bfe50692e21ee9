"""The embedding pool: worker threads that share one model, each pinned to its own core.

N workers run one torch thread each, so N workers use N cores. Queries go before passages. The pool has its own
threads and never touches the event loop's default executor.
"""

import itertools
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.batching import length_sorted_batches
from anamnesis_pipeline.errors import AnamnesisError, EmbeddingQueueFull, ModelLoading, UnknownModel

BATCH_TOKENS = 4096
"""Bound of padded tokens in one batch: large enough to fill a core's matrix unit, small enough that a query
never waits long behind a batch of passages."""
_PRIORITY: dict[Role, int] = {"query": 0, "passage": 1}
_LAST = 9
"""Priority of the order to stop: behind all work."""

log = logging.getLogger(__name__)


class LoadedModel(Protocol):
    """What the pool needs of a model in memory."""

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Word piece ids of each text."""

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Unit vectors of one batch."""


@dataclass(frozen=True, slots=True)
class PoolModel:
    """How to get a model: `load` is slow and runs once, `on_worker` runs once in every worker thread."""

    model_id: str
    dim: int
    load: Callable[[], LoadedModel]
    on_worker: Callable[[], None] = lambda: None
    query_prefix: str = ""
    passage_prefix: str = ""

    def prefix(self, role: Role) -> str:
        """What the model wants in front of a text of this role."""
        return self.query_prefix if role == "query" else self.passage_prefix


@dataclass(order=True, slots=True)
class _Job:
    priority: int
    order: int
    run: Callable[[], NDArray[np.float32]] | None = field(compare=False)
    future: Future[NDArray[np.float32]] = field(compare=False)


def cores_for(percent: int, available: Sequence[int]) -> list[int]:
    """The first `percent` % of the available cores, at least one."""
    return list(available[: max(1, round(len(available) * percent / 100))])


def available_cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class PinnedPool:
    """An Embedder over pinned worker threads. Loads its model on first use, or in the background."""

    def __init__(self, model: PoolModel, cores: Sequence[int], *, queue_max: int = 64, niceness: int = 0) -> None:
        """:param cores: one worker is pinned to each.
        :param queue_max: calls that may wait; one more raises EmbeddingQueueFull.
        :param niceness: of the workers, 0 for queries, 5 for live embedding: the kernel keeps queries first.
        """
        self._model = model
        self._cores = list(cores)
        self._niceness = niceness
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._order = itertools.count()
        self._waiting = threading.BoundedSemaphore(queue_max)
        self._queue_max = queue_max
        self._load_lock = threading.Lock()
        self._lock = threading.Lock()
        self._closed = False
        self._loaded: LoadedModel | None = None
        self._workers: list[threading.Thread] = []
        self.failure: str | None = None
        """Why the model could not be loaded; None while there is hope."""

    @property
    def model_id(self) -> str:
        """The model's name."""
        return self._model.model_id

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self._model.dim

    @property
    def ready(self) -> bool:
        """Whether `embed` answers without waiting for the model."""
        return self._loaded is not None

    @property
    def depth(self) -> int:
        """Batches that wait for a worker."""
        return self._jobs.qsize()

    def load(self) -> None:
        """Load the model and start the workers; harmless when it is loaded, or closed meanwhile.

        :raises UnknownModel: it does not load; later calls raise the same at once.
        """
        with self._load_lock:
            if self._loaded is not None or self._closed:
                return
            if self.failure is not None:
                raise UnknownModel(self.failure)
            model = self._load_or_say_why()
            with self._lock:
                if self._closed:
                    return
                self._start_workers()
                self._loaded = model

    def _load_or_say_why(self) -> LoadedModel:
        try:
            return self._model.load()
        except Exception as exc:
            known = isinstance(exc, AnamnesisError)
            self.failure = str(exc) if known else f"{self.model_id} does not load: {type(exc).__name__}: {exc}"
            raise UnknownModel(self.failure) from exc

    def load_in_background(self) -> None:
        """Start loading and return at once; `ready` and `failure` tell how it went."""
        threading.Thread(target=self._load_quietly, name="model-loader", daemon=True).start()

    def _load_quietly(self) -> None:
        try:
            self.load()
        except AnamnesisError as exc:
            log.error("embedding model %s: %s", self.model_id, exc)  # noqa: TRY400 - expected, the text says it all

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Shape (len(texts), dim), unit length, in the order of `texts`.

        :raises ModelLoading: the model is being loaded in the background, or this pool was closed.
        :raises EmbeddingQueueFull: `queue_max` calls wait already.
        :raises UnknownModel: the model could not be loaded.
        """
        model = self._require_model()
        if not texts:
            return np.empty((0, self.dim), dtype=np.float32)
        if not self._waiting.acquire(blocking=False):
            raise EmbeddingQueueFull(f"{self._queue_max} calls wait for the embedding model; try again in a second")
        try:
            return self._embed(model, texts, role)
        finally:
            self._waiting.release()

    def _require_model(self) -> LoadedModel:
        if self._loaded is not None:
            return self._loaded
        if self.failure is not None:
            raise UnknownModel(self.failure)
        state = "was unloaded" if self._closed else "is still loading"
        raise ModelLoading(f"the embedding model {self.model_id} {state}; try again in a few seconds")

    def _embed(self, model: LoadedModel, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        prefix = self._model.prefix(role)
        token_ids = model.token_ids([prefix + text for text in texts])
        batches = length_sorted_batches([len(ids) for ids in token_ids], BATCH_TOKENS)
        futures = self._submit(model, [[token_ids[i] for i in batch] for batch in batches], _PRIORITY[role])
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        for batch, future in zip(batches, futures, strict=True):
            vectors[batch] = future.result()
        return vectors

    def _submit(
        self, model: LoadedModel, batches: Sequence[list[list[int]]], priority: int
    ) -> list[Future[NDArray[np.float32]]]:
        jobs = [_Job(priority, next(self._order), partial(model.forward, batch), Future()) for batch in batches]
        with self._lock:  # behind the workers' last orders nobody would ever do these
            if self._closed:
                self._require_model()
            for job in jobs:
                self._jobs.put(job)
        return [job.future for job in jobs]

    def _start_workers(self) -> None:
        for number, core in enumerate(self._cores):
            worker = threading.Thread(target=self._work, args=(core,), name=f"embed-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)

    def _work(self, core: int) -> None:
        _pin_this_thread(core, self._niceness)
        self._model.on_worker()
        while True:
            job = self._jobs.get()
            if job.run is None:
                return
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                job.future.set_result(job.run())
            except BaseException as exc:
                job.future.set_exception(exc)

    def close(self) -> None:
        """Finish the batches that wait, end the workers and let go of the model; calling twice is harmless."""
        with self._lock:
            self._closed = True
            self._loaded = None
            workers, self._workers = self._workers, []
            for _ in workers:
                self._jobs.put(_Job(_LAST, next(self._order), None, Future()))
        for worker in workers:
            worker.join(timeout=10)


def _pin_this_thread(core: int, niceness: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})  # on Linux 0 means this thread only, so every worker calls it
    if niceness and hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

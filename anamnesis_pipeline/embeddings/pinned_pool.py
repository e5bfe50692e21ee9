"""The embedding pool: worker threads that share one model, each pinned to a separate core.

N workers run one torch thread each, so N workers use N cores. The workers load, tokenize and compute; the caller only
waits. The pool never uses the event loop's default executor.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import ROLES, Embedded, Role
from anamnesis_pipeline.embeddings.cores import Priority, available_cores, cores_for, pin_this_thread, rank_this_thread
from anamnesis_pipeline.embeddings.pool_work import Call, LoadedModel, TokenWish, WorkQueue
from anamnesis_pipeline.embeddings.precision import Device
from anamnesis_pipeline.embeddings.token_vectors import Projection, Rows, of_passage, of_query
from anamnesis_pipeline.errors import AnamnesisError, EmbeddingQueueFull, ModelLoading, UnknownModel

BATCH_TOKENS = {Priority.QUERY: 512, Priority.LIVE: 2048, Priority.BACKGROUND: 2048}
"""Limit of padded tokens in one batch of passages. Throughput is flat from 1,000 tokens on; where queries are answered
a batch is smaller, since a query that finds every worker busy waits for the first to finish its batch."""
GPU_BATCH_TOKENS = 65_536
"""The same on a GPU, which small batches leave idle."""
_CLOSE_TIMEOUT_S = 10

__all__ = ["LoadedModel", "PinnedPool", "PoolModel"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolModel:
    """How to get a model: `load` is slow and runs once, `on_worker` runs once in every thread before any other work.

    :param on_loaded: called with the model once it is in memory, on the thread that called `load`.
    :param device: `cuda` needs one worker and large batches.
    :param projection: makes the projection of the space's token vectors, on the loading thread, since it may have to be
        learned with the model in memory. None: the space has none.
    """

    model_id: str
    dim: int
    load: Callable[[], LoadedModel]
    on_worker: Callable[[], None] = lambda: None
    query_prefix: str = ""
    passage_prefix: str = ""
    on_loaded: Callable[[LoadedModel], None] = lambda model: None
    device: Device = "cpu"
    projection: Callable[[LoadedModel], Projection | None] = lambda model: None

    def prefix(self, role: Role) -> str:
        """Return the model's prefix for a text of this role."""
        return self.query_prefix if role == "query" else self.passage_prefix


class PinnedPool:
    """An Embedder over pinned worker threads. Loads its model on request, at once or in the background."""

    def __init__(
        self, model: PoolModel, cores: Sequence[int], *, queue_max: int = 64, priority: Priority = Priority.QUERY
    ) -> None:
        """:param cores: one worker is pinned to each; see `cores_for`.
        :param queue_max: calls that may wait; one more raises EmbeddingQueueFull.
        :param priority: of the workers, relative to other processes on these cores.
        """
        self.model_id, self.dim, self.device = model.model_id, model.dim, model.device
        self._model = model
        self._cores = tuple(cores)
        self._priority = priority
        self._queue = WorkQueue(GPU_BATCH_TOKENS if model.device == "cuda" else BATCH_TOKENS[priority])
        self._waiting = threading.BoundedSemaphore(queue_max)
        self._queue_max = queue_max
        self._load_lock = threading.Lock()
        self._lock = threading.Lock()
        self._closed = False
        self._loaded: LoadedModel | None = None
        self._wishes: dict[Role, TokenWish] = {}
        self._workers: dict[int, threading.Thread] = {}
        self.failure: str | None = None
        """Why the model could not be loaded; None while it may still load."""

    @property
    def precision(self) -> str | None:
        """Return the arithmetic of the model; None before it is loaded and after `close`."""
        return self._loaded.precision if self._loaded is not None else None

    @property
    def ready(self) -> bool:
        """Return whether `embed` answers without waiting for the model."""
        return self._loaded is not None

    @property
    def depth(self) -> int:
        """Return the number of work items that wait for a worker."""
        return self._queue.depth

    @property
    def cores(self) -> tuple[int, ...]:
        """Return the cores in use; worker i is pinned to the i-th."""
        return self._cores

    @property
    def workers(self) -> int:
        """Return the number of threads that embed; 0 before the model is loaded and after `close`."""
        return self._wanted_workers() if self._loaded is not None else 0

    def _wanted_workers(self) -> int:
        return 1 if self.device == "cuda" else len(self._cores)

    def load(self) -> None:
        """Load the model and start the workers; harmless if it is loaded, or was closed meanwhile.

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
                self._loaded = model
                self._start_workers()
        self._model.on_loaded(model)

    def _load_or_say_why(self) -> LoadedModel:
        loaded: Future[LoadedModel] = Future()
        threading.Thread(target=self._load_on_cores, args=(loaded,), name="load-model", daemon=True).start()
        try:
            return loaded.result()
        except Exception as exc:
            known = isinstance(exc, AnamnesisError)
            self.failure = str(exc) if known else f"{self.model_id} does not load: {type(exc).__name__}: {exc}"
            raise UnknownModel(self.failure) from exc

    def _load_on_cores(self, loaded: "Future[LoadedModel]") -> None:
        """Load on the pool's cores: loading computes too, and its remaining threads keep its cores and priority."""
        try:
            pin_this_thread(self._cores)
            rank_this_thread(self._priority)
            self._model.on_worker()
            model = self._model.load()
            projection = self._model.projection(model)
            if projection is not None:
                self._wishes = {role: _wish(model, projection, role, self._model.prefix(role)) for role in ROLES}
            loaded.set_result(model)
        except BaseException as exc:
            loaded.set_exception(exc)

    def load_in_background(self) -> None:
        """Start loading and return at once; `ready` and `failure` report the result."""
        threading.Thread(target=self._load_quietly, name="model-loader", daemon=True).start()

    def _load_quietly(self) -> None:
        try:
            self.load()
        except AnamnesisError as exc:
            log.error("embedding model %s: %s", self.model_id, exc)  # noqa: TRY400 - expected, the text says it all

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), dim), unit length, in the order of `texts`.

        :raises ModelLoading: the model is being loaded in the background, or this pool was closed.
        :raises EmbeddingQueueFull: `queue_max` calls wait already.
        :raises UnknownModel: the model could not be loaded.
        :raises InvalidVectors: the model makes vectors with NaN or zero length.
        """
        return self._made(texts, role, with_tokens=False).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        """Return the same vectors and token vectors from the same pass; raises the same errors as `embed`."""
        return self._made(texts, role, with_tokens=True)

    def _made(self, texts: Sequence[str], role: Role, *, with_tokens: bool) -> Embedded:
        model = self._require_model()
        wish = self._wishes.get(role) if with_tokens else None
        if not texts:
            return Embedded(np.empty((0, self.dim), dtype=np.float32), None if wish is None else [])
        if not self._waiting.acquire(blocking=False):
            raise EmbeddingQueueFull(f"{self._queue_max} calls wait for the embedding model; try again in a second")
        try:
            prefix = self._model.prefix(role)
            call = Call(model, self.model_id, self.dim, [prefix + text for text in texts], wish)
            if not self._queue.put(call, role):
                self._require_model()
            try:
                return call.made.result()
            except BaseException as exc:
                call.fail(exc)  # a signal ended the wait: skip its remaining batches
                raise
        finally:
            self._waiting.release()

    def _require_model(self) -> LoadedModel:
        if self._loaded is not None:
            return self._loaded
        if self.failure is not None:
            raise UnknownModel(self.failure)
        state = "was unloaded" if self._closed else "is still loading"
        raise ModelLoading(f"the embedding model {self.model_id} {state}; try again in a few seconds")

    def use_cores(self, cores: Sequence[int]) -> None:
        """Use other cores from now on, with the same model. Each worker finishes its current batch.

        :raises BadSetting: this process may not use one of them; nothing changes.
        """
        with self._lock:
            self._cores = tuple(cores_for(100, cores, available_cores()))
            if self._loaded is not None:
                self._start_workers()
        self._queue.wake()

    def _start_workers(self) -> None:
        """Start a worker for every core that has none. Called with the lock held."""
        for number in range(self._wanted_workers()):
            if number not in self._workers:
                worker = threading.Thread(target=self._work, args=(number,), name=f"embed-{number}", daemon=True)
                self._workers[number] = worker
                worker.start()

    def _work(self, number: int) -> None:
        core: int | None = None
        while (wanted := self._core_of(number, core)) is not None:
            if wanted != core:
                pin_this_thread({wanted})
                if core is None:
                    rank_this_thread(self._priority)
                    self._model.on_worker()
                core = wanted
            work = self._queue.take(partial(self._is_elsewhere, number, core))
            if work is not None:
                work()
            elif self._queue.closed:
                return

    def _is_elsewhere(self, number: int, core: int) -> bool:
        """Return whether a worker is no longer wanted on this core."""
        return self._cores[number : number + 1] != (core,)

    def _core_of(self, number: int, core: int | None) -> int | None:
        """Return the current core of a worker; None if it is surplus, which also ends its count."""
        with self._lock:
            if self._closed and core is not None:
                return core  # the remaining work is finished here
            if number < self._wanted_workers():
                return self._cores[number]
            self._workers.pop(number, None)
            return None

    def close(self) -> None:
        """Finish the waiting work, end the workers and release the model; calling twice is harmless."""
        with self._lock:
            self._closed = True
            self._loaded = None
            workers = list(self._workers.values())
        self._queue.close()
        for worker in workers:
            worker.join(timeout=_CLOSE_TIMEOUT_S)


def _wish(model: LoadedModel, projection: Projection, role: Role, prefix: str) -> TokenWish:
    """Return token vectors of one role, without those of the model's prefix."""
    with_prefix, without = model.token_ids([prefix.rstrip(), ""])
    first = len(with_prefix) - len(without)

    def finish(rows: Rows) -> NDArray[np.int8] | NDArray[np.float32]:
        return of_query(rows[first:]) if role == "query" else of_passage(rows[first:])

    return TokenWish(projection, finish)

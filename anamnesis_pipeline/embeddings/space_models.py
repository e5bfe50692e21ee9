"""The model that answers queries: the active space's, or the previous one until the new one is in memory."""

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from anamnesis_pipeline.embeddings.base import Embedded, EmbeddingPool, QueryVectors, Role, query_vectors
from anamnesis_pipeline.errors import AnamnesisError, ModelLoading, UnknownModel
from anamnesis_pipeline.model import Space

GRACE_S = 5.0
"""Seconds that a replaced model stays: a search that chose its space before the switch still gets its vector."""
FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 300.0
"""A model that failed to load is tried again after 5, 10, 20, ... seconds, at most every five minutes: its files may be
restored, or the network may recover."""
CORES_READ_EVERY_S = 1.0
LOOK_EVERY_S = 2.0
"""Polling interval of the active space: after a switch its model loads without waiting for a search."""
QUERIES_KEPT = 256
"""Vectors of the latest queries, about 100 KB each at most: a changed filter, a further page and the start of each
conversation repeat a query.
"""
LONGEST_REASON = 200
"""Characters of the reason in every answer and health check; the log has the whole text."""

log = logging.getLogger(__name__)


class _SpaceModel:
    """One space's model, loading or in memory. Finding its files may take a download."""

    def __init__(self, space: Space, open_pool: Callable[[Space], EmbeddingPool], first_retry_s: float) -> None:
        self.space = space
        self.failure: str | None = None
        """Why the last attempt failed, in short; None during the first, and once the model is loaded."""
        self._logged: str | None = None
        self._open_pool = open_pool
        self._first_retry_s = first_retry_s
        self._lock = threading.Lock()
        self._pool: EmbeddingPool | None = None
        self._closed = threading.Event()

    def load_in_background(self) -> None:
        threading.Thread(target=self._load, name=f"load {self.space.key}", daemon=True).start()

    def _load(self) -> None:
        for attempt in itertools.count():
            if self._closed.is_set() or self._loaded():
                return
            self._closed.wait(min(self._first_retry_s * 2 ** min(attempt, 20), LONGEST_RETRY_S))

    def _loaded(self) -> bool:
        """Make one attempt. A pool is stored only with its model loaded: the next attempt starts from scratch."""
        pool: EmbeddingPool | None = None
        try:
            pool = self._open_pool(self.space)
            pool.load()
        except Exception as exc:
            if pool is not None:
                pool.close()
            self._note(exc)
            return False
        with self._lock:
            if not self._closed.is_set():
                self._pool, self.failure = pool, None
                return True
        pool.close()
        return True

    def _note(self, exc: Exception) -> None:
        problem = str(exc) if isinstance(exc, AnamnesisError) else f"{type(exc).__name__} while loading the model"
        if problem != self._logged:  # once, not at every attempt
            log.error("embedding model %s: %s", self.space.model_id, problem)
        self._logged, self.failure = problem, _in_short(problem)

    @property
    def pool(self) -> EmbeddingPool | None:
        """Return the pool once its model is in memory, else None."""
        return self._pool

    def embed(self, texts: Sequence[str], role: Role) -> Embedded:
        if self._pool is not None:
            return self._pool.embed_with_tokens(texts, role)
        if self.failure is not None:
            raise UnknownModel(self.failure)
        raise _loading(self.space)

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            pool = self._pool
        if pool is not None:
            pool.close()


def _in_short(problem: str) -> str:
    """Return the first sentence, shortened to `LONGEST_REASON` characters."""
    first = re.split(r"(?<=[.!?])\s|\n", problem.strip(), maxsplit=1)[0]
    return first if len(first) <= LONGEST_REASON else first[: LONGEST_REASON - 1] + "…"


def _loading(space: Space) -> ModelLoading:
    return ModelLoading(f"the embedding model {space.model_id} is still loading; try again in a few seconds")


class SpaceModels:
    """Holds the model of the active space. Polls the active space, and loads a new model in the background when it
    changes.

    If a model does not load, the previous one keeps answering, and loading is tried again. The cores of all models
    follow the configuration, without reloading them.
    """

    def __init__(
        self,
        open_pool: Callable[[Space], EmbeddingPool],
        active: Callable[[], Space | None],
        *,
        prepare: Callable[[], object] = lambda: None,
        cores: Callable[[], Sequence[int]] | None = None,
        exists: Callable[[str], bool] = lambda key: True,
        grace_s: float = GRACE_S,
        first_retry_s: float = FIRST_RETRY_S,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """:param open_pool: makes an unloaded pool for a space; may take a download, may raise UnknownModel.
        :param active: reads the active space from the store.
        :param prepare: runs before the first load and ensures that a space is active; may raise UnknownModel, and is
            then retried like a model.
        :param cores: reads the configured cores, at most once a second; None: a pool keeps its initial ones.
        :param exists: whether the store still has the space of this key; the model of a dropped one stops answering.
        :param grace_s: seconds that a replaced model still answers.
        :param first_retry_s: seconds from a first failure to the next attempt; doubles with each, up to five minutes.
        :param look_every_s: seconds between two polls of the active space.
        """
        self._open_pool = open_pool
        self._active = active
        self._prepare = prepare
        self._read_cores = cores
        self._exists = exists
        self._cores_read_at = -CORES_READ_EVERY_S
        self._grace_s = grace_s
        self._first_retry_s = first_retry_s
        self._look_every_s = look_every_s
        self._problem: str | None = None
        self._logged: str | None = None
        self._lock = threading.Lock()
        self._answering: _SpaceModel | None = None
        self._next: _SpaceModel | None = None
        self._replaced: list[_SpaceModel] = []
        self._chooser = threading.Thread(target=self._prepare_and_load, name="model-chooser", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="space-watcher", daemon=True)
        self._closed = threading.Event()
        self._query_vectors = lru_cache(QUERIES_KEPT)(self._embed_query)

    @property
    def ready(self) -> bool:
        """Return whether queries are embedded without waiting for a model."""
        return self.pool is not None

    @property
    def failure(self) -> str | None:
        """Return why no model answers; None while one does, or while its first attempt to load continues."""
        return self._answering.failure if self._answering is not None else self._problem

    @property
    def next_failure(self) -> tuple[str, str] | None:
        """Return (model, reason) if the active space's model does not load and another one answers."""
        waiting = self._next
        return (waiting.space.model_id, waiting.failure) if waiting is not None and waiting.failure else None

    @property
    def depth(self) -> int:
        """Return the number of batches that wait for a worker."""
        return self.pool.depth if self.pool is not None else 0

    @property
    def model_id(self) -> str:
        """Return the model that answers, or would."""
        return self._answering.space.model_id if self._answering is not None else ""

    @property
    def pool(self) -> EmbeddingPool | None:
        """Return the pool of the model that answers; None until it is in memory."""
        return self._answering.pool if self._answering is not None else None

    def load_in_background(self) -> None:
        """Start loading the active space's model, follow every switch, and return at once. Call it once."""
        self._chooser.start()

    def _prepare_and_load(self) -> None:
        for attempt in itertools.count():
            prepared = self._prepared()
            self._look()
            if attempt == 0:
                self._watcher.start()
            if prepared or self._closed.wait(min(self._first_retry_s * 2 ** min(attempt, 20), LONGEST_RETRY_S)):
                return

    def _watch(self) -> None:
        while not self._closed.wait(self._look_every_s):
            self._look()

    def _look(self) -> None:
        """Move to the active space if it has changed."""
        if self._closed.is_set():
            return
        try:
            active = self._active()
            if active is not None:
                self.space_for(active)
        except AnamnesisError as exc:  # a busy store: the next poll may succeed
            log.debug("the active space cannot be read: %s", exc)

    def _prepared(self) -> bool:
        try:
            self._prepare()
        except AnamnesisError as exc:
            if str(exc) != self._logged:
                log.error("embedding: %s", exc)  # noqa: TRY400 - the text says it all
            self._logged, self._problem = str(exc), _in_short(str(exc))
            return False
        self._problem = None
        return True

    def space_for(self, active: Space) -> Space:
        """Return the space to search: `active`, or the previous one while it exists and the model of `active` loads."""
        with self._lock:
            if self._closed.is_set():
                return active
            if self._answering is None:
                self._answering = self._start(active)
            elif self._answering.space.key != active.key:
                self._move_towards(active)
            elif self._next is not None:  # switched back before the other model could answer
                self._retire(self._next)
                self._next = None
            return self._answering.space

    def _move_towards(self, active: Space) -> None:
        """Load the model of `active`; let it answer once it is in memory, or now if the previous one cannot answer.

        Called with the lock held.
        """
        if self._next is None or self._next.space.key != active.key:
            if self._next is not None:
                self._retire(self._next)
            self._next = self._start(active)
        before = self._answering
        if before is None:
            return
        if self._next.pool is not None or before.failure is not None or not self._exists(before.space.key):
            self._retire(before)
            self._answering, self._next = self._next, None

    def _start(self, space: Space) -> _SpaceModel:
        model = _SpaceModel(space, self._open_pool, self._first_retry_s)
        model.load_in_background()
        return model

    def _retire(self, model: _SpaceModel) -> None:
        """Close a model later, in another thread: closing waits for the current batches."""
        self._replaced.append(model)
        timer = threading.Timer(self._grace_s, self._end, args=(model,))
        timer.daemon = True
        timer.start()

    def _end(self, model: _SpaceModel) -> None:
        with self._lock:
            self._replaced.remove(model)
        model.close()

    def embed_query(self, text: str, space: Space) -> QueryVectors:
        """Return the query's vector and, if the space has them, token vectors.

        :param space: as returned by `space_for`.
        :raises RetryLater: the model is still loading, or too many calls wait.
        :raises UnknownModel: it does not load.
        """
        return self._query_vectors(text, space)

    def _embed_query(self, text: str, space: Space) -> QueryVectors:
        return query_vectors(self._embed([text], "query", space))

    def embed_passages(self, texts: Sequence[str], space: Space) -> Embedded:
        """Return vectors and, if the space has them, token vectors; raises the same errors as `embed_query`."""
        return self._embed(texts, "passage", space)

    def _embed(self, texts: Sequence[str], role: Role, space: Space) -> Embedded:
        if time.monotonic() - self._cores_read_at >= CORES_READ_EVERY_S:
            self.follow_cores()
        model = next((model for model in self._held() if model.space.key == space.key), None)
        if model is None:
            raise _loading(space)
        return model.embed(texts, role)

    def follow_cores(self) -> None:
        """Move the workers of every model to the currently configured cores. Current batches finish."""
        self._cores_read_at = time.monotonic()
        if self._read_cores is None:
            return
        try:
            cores = list(self._read_cores())
        except AnamnesisError as exc:
            log.warning("the cores stay as they are: %s", exc)
            return
        for pool in (model.pool for model in self._held()):
            if pool is not None and list(pool.cores) != cores:
                pool.use_cores(cores)

    def _held(self) -> list[_SpaceModel]:
        with self._lock:
            return [model for model in (self._answering, self._next, *self._replaced) if model is not None]

    def close(self) -> None:
        """End the workers of every model."""
        self._closed.set()
        for model in self._held():
            model.close()
        for thread in (self._chooser, self._watcher):
            if thread.is_alive():
                thread.join(timeout=1)  # it may be using the store, which is closed next; a download is not waited for

"""Which model answers queries: the active space's, or the one before it until the new one is in memory."""

import logging
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.errors import AnamnesisError, ModelLoading, UnknownModel
from anamnesis_pipeline.model import Space

GRACE_S = 5.0
"""How long a replaced model stays: a search that chose its space just before the switch still gets its vector."""

log = logging.getLogger(__name__)


class _SpaceModel:
    """One space's model, on its way into memory or there. Finding its files may take a download."""

    def __init__(self, space: Space, open_pool: Callable[[Space], PinnedPool]) -> None:
        self.space = space
        self._open_pool = open_pool
        self._lock = threading.Lock()
        self._pool: PinnedPool | None = None
        self._problem: str | None = None
        self._closed = False

    def load_in_background(self) -> None:
        threading.Thread(target=self._load, name=f"load {self.space.key}", daemon=True).start()

    def _load(self) -> None:
        try:
            pool = self._open_pool(self.space)
        except AnamnesisError as exc:
            self._problem = str(exc)
            log.error("embedding model %s: %s", self.space.model_id, exc)  # noqa: TRY400 - the text says it all
            return
        with self._lock:
            if not self._closed:
                self._pool = pool
                pool.load_in_background()

    @property
    def ready(self) -> bool:
        return self._pool is not None and self._pool.ready

    @property
    def failure(self) -> str | None:
        return self._pool.failure if self._pool is not None else self._problem

    @property
    def depth(self) -> int:
        return self._pool.depth if self._pool is not None else 0

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        if self._pool is not None:
            return self._pool.embed(texts, role)
        if self._problem is not None:
            raise UnknownModel(self._problem)
        raise _loading(self.space)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._pool is not None:
            self._pool.close()


def _loading(space: Space) -> ModelLoading:
    return ModelLoading(f"the embedding model {space.model_id} is still loading; try again in a few seconds")


class SpaceModels:
    """Holds the model of the active space; loads a new one in the background when another space becomes active.

    A model that does not load leaves the one before it answering.
    """

    def __init__(
        self,
        open_pool: Callable[[Space], PinnedPool],
        active: Callable[[], Space | None],
        *,
        prepare: Callable[[], object] = lambda: None,
        grace_s: float = GRACE_S,
    ) -> None:
        """:param open_pool: makes an unloaded pool for a space; may take a download, may raise UnknownModel.
        :param active: reads the active space from the store.
        :param prepare: runs once before the first load and sees to it that a space is active; may raise UnknownModel.
        :param grace_s: seconds that a replaced model still answers.
        """
        self._open_pool = open_pool
        self._active = active
        self._prepare = prepare
        self._grace_s = grace_s
        self._problem: str | None = None
        self._lock = threading.Lock()
        self._answering: _SpaceModel | None = None
        self._next: _SpaceModel | None = None
        self._replaced: list[_SpaceModel] = []
        self._chooser = threading.Thread(target=self._prepare_and_load, name="model-chooser", daemon=True)
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether queries are embedded without waiting for a model."""
        return self._answering is not None and self._answering.ready

    @property
    def failure(self) -> str | None:
        """Why no model will answer; None while there is hope."""
        return self._answering.failure if self._answering is not None else self._problem

    @property
    def depth(self) -> int:
        """Batches that wait for a worker."""
        return self._answering.depth if self._answering is not None else 0

    @property
    def model_id(self) -> str:
        """The model that answers, or would."""
        return self._answering.space.model_id if self._answering is not None else ""

    def load_in_background(self) -> None:
        """Start loading the active space's model and return at once. Call it once."""
        self._chooser.start()

    def _prepare_and_load(self) -> None:
        try:
            self._prepare()
        except AnamnesisError as exc:
            self._problem = str(exc)
            log.error("embedding: %s", exc)  # noqa: TRY400 - the text says it all
        if not self._closed and (active := self._active()) is not None:
            self.space_for(active)

    def space_for(self, active: Space) -> Space:
        """The space to search now: `active`, or the previous one while the model of `active` loads."""
        with self._lock:
            if self._closed:
                return active
            if self._answering is None:
                self._answering = self._start(active)
            elif self._answering.space.key != active.key:
                self._move_towards(active)
            return self._answering.space

    def _move_towards(self, active: Space) -> None:
        """Load the model of `active`; once it is in memory, let it answer. Called with the lock held."""
        if self._next is None or self._next.space.key != active.key:
            if self._next is not None:
                self._retire(self._next)
            self._next = self._start(active)
        hopeless = self._answering is not None and self._answering.failure is not None
        if self._answering is not None and (self._next.ready or hopeless):
            self._retire(self._answering)
            self._answering, self._next = self._next, None

    def _start(self, space: Space) -> _SpaceModel:
        model = _SpaceModel(space, self._open_pool)
        model.load_in_background()
        return model

    def _retire(self, model: _SpaceModel) -> None:
        """Close a model a little later and elsewhere: closing waits for the batches in hand."""
        self._replaced.append(model)
        timer = threading.Timer(self._grace_s, self._end, args=(model,))
        timer.daemon = True
        timer.start()

    def _end(self, model: _SpaceModel) -> None:
        with self._lock:
            self._replaced.remove(model)
        model.close()

    def embed_query(self, text: str, space: Space) -> NDArray[np.float32]:
        """Shape (dim,), unit length.

        :param space: as `space_for` gave it.
        :raises RetryLater: the model is still loading, or too many calls wait.
        :raises UnknownModel: it does not load.
        """
        return np.asarray(self._embed([text], "query", space)[0], dtype=np.float32)

    def embed_passages(self, texts: Sequence[str], space: Space) -> NDArray[np.float32]:
        """Shape (len(texts), dim), unit length; raises as `embed_query` does."""
        return self._embed(texts, "passage", space)

    def _embed(self, texts: Sequence[str], role: Role, space: Space) -> NDArray[np.float32]:
        with self._lock:
            held = (self._answering, self._next, *self._replaced)
        model = next((model for model in held if model is not None and model.space.key == space.key), None)
        if model is None:
            raise _loading(space)
        return model.embed(texts, role)

    def close(self) -> None:
        """End the workers of every model."""
        with self._lock:
            self._closed = True
            held = [model for model in (self._answering, self._next, *self._replaced) if model is not None]
        for model in held:
            model.close()
        if self._chooser.is_alive():
            self._chooser.join(timeout=1)  # it may be in the store, which is closed next; a download is not waited for

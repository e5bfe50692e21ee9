"""Which model answers queries: the active space's, or the one before it until the new one is in memory."""

import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.errors import ModelLoading, UnknownModel
from anamnesis_pipeline.model import Space


class SpaceModels:
    """Holds the pool of the active space; loads a new one in the background when another space becomes active."""

    def __init__(
        self,
        open_pool: Callable[[Space], PinnedPool],
        active: Callable[[], Space | None],
        *,
        problem: str | None = None,
    ) -> None:
        """:param open_pool: makes an unloaded pool for a space; may raise UnknownModel.
        :param active: reads the active space from the store.
        :param problem: why there may be no active space, e.g. that the configured model is unknown.
        """
        self._open_pool = open_pool
        self._active = active
        self._problem = problem
        self._lock = threading.Lock()
        self._answering: tuple[Space, PinnedPool] | None = None
        self._next: tuple[Space, PinnedPool] | None = None

    @property
    def ready(self) -> bool:
        """Whether queries are embedded without waiting for a model."""
        return self._answering is not None and self._answering[1].ready

    @property
    def failure(self) -> str | None:
        """Why no model will answer; None while there is hope."""
        return self._answering[1].failure if self._answering is not None else self._problem

    @property
    def depth(self) -> int:
        """Batches that wait for a worker."""
        return self._answering[1].depth if self._answering is not None else 0

    @property
    def model_id(self) -> str:
        """The model that answers, or would."""
        return self._answering[0].model_id if self._answering is not None else ""

    def load_in_background(self) -> None:
        """Start loading the active space's model and return at once."""
        active = self._active()
        if active is not None:
            self.space_for(active)

    def space_for(self, active: Space) -> Space:
        """The space to search now: `active`, or the previous one while the model of `active` loads.

        :raises UnknownModel: the files of its model are not to be had.
        """
        return self._choose(active)[0]

    def embed_query(self, text: str, space: Space) -> NDArray[np.float32]:
        """Shape (dim,), unit length.

        :raises RetryLater: the model is still loading, or too many calls wait.
        :raises UnknownModel: it does not load.
        """
        return np.asarray(self._embed([text], "query", space)[0], dtype=np.float32)

    def embed_passages(self, texts: Sequence[str], space: Space) -> NDArray[np.float32]:
        """Shape (len(texts), dim), unit length; raises as `embed_query` does."""
        return self._embed(texts, "passage", space)

    def _embed(self, texts: Sequence[str], role: Role, space: Space) -> NDArray[np.float32]:
        held = next((held for held in (self._answering, self._next) if held and held[0].key == space.key), None)
        held = held or self._choose(space)
        if held[0].key != space.key:
            raise ModelLoading(f"the embedding model {space.model_id} is still loading; try again in a few seconds")
        return held[1].embed(texts, role)

    def _choose(self, active: Space) -> tuple[Space, PinnedPool]:
        with self._lock:
            if self._answering is None:
                self._answering = self._start(active)
            if self._answering[0].key == active.key:
                return self._answering
            if self._next is None or self._next[0].key != active.key:
                self._next = self._start(active)
            if self._next[1].ready:
                self._answering[1].close()
                self._answering, self._next = self._next, None
            return self._answering

    def _start(self, space: Space) -> tuple[Space, PinnedPool]:
        if self._problem is not None and self._active() is None:
            raise UnknownModel(self._problem)
        pool = self._open_pool(space)
        pool.load_in_background()
        return space, pool

    def close(self) -> None:
        """End the workers of every pool."""
        for held in (self._answering, self._next):
            if held is not None:
                held[1].close()

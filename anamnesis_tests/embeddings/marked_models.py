"""Models that write their own number into their vectors, so that a test sees which of them answered."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.model import Space

OLD, NEW = Space("old", "model-old", 4), Space("new", "model-new", 6)

OpenModels = Callable[..., SpaceModels]

_queries = itertools.count()


class Marked:
    precision, fidelity = "fp32", None

    def __init__(self, dim: int) -> None:
        self._dim = dim

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [[1] for _ in texts]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return np.full((len(batch), self._dim), self._dim, dtype=np.float32)


def pool_of(space: Space, load: Callable[[], object] = lambda: None) -> PinnedPool:
    def loaded() -> Marked:
        load()
        return Marked(space.dim)

    return PinnedPool(PoolModel(space.model_id, space.dim, loaded), available_cores()[:1])


def new_from(load: Callable[[], object]) -> Callable[[Space], PinnedPool]:
    """Opens pools, of which that of NEW does this before its model is there."""
    return lambda space: pool_of(space, load if space == NEW else lambda: None)


def answering(models: SpaceModels, active: Space) -> str:
    space = models.space_for(active)
    vector = models.embed_query(f"never asked before {next(_queries)}", space).vector
    assert vector.shape == (space.dim,)
    assert set(vector) == {float(space.dim)}, "a vector of another model"
    return space.key

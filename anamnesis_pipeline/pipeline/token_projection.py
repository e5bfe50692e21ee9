"""Projection of a space's token vectors: learned when its model is first loaded, and stored with the space."""

from threadpoolctl import threadpool_limits

from anamnesis_pipeline.embeddings.pool_work import LoadedModel
from anamnesis_pipeline.embeddings.token_sample import SAMPLE
from anamnesis_pipeline.embeddings.token_vectors import Projection, learn_projection
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.base import Store

TEXTS_AT_ONCE = 16


def space_projection(store: Store, space: Space, model: LoadedModel) -> Projection | None:
    """Return the projection of a space's token vectors; None when it has none.

    A stored projection wins over a learned one, also when two processes load the model at once, so that all token
    vectors of a space stay comparable.
    """
    if not space.token_dims:
        return None
    kept = store.spaces.projection(space.key)
    if kept is None:
        prefixed = [space.passage_prefix + text for text in SAMPLE]
        samples = []
        for first in range(0, len(prefixed), TEXTS_AT_ONCE):
            ids = model.token_ids(prefixed[first : first + TEXTS_AT_ONCE])
            samples += model.forward_with_tokens(ids, None)[1]
        with threadpool_limits(1):  # on a busy machine, numpy's threads would wait for each other ten times as long
            learned = learn_projection(samples, space.token_dims)
        kept = store.spaces.keep_projection(space.key, learned)
    return kept

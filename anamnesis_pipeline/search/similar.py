"""Find similar episodes by their stored vectors, without a model."""

from dataclasses import dataclass

import numpy as np

from anamnesis_pipeline.model import EpisodeFilter, EpisodeHead, Space, Variant
from anamnesis_pipeline.store.base import Store

PASSAGES_READ = 200
"""Passages read of an episode, its first ones: 120,000 characters."""
PASSAGES_EACH = 8
"""Passages searched per requested episode: several of the nearest are often of the same one."""


@dataclass(frozen=True, slots=True)
class Similar:
    """An episode, and the cosine of its nearest passage."""

    episode: EpisodeHead
    similarity: float


def similar_episodes(
    store: Store, space: Space, episode_id: str, most: int, where: EpisodeFilter
) -> list[Similar] | None:
    """Return the episodes in the filter whose nearest passage is closest to the episode's mean vector, best first; None
    if the episode has no vectors in the space yet, or their mean is zero.

    :raises StoreBusy: its vectors cannot be searched now.
    """
    own = [stored.passage_id for stored in store.episodes.passages_of(episode_id)[:PASSAGES_READ]]
    vectors = list(store.vectors.get(space.key, Variant.TEXT, own).values())
    mean = np.mean(vectors, axis=0) if vectors else np.zeros(space.dim, dtype=np.float32)
    length = float(np.linalg.norm(mean))
    if not length > 0:
        return None
    middle = (mean / length).astype(np.float32)
    depth = len(own) + PASSAGES_EACH * most  # its own passages are among the nearest
    best: dict[str, float] = {}
    for found in store.vectors.nearest(space.key, Variant.TEXT, middle, depth, where):
        if found.episode_id != episode_id:
            best.setdefault(found.episode_id, found.score)
    heads = store.episodes.heads(list(best))
    return [Similar(heads[name], score) for name, score in best.items() if name in heads][:most]

"""What says nearly the same as an episode, by stored vectors, and how new a posted one is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import HOLDING, Episode, EpisodeFilter, EpisodeHead, Space, Variant
from anamnesis_pipeline.search.engine import HIDDEN_KINDS, Engine
from anamnesis_pipeline.search.levels import stored_level
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.store.base import Store

PASSAGES_READ = 200
"""Passages read of an episode, its first ones: 120,000 characters."""
PASSAGES_EACH = 8
"""Passages searched per requested episode: several of the nearest are often of the same one."""
ALIKE = 0.93
"""Cosine from which on two memories say nearly the same."""
MAX_ALIKE = 5
ASKED_CHARS = 2_000
"""Characters of a text that is not stored, of which the vector is made."""


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


@dataclass(frozen=True, slots=True)
class Novelty:
    """`value` from 0, said before, to 1, as far from all of its project as an unrelated text is; None: it has no
    vectors. `alike`: the nearest that hold and say nearly the same.
    """

    value: float | None = None
    alike: Sequence[Similar] = ()


def novelty_of(store: Store, private: Private, episode: Episode) -> Novelty:
    """Compare a stored episode with the others of its project, also with what it replaced, by its stored vectors.

    :param private: what is left out: of private sources also what is in that project.
    """
    space = store.spaces.active()
    if space is None:
        return Novelty()
    asked = EpisodeFilter(projects=(episode.project,), include_superseded=True)
    where = private.visible(store, asked, (episode.project,))
    where = replace(where, hidden_kinds=HIDDEN_KINDS)
    try:
        found = similar_episodes(store, space, episode.episode_id, MAX_ALIKE, where)
    except AnamnesisError:  # it is stored; that is what counts
        return Novelty()
    return Novelty() if found is None else _novelty(store, found)


def novelty_of_text(store: Store, engine: Engine, text: str, project: str) -> Novelty:
    """Compare a text that is not stored, by a search for its meaning."""
    query = SearchQuery(
        text[:ASKED_CHARS],
        top_k=MAX_ALIKE,
        mode=Mode.SEMANTIC,
        where=EpisodeFilter(projects=(project,), include_superseded=True),
        include_private=(project,),
        track=False,
        fold=False,
        weak=True,
        profile=replace(PROFILES["default"], rerank=False),
    )
    hits = engine.search(query).hits
    if store.spaces.active() is None or any(hit.similarity is None for hit in hits):
        return Novelty()
    heads = store.episodes.heads([hit.episode.episode_id for hit in hits])
    found = [
        Similar(heads[hit.episode.episode_id], hit.similarity or 0.0) for hit in hits if hit.episode.episode_id in heads
    ]
    return _novelty(store, sorted(found, key=lambda each: -each.similarity))


def _novelty(store: Store, found: Sequence[Similar]) -> Novelty:
    """:param found: the nearest first."""
    if not found:
        return Novelty(1.0)
    space = store.spaces.active()
    level = stored_level(store, space) if space is not None else None
    unrelated = level.means.get(f"dense_{Variant.TEXT}", 0.0) if level is not None else 0.0
    value = (1.0 - found[0].similarity) / max(1.0 - unrelated, 1e-6)
    return Novelty(
        min(1.0, max(0.0, value)), [e for e in found if e.similarity >= ALIKE and e.episode.status in HOLDING]
    )

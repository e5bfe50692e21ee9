"""Makes the memory map: a two-dimensional layout of the current episodes in the active space.

All episodes are read twice, a page at a time: for the landmarks and project centroids, then for the places. RAM holds
the landmarks, the centroids and a few numbers per episode.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from anamnesis_pipeline.errors import GiveUp, StoreCorrupt
from anamnesis_pipeline.model import EpisodeFilter, Space, Variant
from anamnesis_pipeline.pipeline import map_layout
from anamnesis_pipeline.pipeline.map_file import CENTRES, NONE, MemoryMap, map_path, read_map
from anamnesis_pipeline.search.engine import HIDDEN_KINDS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import EpisodeMiddles

MIN_EPISODES = 30
"""With fewer episodes a list says as much."""
MAX_POINTS = 100_000
"""Max points on a map; of more episodes a sample is drawn, always the same."""
PAGE = 500

Ints = NDArray[np.int64]
CURRENT = EpisodeFilter(hidden_kinds=HIDDEN_KINDS)


class TooFewEpisodesError(GiveUp):
    """There are too few episodes for a map."""


@dataclass(slots=True)
class _Survey:
    """Result of the first pass: projects by name, with their episode counts and vector sums."""

    sample: map_layout.Sample
    projects: dict[str, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    sums: list[NDArray[np.float32]] = field(default_factory=list)
    ranks: list[Ints] = field(default_factory=list)

    def add(self, page: EpisodeMiddles) -> None:
        ranks = _ranks(page)
        self.sample.add(ranks, page.vectors)
        self.ranks.append(ranks)
        for project, vector in zip(page.projects, page.vectors, strict=True):
            place = self.projects.setdefault(project, len(self.projects))
            if place == len(self.counts):
                self.counts.append(0)
                self.sums.append(np.zeros_like(vector))
            self.counts[place] += 1
            self.sums[place] += vector


@dataclass(slots=True)
class _Drawn:
    """Result of the second pass: the points, and the passages nearest to each project's centroid."""

    passages: list[Ints] = field(default_factory=list)
    projects: list[Ints] = field(default_factory=list)
    places: list[NDArray[np.float32]] = field(default_factory=list)
    central: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def note_central(self, project: int, likeness: float, passage: int) -> None:
        known = self.central.setdefault(project, [])
        known.append((-likeness, passage))
        known.sort()
        del known[CENTRES:]


def make_map(
    store: Store, space: Space, *, landmarks: int = map_layout.LANDMARKS, most: int = MAX_POINTS, threads: int = 1
) -> MemoryMap:
    """Return a map of the memory in a space.

    :raises TooFewEpisodesError: fewer than `MIN_EPISODES`.
    """
    started, embedded = time.perf_counter(), store.vectors.progress(space.key).episodes_done
    survey = _Survey(map_layout.Sample(landmarks, space.dim))
    for page in _pages(store, space):
        survey.add(page)
    episodes = sum(survey.counts)
    if episodes < MIN_EPISODES:
        raise TooFewEpisodesError(
            f"a map needs {MIN_EPISODES} episodes with vectors in the space {space.key}, and there are {episodes}; "
            "have logs read, or wait until they are embedded"
        )
    ranks, vectors = survey.sample.taken()
    with threadpool_limits(threads):
        layout = _Layout(ranks, vectors, map_layout.laid_out(vectors))
        drawn = _placed(store, space, survey, layout, _chosen(survey, most))
    return _finished(space, survey, drawn, len(ranks), embedded, time.perf_counter() - started)


def is_map_due(store: Store, home: Path) -> bool:
    """Return whether the home's map is outdated, as far as that is cheap to know."""
    space = store.spaces.active()
    embedded = store.vectors.progress(space.key).episodes_done if space else 0
    if space is None or embedded < MIN_EPISODES:
        return False
    try:
        made = read_map(map_path(home))
    except StoreCorrupt:
        return True
    return made is None or made.is_due(space.key, embedded)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The landmarks: ranks, ascending, vectors and places."""

    ranks: Ints
    vectors: NDArray[np.float32]
    places: NDArray[np.float32]

    def place(self, ranks: Ints, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the places of episodes; landmarks keep theirs."""
        places = map_layout.placed(vectors, self.vectors, self.places)
        at = np.clip(np.searchsorted(self.ranks, ranks), 0, len(self.ranks) - 1)
        is_landmark = self.ranks[at] == ranks
        places[is_landmark] = self.places[at[is_landmark]]
        return places


def _pages(store: Store, space: Space) -> Iterator[EpisodeMiddles]:
    after: int | None = 0
    while after is not None:
        page = store.vectors.middles(space.key, Variant.TEXT, CURRENT, after, PAGE)
        if page.episode_ids:
            yield page
        after = page.after


def _ranks(page: EpisodeMiddles) -> Ints:
    return np.array([map_layout.rank_of(name) for name in page.episode_ids], np.int64)


def _chosen(survey: _Survey, most: int) -> Ints:
    """Return the ranks of the episodes to draw, ascending; without those added since the first pass."""
    return np.sort(np.concatenate(survey.ranks))[:most]


def _placed(store: Store, space: Space, survey: _Survey, layout: _Layout, chosen: Ints) -> _Drawn:
    drawn = _Drawn()
    order = map_layout.most_first(survey.counts)
    for page in _pages(store, space):
        known = [n for n, project in enumerate(page.projects) if project in survey.projects]  # others came meanwhile
        numbers = [survey.projects[page.projects[n]] for n in known]
        for n, number in zip(known, numbers, strict=True):
            likeness = float(page.vectors[n] @ survey.sums[number])
            drawn.note_central(int(order[number]), likeness, page.passage_ids[n])
        ranks, kept = _ranks(page)[known], np.array(known, np.intp)
        shown = np.isin(ranks, chosen)
        drawn.passages.append(np.array(page.passage_ids, np.int64)[kept[shown]])
        drawn.projects.append(order[np.array(numbers, np.intp)[shown]])
        drawn.places.append(layout.place(ranks[shown], page.vectors[kept[shown]]))
    return drawn


def _finished(space: Space, survey: _Survey, drawn: _Drawn, landmarks: int, embedded: int, seconds: float) -> MemoryMap:
    projects, passages = np.concatenate(drawn.projects), np.concatenate(drawn.passages)
    order = map_layout.by_project(projects, passages)
    counts = np.sort(np.array(survey.counts, np.int64))[::-1].copy()
    centres = np.full((len(counts), CENTRES), NONE, np.int64)
    for project, found in drawn.central.items():
        centres[project, : len(found)] = [passage for _, passage in found]
    return MemoryMap(
        space=space.key,
        model_id=space.model_id,
        made_at=datetime.now(UTC),
        seconds=round(seconds, 2),
        landmarks=landmarks,
        episodes=sum(survey.counts),
        embedded=embedded,
        places=map_layout.scaled(np.concatenate(drawn.places))[order],
        passages=passages[order],
        starts=np.searchsorted(projects[order], np.arange(len(counts) + 1)).astype(np.int64),
        counts=counts,
        centres=centres,
    )

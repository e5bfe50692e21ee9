"""The memory map: a two-dimensional layout of the current episodes in the active space, and its file in the home.

All episodes are read twice, a page at a time: for the landmarks and project centroids, then for the places. RAM holds
the landmarks, the centroids and a few numbers per episode.

A process may read the file while another replaces it. It holds no text. Projects are identified by passages, whose
names are read from the store on display, so the map follows what is forgotten, renamed or private at once.
"""

import json
import os
import time
import zipfile
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
from anamnesis_pipeline.search.engine import HIDDEN_KINDS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import EpisodeMiddles

MIN_EPISODES = 30
"""With fewer episodes a list says as much."""
MAX_POINTS = 100_000
"""Max points on a map; of more episodes a sample is drawn, always the same."""
PAGE = 500
VERSION = 1
CENTRES = 5
"""Passages that identify a project, the most central first."""
NONE = -1
"""Placeholder where a project has fewer than `CENTRES` episodes."""
NEW_SHARE = 0.02
"""Share of added or removed episodes from which a map is remade automatically."""

Ints = NDArray[np.int64]
CURRENT = EpisodeFilter(hidden_kinds=HIDDEN_KINDS)


class TooFewEpisodesError(GiveUp):
    """There are too few episodes for a map."""


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Points, each an episode, grouped by project, the largest project first.

    `places`: (n, 2), 0 to 65,535. `passages`: (n,), a passage of each episode. Project p has the points from
    `starts[p]` to `starts[p + 1]`, and `counts[p]` episodes; of more than `n` in all, a sample is drawn. `centres[p]`:
    see `CENTRES`. `episodes`: current ones with vectors when the map was made. `embedded`: all with vectors then.
    """

    space: str
    model_id: str
    made_at: datetime
    seconds: float
    landmarks: int
    episodes: int
    embedded: int
    places: NDArray[np.uint16]
    passages: NDArray[np.int64]
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    centres: NDArray[np.int64]

    @property
    def mark(self) -> str:
        """A unique id of this map."""
        return self.made_at.strftime("%Y%m%d%H%M%S%f")

    def is_of(self, point: int) -> int:
        """Return the index of a point's project."""
        return int(np.searchsorted(self.starts, point, side="right")) - 1

    def is_due(self, space: str, embedded: int) -> bool:
        """Return whether the map is outdated: made in another space, or before many episodes came or went."""
        return space != self.space or abs(embedded - self.embedded) > NEW_SHARE * max(self.embedded, 1)


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
        chosen = np.sort(np.concatenate(survey.ranks))[:most]  # without episodes added since the first pass
        drawn = _placed(store, space, survey, layout, chosen)
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


# --- file --------------------------------------------------------------------------------------------------

_ARRAYS = ("places", "passages", "starts", "counts", "centres")
_FACTS = ("space", "model_id", "seconds", "landmarks", "episodes", "embedded")


def map_path(home: Path) -> Path:
    """Return the path of a home's map."""
    return home / "map" / "memory_map.npz"


def save_map(path: Path, made: MemoryMap) -> None:
    """Write the map to `path` atomically."""
    facts = {"version": VERSION, "made_at": made.made_at.isoformat(), **{name: getattr(made, name) for name in _FACTS}}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            arrays = {name: getattr(made, name) for name in _ARRAYS}
            np.savez(file, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_map(path: Path) -> MemoryMap | None:
    """Return the map at `path`; None if missing or of another version.

    :raises StoreCorrupt: the file is no valid map.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            facts = json.loads(held["facts"].tobytes())
            if facts["version"] != VERSION:
                return None
            arrays = {name: held[name] for name in _ARRAYS}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as exc:
        raise StoreCorrupt(f"{path} is damaged ({exc}); draw the map again, which replaces it") from exc
    return MemoryMap(
        made_at=datetime.fromisoformat(facts["made_at"]), **{name: facts[name] for name in _FACTS}, **arrays
    )

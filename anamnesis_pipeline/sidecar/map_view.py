"""The current view of the memory map: named, without private or deleted episodes, with its age."""

import json
import struct
import threading
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import ServiceUnreachable, StoreCorrupt
from anamnesis_pipeline.model import Episode, EpisodeHead
from anamnesis_pipeline.pipeline.memory_map import MIN_EPISODES, NONE, MemoryMap, map_path, read_map
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.services.dagster.runs import JobRun
from anamnesis_pipeline.sidecar.services import Services

JOB = "draw_map"
MAX_FOUND = 50

Shows = Literal["map", "none", "few"]
Drawing = Literal["no", "asking", "waits", "goes on", "failed", "away"]


@dataclass(frozen=True, slots=True)
class Group:
    """The shown points of a project: `count` from `start` on, in map order. `centre` is its most central episode;
    `episodes` counts all of the project.
    """

    name: str
    start: int
    count: int
    episodes: int
    centre: EpisodeHead


@dataclass(frozen=True, slots=True)
class MapState:
    """State of the map. `made` is None without a map. `new` counts episodes embedded or deleted since. `drawing` says
    whether a new map is in progress; `run` and `reason` give details.
    """

    made: MemoryMap | None
    is_of_active: bool
    new: int
    embedded: int
    problem: str
    drawing: Drawing
    run: str | None = None
    reason: str = ""

    @property
    def lacks(self) -> int:
        """Number of episodes still missing for a map."""
        return max(0, MIN_EPISODES - self.embedded)

    @property
    def shows(self) -> Shows:
        """What the page shows: the map, `none` yet, or too `few` episodes for one."""
        if self.made:
            return "map"
        return "few" if self.lacks else "none"


class MapView:
    """Reads the map file when it changed, and the names on every request.

    `hidden` are ids of episodes that no page shows now.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._held: tuple[tuple[int, int, int], MemoryMap | None] | None = None

    def current(self) -> MemoryMap | None:
        """Return the map; None: there is none.

        :raises StoreCorrupt: the file is damaged.
        """
        path = map_path(self._services.settings.home)
        with self._lock:
            seen = _seen(path)
            if seen is None:
                return None
            if self._held is None or self._held[0] != seen:
                self._held = seen, read_map(path)
            return self._held[1]

    def groups(self, made: MemoryMap, *, with_private: bool, hidden: Set[str] = frozenset()) -> list[Group]:
        """Return the projects to show, those with the most episodes first. A project whose known episodes are all
        deleted or private is left out.
        """
        heads = self._known(made, hidden, Private() if with_private else self._services.engine.private())
        return [
            Group(
                head.project, int(made.starts[n]), int(made.starts[n + 1] - made.starts[n]), int(made.counts[n]), head
            )
            for n, head in heads.items()
        ]

    def point(
        self, made: MemoryMap, at: int, *, with_private: bool, hidden: Set[str] = frozenset()
    ) -> EpisodeHead | None:
        """Return the episode of a point; None: it is deleted, hidden or private."""
        head = self._heads([int(made.passages[at])], hidden).get(int(made.passages[at]))
        private = Private() if with_private else self._services.engine.private()
        return None if head is None or private.holds(head) else head

    def found(
        self, made: MemoryMap, text: str, *, with_private: bool, hidden: Set[str] = frozenset()
    ) -> list[tuple[int, Episode]]:
        """Search the episodes on the map, best first, with their points; does not count as a retrieval."""
        include = ("*",) if with_private else ()
        query = SearchQuery(text, MAX_FOUND, track=False, include_private=include)
        hits = self._services.engine.search(query).hits
        order = np.argsort(made.passages, kind="stable")
        found: list[tuple[int, Episode]] = []
        for hit in (each for each in hits if each.episode.episode_id not in hidden):
            own = [each.passage_id for each in self._services.store.episodes.passages_of(hit.episode.episode_id)]
            found += [(point, hit.episode) for point in points_of(made.passages, order, own)[:1]]
        return found

    def state(self, *, asks: bool) -> MapState:
        """Return the state of the map; query Dagster only if `asks`."""
        store, made, problem = self._services.store, None, ""
        try:
            made = self.current()
        except StoreCorrupt as exc:
            problem = str(exc)
        space = store.spaces.active()
        embedded = store.vectors.progress(space.key).episodes_done if space else 0
        drawing, run, reason = self._drawing() if asks else ("asking", None, "")
        return MapState(
            made,
            made is not None and space is not None and made.model_id == space.model_id,
            abs(embedded - made.embedded) if made else 0,
            embedded,
            problem,
            drawing,
            run,
            reason,
        )

    def draw(self) -> tuple[str, bool]:
        """Start drawing a map; return the run's URL, and whether it was already running.

        :raises ServiceUnreachable: Dagster does not answer.
        """
        dagster = self._services.dagster
        latest = dagster.latest_run(JOB)
        if latest is not None and not latest.ended:
            return dagster.run_link(latest.run_id), True
        return dagster.run_link(dagster.launch_job(JOB)), False

    def _drawing(self) -> tuple[Drawing, str | None, str]:
        dagster = self._services.dagster
        try:
            latest = dagster.latest_run(JOB)
        except ServiceUnreachable as exc:
            return "away", None, str(exc)
        return _of_run(latest), dagster.run_link(latest.run_id) if latest else None, ""

    def _known(self, made: MemoryMap, hidden: Set[str], private: Private) -> dict[int, EpisodeHead]:
        """Map each project index to its most central episode that still exists and is not private."""
        known: dict[int, EpisodeHead] = {}
        for nth in range(made.centres.shape[1]):
            wanted = {n: int(row[nth]) for n, row in enumerate(made.centres) if n not in known and row[nth] != NONE}
            heads = self._heads(list(wanted.values()), hidden) if wanted else {}
            shown = {passage: head for passage, head in heads.items() if not private.holds(head)}
            known |= {n: shown[passage] for n, passage in wanted.items() if passage in shown}
        return dict(sorted(known.items()))

    def _heads(self, passages: Sequence[int], hidden: Set[str]) -> dict[int, EpisodeHead]:
        episodes = self._services.store.episodes
        stored = episodes.passages(passages)
        heads = episodes.heads([each.episode_id for each in stored.values()])
        shown = heads.keys() - hidden
        return {key: heads[each.episode_id] for key, each in stored.items() if each.episode_id in shown}


def points_of(passages: NDArray[np.int64], order: NDArray[np.intp], wanted: Sequence[int]) -> list[int]:
    """Return the points of these passages; `order` sorts the map's passages. Pure."""
    at = np.searchsorted(passages, wanted, sorter=order)
    found = [int(order[place]) for place in at if place < len(order)]
    return [point for point in found if passages[point] in wanted]


def points_body(made: MemoryMap, groups: Sequence[Group]) -> bytes:
    """Return the page's data: the length of a JSON text (4 bytes, little-endian), that text padded to an even length,
    `{"mark", "groups": [{"name", "start", "count"}]}`, then x and y of each point of these groups in order (2 bytes
    each, little-endian). Pure.
    """
    shown = [{"name": group.name, "start": group.start, "count": group.count} for group in groups]
    head = json.dumps({"mark": made.mark, "groups": shown}, ensure_ascii=False).encode()
    head += b" " * (len(head) % 2)
    places = [made.places[group.start : group.start + group.count] for group in groups]
    drawn = np.concatenate(places) if places else np.empty((0, 2), np.uint16)
    return struct.pack("<I", len(head)) + head + drawn.astype("<u2").tobytes()


def _of_run(latest: JobRun | None) -> Drawing:
    """Return the drawing state that the newest run of the job implies. Pure."""
    if latest is None or latest.status in ("SUCCESS", "CANCELED"):
        return "no"
    if latest.ended:
        return "failed"
    return "goes on" if latest.status == "STARTED" else "waits"


def _seen(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size

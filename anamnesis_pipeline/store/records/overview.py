"""What a store counts for people who look at it. A call looks at every episode once, not its text."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

from anamnesis_pipeline.model import EXCLUDED, EpisodeFilter, RecordType, content_id
from anamnesis_pipeline.store.gateway import Gateway, Match
from anamnesis_pipeline.store.memory_layers import PROCEDURE
from anamnesis_pipeline.store.tables import NOT_EMPTY, NOT_NULL, TEXT

EVERYTHING = EpisodeFilter(include_superseded=True)
Grouping = Literal["layer", "kind", "month", "day", "hour", "project", "type", "source", "instance"]
"""What episodes are counted by. `month`, `day`, `hour`: `2026-05`, `2026-05-17`, `2026-05-17T09`, in UTC. `type`: of a
record, the type among its tags; else the kind.
"""
RECORD_TYPES = sorted({*map(str, RecordType), PROCEDURE})
_UNREAD: Match = {
    "gone": 0,
    "unread": NOT_EMPTY,
    "$or": [{"unread": {"$lt": EXCLUDED}}, {"unread": {"$gte": EXCLUDED[:-1] + chr(ord(EXCLUDED[-1]) + 1)}}],
}
"""Files that there are and that the last attempt could not read; not those whose reason begins with `EXCLUDED`."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """How many episodes a source has, superseded ones too, and of when the newest is."""

    episodes: int
    newest: datetime


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """Row counts of one source (or of all): the watermark of its stages."""

    files: int = 0
    files_gone: int = 0
    files_unread: int = 0
    """Those there are that the last attempt could not read, but for what a rule keeps away."""
    bytes: int = 0
    lines: int = 0
    unparsed_lines: int = 0
    messages: int = 0
    occurrences: int = 0
    dead_letters: int = 0
    exchanges: int = 0
    parts: int = 0
    open_parts: int = 0
    kept_away: int = 0
    """Parts that are no episodes on purpose: a rule holds them, or their episode was deleted."""
    summaries: int = 0
    episodes: int = 0
    passages: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """Episodes by what became of them.

    `curated`: a user wrote them down to be remembered, edited them, or let them last (`memory_layers.LASTING_KINDS`,
    `LASTING_TAGS`), of the active ones. `replaced`: another one stands for them. `confirmed`: searches found them more
    than once. `retrievals`: how often any was found.
    """

    episodes: int = 0
    active: int = 0
    curated: int = 0
    replaced: int = 0
    confirmed: int = 0
    retrievals: int = 0


@dataclass(frozen=True, slots=True)
class Census:
    """How many episodes pass a filter, of which projects and instances, those with the most first; and how often any
    was found.
    """

    episodes: int = 0
    retrievals: int = 0
    projects: Mapping[str, int] = field(default_factory=dict)
    instances: Mapping[str, int] = field(default_factory=dict)


class OverviewRecords(ABC):
    """Counts over all episodes. Those that a verb of the gateway would make slower are statements of each engine: they
    filter, look for the newest or sum several conditions in one pass.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @abstractmethod
    def sources(self) -> dict[str, SourceState]:
        """Return source -> what it has, for those that have an episode."""

    @abstractmethod
    def tally(self) -> Tally:
        """Return the tally of all that is stored."""

    @abstractmethod
    def census(self, where: EpisodeFilter = EVERYTHING) -> Census:
        """Return the census of what passes the filter. Cheap enough for a page: some 50 ms for 100,000 episodes."""

    @abstractmethod
    def days(self, where: EpisodeFilter) -> dict[date, int]:
        """Return day (UTC) -> episodes of that day that pass the filter, for those that have one, the earliest
        first.
        """

    @abstractmethod
    def groups(self, by: Grouping, where: EpisodeFilter, now: datetime) -> dict[str, int]:
        """Return value -> episodes that pass the filter and have it, those with the most first; each counts once.

        :param now: when the layers are those; of no other grouping.
        """

    @abstractmethod
    def most_read(self, where: EpisodeFilter, limit: int) -> list[str]:
        """Return the ids of episodes that pass the filter and were found, those most often first, then those found
        last.
        """

    @abstractmethod
    def kept_away(self, tables: Any, source: str | None) -> int:
        """Count the parts that are no episodes on purpose, in the transaction of `tables`."""

    def content_of(self, source: str) -> str:
        """Return a hash of the episodes of a source and their passages. Replacing one by another does not change it."""
        with self._gateway.read() as tables:
            rows = tables["episodes"].find({"source": source}, ["stored_hash"])
        return content_id(*sorted(row["stored_hash"] for row in rows))

    def counts(self, source: str | None = None) -> SourceCounts:
        """Count the rows of a source, or of everything. Each count reads an index or the small table of files."""
        of: Match = {"source": TEXT if source is None else source}
        with self._gateway.snapshot() as tables:
            files, parts = tables["files"], tables["parts"]
            (read,) = files.sums(of, ["gone", "offset", "lines"])
            (parsed,) = files.sums({**of, "parsed_lines": {"$gt": 0}}, ["parsed_lines"])
            (episodes,) = tables["episodes"].sums(of, ["passages"])
            return SourceCounts(
                files=read["rows"],
                files_gone=read["gone"],
                files_unread=files.count({**of, **_UNREAD}),
                bytes=read["offset"],
                lines=read["lines"],
                unparsed_lines=read["lines"] - parsed["parsed_lines"],
                messages=tables["messages"].count({**of, "canonical": ""}),
                occurrences=tables["occurrences"].count(of),
                dead_letters=tables["dead_letters"].count(of),
                exchanges=parts.count(of, by=["source", "exchange_id"]),
                parts=parts.count(of),
                open_parts=parts.count({**of, "closed": 0}),
                kept_away=self.kept_away(tables, source),
                summaries=parts.count({**of, "summarized_hash": NOT_NULL}),
                episodes=episodes["rows"],
                passages=episodes["passages"],
            )

"""The contract of what a store counts for people who look at it. A call looks at every episode once, not its text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Protocol

from anamnesis_pipeline.model import Where

EVERYTHING = Where(include_superseded=True)


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

    `curated`: somebody wrote them down to be remembered, edited them, or let them last (`memory_layers.LASTING_KINDS`,
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


class OverviewRecords(Protocol):
    """Counts over all episodes."""

    def sources(self) -> dict[str, SourceState]:
        """Source -> what it has, for those that have an episode."""

    def tally(self) -> Tally:
        """Of all that is stored."""

    def census(self, where: Where = EVERYTHING) -> Census:
        """Of what passes the filter. Cheap enough for a page: some 50 ms for 100,000 episodes."""

    def days(self, where: Where) -> dict[date, int]:
        """Day (UTC) -> episodes of that day that pass the filter, for those that have one, the earliest first."""

    def most_read(self, where: Where, limit: int) -> list[str]:
        """Ids of episodes that pass the filter and were found, those most often first, then those found last."""

    def counts(self, source: str | None = None) -> SourceCounts:
        """Row counts of a source, or of everything."""

"""The contract of what a store counts for people who look at it. A call looks at every episode once, not its text."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SourceState:
    """How many episodes a source has, superseded ones too, and of when the newest is."""

    episodes: int
    newest: datetime


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


class OverviewRecords(Protocol):
    """Counts over all episodes."""

    def sources(self) -> dict[str, SourceState]:
        """Source -> what it has, for those that have an episode."""

    def tally(self) -> Tally:
        """Of all that is stored."""

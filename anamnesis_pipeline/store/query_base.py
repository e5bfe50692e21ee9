"""The contract of what a store keeps of the questions that were asked of the memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

QUERIES_KEPT = 5_000
"""Questions that are remembered, the latest ones."""
QUERY_EXPIRES = timedelta(days=90)
USED_WITHIN = timedelta(minutes=30)
"""So soon after a question whoever reads what it found is taken for who asked: no reader names the question."""


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A question. `asked` is what else was said in it: mode, project, other filters; `asked_at` is the last time.

    `times`: how often it was asked; of unanswered ones how often in vain.
    """

    query: str
    asked: Mapping[str, Any]
    asked_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class QueryCounts:
    """Questions that are remembered, those that found something, and those of which something found was read."""

    queries: int
    answered: int
    used: int


class QueryRecords(Protocol):
    """The latest questions and what they found. Bounded by the constants above, whatever is asked.

    When an episode is removed, so are the questions that found it: they may say what it said.
    """

    def note(self, query: str, asked: Mapping[str, Any], results: Sequence[str], when: datetime) -> None:
        """Remember a question, secrets masked, and the ids of the episodes that it found; nothing where one of them is
        gone by now.
        """

    def use(self, episode_id: str, when: datetime) -> bool:
        """Note that an episode was read: the latest question of the last USED_WITHIN that found it was helped by it.
        False, and nothing is written, where there is none.
        """

    def counts(self) -> QueryCounts:
        """Of all that is remembered."""

    def unanswered(self, limit: int) -> list[AskedQuery]:
        """Questions that found nothing the last time they were asked so, each once, the latest first."""

    def latest(self, projects: Sequence[str], limit: int) -> list[AskedQuery]:
        """The latest questions that were asked of any of these projects, by their whole names, each text once."""

    def every(self) -> dict[int, AskedQuery]:
        """Number -> question, each time that it was asked, the oldest first."""

    def remove(self, numbers: Collection[int]) -> None:
        """Forget these questions."""

    def clear(self) -> None:
        """Forget all of it."""

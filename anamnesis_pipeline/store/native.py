"""What an engine does in its own form: pages and counts by a filter, and what lacks vectors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.gateway import Row


@dataclass(frozen=True, slots=True)
class Lacking:
    """An episode that was written, and its passages: the keys of `old` ones, which may have vectors, and how many `new`
    ones, which have none.
    """

    number: int
    episode_id: str
    source: str
    timestamp: str
    old: Sequence[int]
    new: int


class Native(Protocol):
    """Work within the transaction of `tables`, which are those of the engine."""

    def page(
        self,
        tables: Any,
        where: Where,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
        *,
        oldest_first: bool = False,
    ) -> list[Row]:
        """Return rows with `EPISODE_FIELDS` of episodes that pass a filter, by (timestamp, id), newest first unless
        asked otherwise. `after`: only those that follow this place.
        """

    def count(self, tables: Any, where: Where) -> int:
        """Count the episodes that pass a filter."""

    def projects(self, tables: Any) -> list[str]:
        """Return the projects of episodes, sorted. Searches ask this, so it costs what there are projects."""

    def note_lacking(self, tables: Any, written: Sequence[Lacking]) -> None:
        """Count what these episodes lack in every space."""

    def prepare(self, texts: Iterable[str]) -> None:
        """Work out what is made of the texts of passages that a transaction will write, before it begins. An engine
        that has nothing to work out does not ask for them, since that reads the store.
        """

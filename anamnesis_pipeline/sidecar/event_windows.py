"""Grouping of events for display: repeats by one process within two seconds are one row with a count. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from anamnesis_pipeline.store.records.events import Event, Happening

WINDOW = timedelta(seconds=2)
"""Repeats by one process within this time are one row."""

_Key = tuple[Happening, int, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Events of one kind, process and project. `number` is that of the first event and identifies the row. `events`
    events concern `episodes` episodes in all; `episode_id` is the first.
    """

    number: int
    at: datetime
    kind: Happening
    process: int
    project: str
    episode_id: str
    events: int
    episodes: int


class Windows:
    """Groups events into rows, in order of arrival. Keeps one open row per kind, process and project of the last
    window.
    """

    def __init__(self, window: timedelta = WINDOW) -> None:
        self._window = window
        self._open: dict[_Key, Row] = {}

    def add(self, events: Iterable[Event]) -> list[Row]:
        """Return the current state of each row that these events created or changed, ordered by first event.

        A window starts with its first event and is fixed, so that a row is complete two seconds later.
        """
        touched: dict[int, Row] = {}
        for event in events:
            row = self._with(event)
            self._open[event.kind, event.process, event.project] = touched[row.number] = row
        if touched:
            self._close(max(row.at for row in touched.values()))
        return sorted(touched.values(), key=lambda row: row.number)

    def _with(self, event: Event) -> Row:
        row = self._open.get((event.kind, event.process, event.project))
        if row is None or not timedelta() <= event.at - row.at < self._window:
            return Row(
                event.number, event.at, event.kind, event.process, event.project, event.episode_id, 1, event.episodes
            )
        is_same = event.episodes == 1 and bool(event.episode_id) and event.episode_id == row.episode_id
        episodes = row.episodes + (0 if is_same else event.episodes)
        return replace(row, events=row.events + 1, episodes=episodes)

    def _close(self, now: datetime) -> None:
        over = [key for key, row in self._open.items() if now - row.at >= self._window]
        for key in over:
            del self._open[key]

"""Events as people read them: what one process did again and again within two seconds is one row with a count. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from anamnesis_pipeline.store.records.events import Event, Happening

WINDOW = timedelta(seconds=2)
"""In which the same of one process is one row."""

_Key = tuple[Happening, int, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Events of one kind, process and project. `number`: that of the first, which names the row. `events` of them were
    about `episodes` in all, of which `episode_id` was the first.
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
    """Puts events into rows as they come, in their order. Remembers one open row for each kind, process and project of
    the last window.
    """

    def __init__(self, window: timedelta = WINDOW) -> None:
        self._window = window
        self._open: dict[_Key, Row] = {}

    def add(self, events: Iterable[Event]) -> list[Row]:
        """The rows that these events made or changed, each once, as they are now; in the order of their first events.

        A window begins with its first event and does not move, so that a row is complete two seconds later.
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

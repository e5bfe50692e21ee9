"""What happened to episodes, as rows; see `EventRecords`."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.store import event_base
from anamnesis_pipeline.store.event_base import Event, Happening
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import instant, json_list, moment, sought

REMOVED_EVERY = 256
"""Old events are removed once in so many."""
_OF_KINDS = "(?1 = '[]' OR kind IN (SELECT value FROM json_each(?1)))"
_COLUMNS = "number, at, kind, process, episode_id, episodes, project"


class SqliteEvents:
    """See `EventRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, number: int, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """See `EventRecords.since`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM events WHERE {_OF_KINDS} AND number > ?2 ORDER BY number LIMIT ?3",  # noqa: S608
                (json_list(kinds), number, limit),
            )
            return [_read_row(row) for row in rows]

    def latest(self, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """See `EventRecords.latest`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM events WHERE {_OF_KINDS} ORDER BY number DESC LIMIT ?2",  # noqa: S608
                (json_list(kinds), max(0, limit)),
            ).fetchall()
        return [_read_row(row) for row in reversed(rows)]

    def of(self, episode_id: str, limit: int) -> list[Event]:
        """See `EventRecords.of`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM events WHERE episode_id = ? ORDER BY number DESC LIMIT ?",  # noqa: S608
                (sought(episode_id), max(0, limit)),
            ).fetchall()
        return [_read_row(row) for row in reversed(rows)]

    def counts(self) -> dict[str, int]:
        """See `EventRecords.counts`."""
        with self._database.read() as connection:
            found = Counter(dict(connection.execute("SELECT kind, count(*) FROM events GROUP BY kind").fetchall()))
        return {kind: found[kind] for kind in Happening}

    def clear(self) -> None:
        """See `EventRecords.clear`."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM events")


def note(connection: sqlite3.Connection, kind: Happening, episode_ids: Sequence[str]) -> None:
    """One event about these episodes; none where there are none."""
    if not episode_ids:
        return
    first = episode_ids[0]
    project = connection.execute("SELECT project FROM episodes WHERE episode_id = ?", (first,)).fetchone()
    of, process = project[0] if project else "", event_base.this_process()
    number = connection.execute(
        "INSERT INTO events (at, kind, process, episode_id, episodes, project) VALUES (?, ?, ?, ?, ?, ?)",
        (instant(datetime.now(UTC)), kind, process, first, len(episode_ids), of),
    ).lastrowid
    if number is not None and number % REMOVED_EVERY == 0:
        connection.execute("DELETE FROM events WHERE number <= ?", (number - event_base.EVENTS_KEPT,))


def _read_row(row: Sequence[Any]) -> Event:
    number, at, kind, process, episode_id, episodes, project = row
    return Event(number, moment(at), Happening(kind), process, episode_id, episodes, project)

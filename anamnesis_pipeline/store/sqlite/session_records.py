"""Sessions and their records in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.session_base import File, NewRecord, SessionState
from anamnesis_pipeline.store.sqlite import session_notes
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.episode_rows import SET_STATUS
from anamnesis_pipeline.store.sqlite.episodes import drop_session_records, put_episode, remove_episode
from anamnesis_pipeline.store.values import clean, instant, json_list

_AMONG = "IN (SELECT value FROM json_each(?))"


class SqliteSessions:
    """See `SessionRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changed(self, source: str, after: str, limit: int) -> list[str]:
        """See `SessionRecords.changed`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT session_id FROM session_notes n
                    WHERE source = ? AND noted > 0 AND session_id > ? AND NOT {session_notes.IS_OPEN}
                    ORDER BY session_id LIMIT ?""",
                (source, after, limit),
            )
            return [session_id for (session_id,) in rows]

    def states(self, session_ids: Iterable[str]) -> list[SessionState]:
        """See `SessionRecords.states`."""
        ids = json_list(session_ids)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT source, session_id, noted, root, revision, until, branch, {session_notes.IS_OPEN}
                    FROM session_notes n WHERE session_id {_AMONG} OR root <> '' AND root IN (
                        SELECT root FROM session_notes WHERE session_id {_AMONG})
                    ORDER BY source, session_id""",
                (ids, ids),
            )
            return [replace(SessionState(*row), is_open=bool(row[-1])) for row in rows]

    def told(self, source: str, session_id: str) -> list[str]:
        """See `SessionRecords.told`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT part_id FROM parts p JOIN episodes e ON e.episode_id = p.part_id
                    WHERE p.session_id = ? AND p.source = ? AND p.held_by IS NULL AND e.edited < 2
                    ORDER BY p.started_at, p.path, p.ordinal, p.part_id""",
                (session_id, source),
            )
            return [part_id for (part_id,) in rows]

    def copied(self, files: Iterable[File], limit: int) -> list[str]:
        """See `SessionRecords.copied`."""
        found: list[str] = []
        with self._database.read() as connection:
            for file in sorted(set(files)):
                rows = connection.execute(
                    """SELECT message_key FROM occurrences WHERE source = ? AND path = ?
                        AND (message_key GLOB 'u:*' OR message_key GLOB 'f:u:*') ORDER BY line LIMIT ?""",
                    (*file, limit - len(found)),
                )
                found += [key for (key,) in rows]
        return found

    def sessions_of(self, files: Iterable[File]) -> dict[File, set[str]]:
        """See `SessionRecords.sessions_of`."""
        with self._database.read() as connection:
            return {
                file: {
                    session_id
                    for (session_id,) in connection.execute(
                        "SELECT DISTINCT session_id FROM parts WHERE source = ? AND path = ? AND agent_id = ''", file
                    )
                }
                for file in set(files)
            }

    def note_branches(self, source: str, branches: Mapping[str, str]) -> None:
        """See `SessionRecords.note_branches`."""
        for batch in batches(sorted(branches.items())):
            with self._database.write() as connection:
                connection.executemany(
                    """INSERT INTO session_notes (source, session_id, noted, branch) VALUES (?, ?, 0, ?)
                        ON CONFLICT (source, session_id) DO UPDATE SET branch = excluded.branch""",
                    [(source, session_id, clean(branch)) for session_id, branch in batch],
                )

    def join(self, members: Sequence[SessionState], root: str) -> bool:
        """See `SessionRecords.join`."""
        with self._database.write() as connection:
            if not _are_as_they_were(connection, members):
                return False
            _part_from_others(connection, members)
            connection.executemany(
                "UPDATE session_notes SET root = ? WHERE source = ? AND session_id = ?",
                [(root, *member.key) for member in members],
            )
        return True

    def settle(self, members: Sequence[SessionState], record: NewRecord | None, gone: Sequence[SessionState]) -> bool:
        """See `SessionRecords.settle`."""
        with self._database.write() as connection:
            if not _are_as_they_were(connection, [*members, *gone]):
                return False
            if record is not None:
                _write_record(connection, members, record)
            for member in gone:
                for episode_id in session_notes.record_ids(connection, member.source, [member.key]):
                    remove_episode(connection, episode_id)
            keys = [member.key for member in gone]
            connection.executemany("DELETE FROM session_notes WHERE source = ? AND session_id = ?", keys)
            connection.executemany(
                "UPDATE session_notes SET noted = 0 WHERE source = ? AND session_id = ?",
                [member.key for member in members],
            )
        return True


def _are_as_they_were(connection: sqlite3.Connection, members: Sequence[SessionState]) -> bool:
    """Whether nothing happened to these since they were read."""
    return all(
        connection.execute(
            "SELECT noted, branch FROM session_notes WHERE source = ? AND session_id = ?", member.key
        ).fetchone()
        == (member.noted, member.branch)
        for member in members
    )


def _part_from_others(connection: sqlite3.Connection, members: Sequence[SessionState]) -> None:
    """Remove the records that hold sessions beside these, and note those, which are in no record then."""
    own = {member.key for member in members}
    for member in members:
        left = [key for key in session_notes.in_record_with(connection, *member.key) if key not in own]
        if left:
            drop_session_records(connection, *member.key)
            connection.executemany(
                "UPDATE session_notes SET root = '', noted = noted + 1 WHERE source = ? AND session_id = ?", left
            )


def _write_record(connection: sqlite3.Connection, members: Sequence[SessionState], record: NewRecord) -> None:
    episode = episode_values.storable(record.episode)
    outcome = put_episode(connection, episode, episode_values.storable_passages(record.passages))
    former = session_notes.record_ids(connection, record.root.source, [member.key for member in members])
    if outcome != "tombstoned":
        connection.execute(
            f"{SET_STATUS} WHERE episode_id IN (SELECT value FROM json_each(?3)) AND episode_id <> ?2"
            " AND status = 'active'",
            ("superseded", episode.episode_id, json_list(former), instant(datetime.now(UTC))),
        )
    connection.execute(
        "UPDATE session_notes SET revision = ?, until = ? WHERE source = ? AND session_id = ?",
        (record.revision, record.until, *record.root.key),
    )

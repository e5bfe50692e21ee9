"""What sessions were shown, and the latest of a project, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.store import context_base
from anamnesis_pipeline.store.context_base import SESSION_EXPIRES, SessionMemory, Shown
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.episode_rows import SELECT_EPISODES, read_row
from anamnesis_pipeline.store.values import clean, indexed, instant, moment


class SqliteContext:
    """See `ContextRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def session(self, session_id: str) -> SessionMemory:
        """See `ContextRecords.session`."""
        session_id = clean(session_id)
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT restarted_at FROM context_sessions WHERE session_id = ?", (session_id,)
            ).fetchone()
            shown = connection.execute(
                "SELECT episode_id, passage_id FROM context_shown WHERE session_id = ? ORDER BY number", (session_id,)
            ).fetchall()
        return SessionMemory(
            tuple(Shown(episode_id, passage_id) for episode_id, passage_id in shown),
            moment(row[0]) if row is not None and row[0] else None,
        )

    def show(self, session_id: str, items: Sequence[Shown], when: datetime) -> set[str]:
        """See `ContextRecords.show`."""
        session_id, new = clean(session_id), set()
        with self._database.write() as connection:
            _note_session(connection, session_id, when)
            for item in items:
                added = connection.execute(
                    """INSERT INTO context_shown (session_id, episode_id, number, passage_id)
                        SELECT ?1, ?2, coalesce(max(number), 0) + 1, ?3 FROM context_shown WHERE session_id = ?1
                        ON CONFLICT (session_id, episode_id) DO NOTHING""",
                    (session_id, clean(item.episode_id), item.passage_id),
                ).rowcount
                new |= {item.episode_id} if added else set()
            connection.execute(
                """DELETE FROM context_shown WHERE session_id = ?1 AND number <=
                    (SELECT max(number) FROM context_shown WHERE session_id = ?1) - ?2""",
                (session_id, context_base.SHOWN_KEPT),
            )
            _expire(connection, when)
        return new

    def restart(self, session_id: str, when: datetime) -> None:
        """See `ContextRecords.restart`."""
        session_id = clean(session_id)
        with self._database.write() as connection:
            _note_session(connection, session_id, when)
            connection.execute(
                "UPDATE context_sessions SET restarted_at = ? WHERE session_id = ?", (instant(when), session_id)
            )
            connection.execute("DELETE FROM context_shown WHERE session_id = ?", (session_id,))
            _expire(connection, when)

    def has_project(self, project: str) -> bool:
        """See `ContextRecords.has_project`."""
        with self._database.read() as connection:
            row = connection.execute("SELECT 1 FROM episodes WHERE project = ? LIMIT 1", (indexed(project),)).fetchone()
        return row is not None

    def newest(self, project: str, kind: str, limit: int, before: datetime | None = None) -> list[Episode]:
        """See `ContextRecords.newest`."""
        earlier, values = ("AND e.timestamp < ?", [instant(before)]) if before is not None else ("", [])
        with self._database.read() as connection:
            rows = connection.execute(
                f"""{SELECT_EPISODES} WHERE e.project = ? AND e.kind = ? AND e.status = 'active' {earlier}
                    ORDER BY e.timestamp DESC, e.episode_id DESC LIMIT ?""",
                (indexed(project), clean(kind), *values, limit),
            ).fetchall()
        return [read_row(row) for row in rows]

    def newest_tagged(self, project: str, tag: str, limit: int) -> list[Episode]:
        """See `ContextRecords.newest_tagged`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""{SELECT_EPISODES} WHERE e.episode_key IN (
                        SELECT episode_key FROM episodes WHERE episode_key IN (
                            SELECT episode_key FROM episode_tags WHERE tag = ? ORDER BY episode_key DESC LIMIT ?)
                        AND +project = ? AND +status = 'active' ORDER BY +timestamp DESC, episode_id DESC LIMIT ?)
                    ORDER BY e.timestamp DESC, e.episode_id DESC""",  # +: from those keys, not from an index
                (clean(tag), context_base.TAGGED_AMONG, indexed(project), limit),
            ).fetchall()
        return [read_row(row) for row in rows]


def _note_session(connection: sqlite3.Connection, session_id: str, when: datetime) -> None:
    connection.execute(
        """INSERT INTO context_sessions (session_id, seen_at) VALUES (?, ?)
            ON CONFLICT (session_id) DO UPDATE SET seen_at = excluded.seen_at""",
        (session_id, instant(when)),
    )


def _expire(connection: sqlite3.Connection, when: datetime) -> None:
    gone = connection.execute(
        """DELETE FROM context_sessions WHERE session_id IN (
                SELECT session_id FROM context_sessions WHERE seen_at < ?1
                UNION SELECT session_id FROM (
                    SELECT session_id FROM context_sessions ORDER BY seen_at DESC LIMIT -1 OFFSET ?2))
            RETURNING session_id""",
        (instant(when - SESSION_EXPIRES), context_base.SESSIONS_KEPT),
    ).fetchall()
    connection.executemany("DELETE FROM context_shown WHERE session_id = ?", gone)

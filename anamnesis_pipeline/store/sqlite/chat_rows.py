"""Conversations in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from anamnesis_pipeline.chat_model import FORGOTTEN, ChatMessage, ChatSession
from anamnesis_pipeline.store.chat_base import (
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    Cited,
    FeedbackCounts,
    SessionPage,
    cited_of,
    cut,
    message_row,
    messages_of,
    renamed,
    session_of,
    session_row,
)
from anamnesis_pipeline.store.paging import cursor_at, read_cursor
from anamnesis_pipeline.store.sqlite.chat_schema import FORGETS
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import instant, json_list, moment

_SESSION = ", ".join(SESSION_FIELDS)
_MESSAGE = ", ".join(MESSAGE_FIELDS)
_COUNT = "(SELECT count(*) FROM chat_messages m WHERE m.session_id = s.session_id) AS messages"


class SqliteChat:
    """See `ChatRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_session(self, session: ChatSession) -> None:
        """See `ChatRecords.put_session`."""
        row = session_row(session)
        with self._database.write() as connection:
            connection.execute(
                f"""INSERT INTO chat_sessions ({_SESSION}) VALUES ({", ".join(f":{name}" for name in SESSION_FIELDS)})
                    ON CONFLICT (session_id) DO UPDATE SET backend = excluded.backend, model = excluded.model,
                        worker_url = excluded.worker_url, project = excluded.project,
                        updated_at = excluded.updated_at""",
                row,
            )

    def session(self, session_id: str) -> ChatSession | None:
        """See `ChatRecords.session`."""
        found = self._sessions("session_id = ?", (session_id,), 1)
        return session_of(found[0], found[0]["messages"]) if found else None

    def sessions(self, limit: int, cursor: str | None = None, words: str = "") -> SessionPage:
        """See `ChatRecords.sessions`."""
        terms, values = ["instr(casefold(title), ?) > 0"], [words.casefold()]
        if cursor is not None:
            when, name = read_cursor(cursor)
            terms.append("(updated_at, session_id) < (?, ?)")
            values += [instant(when), name]
        rows, last = cut(self._sessions(" AND ".join(terms), values, limit + 1), limit)
        items = [session_of(row, row["messages"]) for row in rows]
        return SessionPage(items, cursor_at(moment(last[0]), last[1]) if last else None)

    def rename(self, session_id: str, title: str, when: datetime) -> bool:
        """See `ChatRecords.rename`."""
        with self._database.write() as connection:
            rows = _rows(
                connection.execute("SELECT title, name_history FROM chat_sessions WHERE session_id = ?", (session_id,))
            )
            for row in rows:
                change = renamed(row, title, when) or row
                connection.execute(
                    "UPDATE chat_sessions SET title = ?, name_history = ? WHERE session_id = ?",
                    (change["title"], change["name_history"], session_id),
                )
        return bool(rows)

    def rewrite(self, session: ChatSession) -> None:
        """See `ChatRecords.rewrite`."""
        with self._database.write() as connection:
            connection.execute(
                """UPDATE chat_sessions SET title = :title, project = :project, name_history = :name_history
                    WHERE session_id = :session_id""",
                session_row(session),
            )

    def delete(self, session_id: str) -> bool:
        """See `ChatRecords.delete`."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM chat_messages WHERE session_id = ?", (session_id,))
            found = connection.execute("DELETE FROM chat_sessions WHERE session_id = ?", (session_id,))
            return found.rowcount > 0

    def add(self, message: ChatMessage) -> None:
        """See `ChatRecords.add`."""
        row = message_row(message)
        with self._database.write() as connection:
            known = connection.execute(
                "SELECT number FROM chat_messages WHERE message_id = ?", (message.message_id,)
            ).fetchone()
            (last,) = connection.execute(
                "SELECT coalesce(max(number), 0) FROM chat_messages WHERE session_id = ?", (message.session_id,)
            ).fetchone()
            connection.execute(
                f"""INSERT INTO chat_messages ({_MESSAGE})
                    SELECT {", ".join(f":{name}" for name in MESSAGE_FIELDS)}
                    WHERE EXISTS (SELECT 1 FROM chat_sessions WHERE session_id = :session_id)
                    ON CONFLICT (message_id) DO UPDATE SET
                        {", ".join(f"{name} = excluded.{name}" for name in MESSAGE_FIELDS[1:])}""",
                {**row, "number": known[0] if known else last + 1},
            )
            connection.execute(
                "UPDATE chat_sessions SET updated_at = max(updated_at, :at) WHERE session_id = :session_id", row
            )

    def forget(self, message_ids: Iterable[str]) -> None:
        """See `ChatRecords.forget`."""
        these = {"ids": json.dumps(sorted(message_ids)), "gone": FORGOTTEN}
        of_these = "message_id IN (SELECT value FROM json_each(:ids))"
        with self._database.write() as connection:
            rows = connection.execute(f"SELECT DISTINCT session_id FROM chat_messages WHERE {of_these}", these)
            sessions = json.dumps([session_id for (session_id,) in rows])
            connection.execute(
                f"""UPDATE chat_sessions SET title = :gone, name_history = '[]' WHERE session_id IN (
                    SELECT session_id FROM chat_messages WHERE {of_these} AND number = 1)""",
                these,
            )
            connection.execute(f"UPDATE chat_messages SET {FORGETS} WHERE {of_these}", these)
            left = "SELECT 1 FROM chat_messages m WHERE m.session_id = s.session_id AND m.text <> :gone"
            connection.execute(
                f"""DELETE FROM chat_sessions AS s WHERE NOT EXISTS ({left})
                    AND session_id IN (SELECT value FROM json_each(:sessions))""",
                {"gone": FORGOTTEN, "sessions": sessions},
            )
            connection.execute(
                """DELETE FROM chat_messages WHERE session_id IN (SELECT value FROM json_each(?))
                    AND session_id NOT IN (SELECT session_id FROM chat_sessions)""",
                (sessions,),
            )

    def want_records(self, message_id: str, when: datetime | None) -> None:
        """See `ChatRecords.want_records`."""
        at = instant(when) if when else ""
        with self._database.write() as connection:
            connection.execute("UPDATE chat_messages SET records_at = ? WHERE message_id = ?", (at, message_id))

    def records_due(self, now: datetime, limit: int) -> list[str]:
        """See `ChatRecords.records_due`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT message_id FROM chat_messages WHERE records_at <> '' AND records_at <= ?
                    ORDER BY records_at, message_id LIMIT ?""",
                (instant(now), limit),
            ).fetchall()
        return [message_id for (message_id,) in rows]

    def messages(self, session_id: str) -> list[ChatMessage]:
        """See `ChatRecords.messages`."""
        return self._messages("session_id = ? ORDER BY number", (session_id,))

    def message(self, message_id: str) -> ChatMessage | None:
        """See `ChatRecords.message`."""
        found = self._messages("message_id = ?", (message_id,))
        return found[0] if found else None

    def rate(self, message_id: str, value: int) -> bool:
        """See `ChatRecords.rate`."""
        with self._database.write() as connection:
            found = connection.execute(
                "UPDATE chat_messages SET feedback = ? WHERE message_id = ? AND role = 'assistant'",
                (value, message_id),
            )
            return found.rowcount > 0

    def feedback(self) -> FeedbackCounts:
        """See `ChatRecords.feedback`."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT count(*) FILTER (WHERE feedback > 0), count(*) FILTER (WHERE feedback < 0) FROM chat_messages "
                "WHERE feedback <> 0"
            ).fetchone()
        return FeedbackCounts(*row)

    def cited_by(self, episode_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """See `ChatRecords.cited_by`."""
        query = "SELECT episode_id, details FROM chat_messages WHERE episode_id IN (SELECT value FROM json_each(?))"
        with self._database.read() as connection:
            return cited_of(_rows(connection.execute(query, (json_list(episode_ids),))))

    def rated(self, limit: int, after: ChatMessage | None = None) -> list[ChatMessage]:
        """See `ChatRecords.rated`."""
        behind, values = ("AND (at, message_id) < (?, ?)", (instant(after.at), after.message_id)) if after else ("", ())
        return self._messages(f"feedback <> 0 {behind} ORDER BY at DESC, message_id DESC LIMIT ?", (*values, limit))

    def _sessions(self, where: str, values: Iterable[Any], limit: int) -> list[dict[str, Any]]:
        query = f"""SELECT {_SESSION}, {_COUNT} FROM chat_sessions s WHERE {where}
            ORDER BY updated_at DESC, session_id DESC LIMIT ?"""
        with self._database.read() as connection:
            return _rows(connection.execute(query, (*values, limit)))

    def _messages(self, where: str, values: Iterable[Any]) -> list[ChatMessage]:
        with self._database.read() as connection:
            rows = _rows(connection.execute(f"SELECT {_MESSAGE} FROM chat_messages WHERE {where}", tuple(values)))
            return messages_of(rows, lambda ids: _cited(connection, ids))


def _cited(connection: sqlite3.Connection, episode_ids: Sequence[str]) -> Cited:
    found = connection.execute(
        """SELECT e.episode_id, t.summary, e.project FROM json_each(?) asked
            JOIN episodes e ON e.episode_id = asked.value JOIN episode_texts t USING (episode_key)""",
        (json.dumps(episode_ids),),
    )
    return {episode_id: (summary, project) for episode_id, summary, project in found}


def _rows(found: sqlite3.Cursor) -> list[dict[str, Any]]:
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]

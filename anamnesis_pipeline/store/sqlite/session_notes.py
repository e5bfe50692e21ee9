"""Which sessions changed since their record was written, and which are one record, as rows."""

import sqlite3
from collections.abc import Iterable

from anamnesis_pipeline.session_model import SESSION_KIND, episode_id_of
from anamnesis_pipeline.store.session_base import is_of_log
from anamnesis_pipeline.store.values import as_json, json_list

IS_OPEN = """EXISTS (SELECT 1 FROM parts p INDEXED BY parts_open
    WHERE p.source = n.source AND p.closed = 0 AND p.session_id = n.session_id)"""
"""Whether a part of the session `n` still grows."""


def note(connection: sqlite3.Connection, source: str, session_id: str) -> None:
    """Something of a session came, changed or went."""
    if is_of_log(source, session_id):
        connection.execute(
            """INSERT INTO session_notes (source, session_id, noted) VALUES (?, ?, 1)
                ON CONFLICT (source, session_id) DO UPDATE SET noted = noted + 1""",
            (source, session_id),
        )


def in_record_with(connection: sqlite3.Connection, source: str, session_id: str) -> list[tuple[str, str]]:
    """The sessions (source, id) that are in a record with this one, itself included, also where it is in none."""
    rows = connection.execute(
        """SELECT o.source, o.session_id FROM session_notes n JOIN sources s ON s.key = n.source
            JOIN session_notes o ON o.root = n.root JOIN sources t ON t.key = o.source AND t.machine = s.machine
            WHERE n.source = ?1 AND n.session_id = ?2 AND n.root <> ''
            UNION SELECT ?1, ?2""",
        (source, session_id),
    )
    return rows.fetchall()


def record_ids(
    connection: sqlite3.Connection, source: str, sessions: Iterable[tuple[str, str]], further: int = 0
) -> list[str]:
    """Ids of the revisions of the records that begin in these sessions (source, id), all of the machine of `source`.

    :param further: revisions beside those that were written.
    """
    rows = connection.execute(
        """SELECT m.machine, n.session_id, n.revision FROM session_notes n JOIN sources m ON m.key = ?
            WHERE (n.source, n.session_id) IN (
                SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))""",
        (source, json_list(sessions)),
    ).fetchall()
    return [
        episode_id_of(machine, session_id, number)
        for machine, session_id, revision in rows
        for number in range(1, revision + 1 + further)
    ]


def imported_ids(connection: sqlite3.Connection, source: str, session_id: str) -> list[str]:
    """Ids of records of sessions, with this one among them, that are of a source which is no log."""
    rows = connection.execute(
        """SELECT e.episode_id FROM episodes e JOIN episode_texts t USING (episode_key)
            WHERE e.source = ? AND e.kind = ? AND ? <> '' AND instr(t.metadata, ?)""",
        (source, SESSION_KIND, session_id, as_json(session_id)),
    )
    return [episode_id for (episode_id,) in rows]

"""Which episodes stand for which others, as rows; what is to happen to them when an episode is written or removed."""

# only names of ours enter the SQL

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode
from anamnesis_pipeline.store.consolidation_base import Link, Regime
from anamnesis_pipeline.store.sqlite.episode_rows import SET_STATUS
from anamnesis_pipeline.store.values import instant, json_list

NOTE = """INSERT INTO unconsolidated (session_id, noted) VALUES (?, 1)
    ON CONFLICT (session_id) DO UPDATE SET noted = noted + 1"""


def note_session(connection: sqlite3.Connection, episode: Episode) -> None:
    """Something came to, or changed in, the session of an episode of a log."""
    if episode.session_id and episode.source not in RESERVED_SOURCES:
        connection.execute(NOTE, (episode.session_id,))


def hide_again(connection: sqlite3.Connection, episode_id: str) -> None:
    """An episode was written: if another one stands for it, it is hidden as it was."""
    rows = connection.execute(
        """SELECT l.episode_id, l.canonical FROM consolidated l
            JOIN episodes c ON c.episode_id = l.canonical JOIN episodes m ON m.episode_id = l.episode_id
            WHERE NOT l.undone AND l.episode_id = ? AND m.status = 'active'""",
        (episode_id,),
    ).fetchall()
    for member, canonical in rows:
        hide(connection, member, canonical)


def links_of(connection: sqlite3.Connection, episode_ids: Sequence[str]) -> dict[str, Link]:
    """See `ConsolidationRecords.links`."""
    rows = connection.execute(
        """SELECT episode_id, canonical, regime, undone FROM consolidated
            WHERE episode_id IN (SELECT value FROM json_each(?))""",
        (json_list(episode_ids),),
    )
    return {row[0]: Link(row[0], row[1], Regime(row[2]), bool(row[3])) for row in rows}


def members_of(connection: sqlite3.Connection, canonical: str) -> list[str]:
    """Ids of the episodes that this one stands for."""
    rows = connection.execute(
        "SELECT episode_id FROM consolidated WHERE canonical = ? AND NOT undone ORDER BY episode_id", (canonical,)
    )
    return [episode_id for (episode_id,) in rows]


def merged_of(connection: sqlite3.Connection, episode_id: str) -> str | None:
    """The merged episode that quotes this one, also one that was retired."""
    row = connection.execute(
        "SELECT canonical FROM consolidated WHERE episode_id = ? AND regime = ?",
        (episode_id, Regime.MERGE),
    ).fetchone()
    return row[0] if row else None


def release(connection: sqlite3.Connection, canonical: str) -> list[str]:
    """Let the episodes that this one stood for be active, and forget that it did; returns their ids. Their sessions
    are settled anew: another one may stand for them.
    """
    members = members_of(connection, canonical)
    for member in members:
        revive(connection, member, canonical)
    connection.execute("DELETE FROM consolidated WHERE canonical = ? AND NOT undone", (canonical,))
    sessions = connection.execute(
        """SELECT DISTINCT session_id FROM episode_texts JOIN episodes USING (episode_key)
            WHERE session_id <> '' AND episode_id IN (SELECT value FROM json_each(?))""",
        (json_list(members),),
    )
    connection.executemany(NOTE, sessions.fetchall())
    return members


def hide(connection: sqlite3.Connection, episode_id: str, canonical: str, before: str | None = None) -> int:
    """Let another episode stand for one that is active, or for which `before` stood; 1, or 0 where it is neither."""
    return connection.execute(
        f"{SET_STATUS} WHERE episode_id = ?3 AND (status = 'active' OR superseded_by = ?5)",
        ("superseded", canonical, episode_id, instant(datetime.now(UTC)), before),
    ).rowcount


def revive(connection: sqlite3.Connection, episode_id: str, canonical: str) -> int:
    """Let an episode that this one stood for be active; 1, or 0 where something else had superseded it."""
    return connection.execute(
        f"{SET_STATUS} WHERE episode_id = ?3 AND superseded_by = ?5",
        ("active", None, episode_id, instant(datetime.now(UTC)), canonical),
    ).rowcount


def undo(connection: sqlite3.Connection, episode_ids: Sequence[str]) -> None:
    """Note that somebody wants these as they are: no run links them again."""
    connection.execute(
        "UPDATE consolidated SET undone = 1 WHERE episode_id IN (SELECT value FROM json_each(?))",
        (json_list(episode_ids),),
    )

"""To which project parts belong: where sessions began, and the parts of their subagents, which are of the same."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Sequence

from anamnesis_pipeline.model import record_id
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.project_names import store_name
from anamnesis_pipeline.store.sqlite.episode_rows import read_aliases
from anamnesis_pipeline.store.sqlite.episodes import drop_session_records
from anamnesis_pipeline.store.values import json_list
from anamnesis_pipeline.summary_model import MAX_RECORDS

_MOVED = """project = ?1, published_hash = NULL,
    summary_due = CASE WHEN summarized_hash IS NULL THEN summary_due ELSE '' END"""
"""Their episodes are then written anew, and whether an LLM may summarize them is asked anew."""


def session_start(connection: sqlite3.Connection, session_id: str) -> tuple[str, str] | None:
    """See `IngestRecords.session_start`."""
    row = connection.execute(
        """SELECT project, cwd FROM parts WHERE session_id = ? AND agent_id = ''
            ORDER BY started_at, part_id LIMIT 1""",
        (session_id,),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def place_agents(connection: sqlite3.Connection, session_ids: Iterable[str]) -> None:
    """Give the parts of these sessions' subagents the project of their session, where that is known."""
    for session_id in sorted(set(session_ids)):
        project, _ = session_start(connection, session_id) or ("", "")
        if session_id and project:
            connection.execute(
                f"UPDATE parts SET {_MOVED} WHERE session_id = ?2 AND agent_id <> '' AND project <> ?1",
                (project, session_id),
            )


def move_parts(
    connection: sqlite3.Connection, source: str, paths: Sequence[str], cwd: str, before: str, after: str
) -> int:
    """Some of what `IngestRecords.move_parts` is asked for; fewer than `MAX_ROWS_PER_WRITE`: that was all."""
    moved = connection.execute(
        f"""UPDATE parts SET {_MOVED} WHERE part_id IN (
                SELECT part_id FROM parts WHERE source = ?2 AND project = ?3 AND (
                    path IN (SELECT value FROM json_each(?4))
                    OR cwd = ?5 AND source IN (SELECT key FROM sources WHERE kind = 'claude_history'))
                LIMIT {MAX_ROWS_PER_WRITE})
            RETURNING part_id, session_id""",
        (after, source, before, json_list(paths), cwd),
    ).fetchall()
    sessions = {session_id for _, session_id in moved if session_id}
    place_agents(connection, sessions)
    for session_id in sorted(sessions):
        drop_session_records(connection, source, session_id)
    agents = connection.execute(
        """SELECT part_id FROM parts WHERE session_id IN (SELECT value FROM json_each(?)) AND agent_id <> ''
            AND project = ?""",
        (json_list(sorted(sessions)), after),
    ).fetchall()
    _move_episodes(connection, [part_id for part_id, *_ in (*moved, *agents)], before, after)
    return len(moved)


def _move_episodes(connection: sqlite3.Connection, part_ids: Sequence[str], before: str, after: str) -> None:
    """Of what an edited episode is, writing it anew would leave the project as it was."""
    connection.execute(
        """UPDATE episodes SET own_project = ?1, project = ?2
            WHERE own_project = ?3 AND episode_id IN (SELECT value FROM json_each(?4))""",
        (after, store_name(read_aliases(connection), after), before, json_list(_episodes_of(part_ids))),
    )


def projects_of(connection: sqlite3.Connection, part_ids: Sequence[str]) -> set[str]:
    """See `IngestRecords.projects_of`."""
    rows = connection.execute(
        """SELECT project FROM parts WHERE part_id IN (SELECT value FROM json_each(?1))
            UNION SELECT project FROM episodes WHERE episode_id IN (SELECT value FROM json_each(?2))
            UNION SELECT own_project FROM episodes WHERE episode_id IN (SELECT value FROM json_each(?2))""",
        (json_list(part_ids), json_list(_episodes_of(part_ids))),
    )
    return {project for (project,) in rows}


def _episodes_of(part_ids: Sequence[str]) -> list[str]:
    """Ids of the episodes of parts, and of those of their records."""
    return [*part_ids, *(record_id(part_id, number) for part_id in part_ids for number in range(MAX_RECORDS))]

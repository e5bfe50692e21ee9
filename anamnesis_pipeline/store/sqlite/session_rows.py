"""Where sessions began, and the parts of their subagents, which belong to the same project."""

import sqlite3
from collections.abc import Iterable


def session_start(connection: sqlite3.Connection, session_id: str) -> tuple[str, str] | None:
    """See `IngestRecords.session_start`."""
    row = connection.execute(
        """SELECT project, cwd FROM parts WHERE session_id = ? AND agent_id = ''
            ORDER BY started_at, part_id LIMIT 1""",
        (session_id,),
    ).fetchone()
    return None if row is None else (row[0], row[1])


def place_agents(connection: sqlite3.Connection, session_ids: Iterable[str]) -> None:
    """Give the parts of these sessions' subagents the project of their session, where that is known.

    Their episodes are then written anew, and whether an LLM may summarize them is asked anew.
    """
    for session_id in sorted(set(session_ids)):
        project, _ = session_start(connection, session_id) or ("", "")
        if session_id and project:
            connection.execute(
                """UPDATE parts SET project = ?1, published_hash = NULL,
                        summary_due = CASE WHEN summarized_hash IS NULL THEN summary_due ELSE '' END
                    WHERE session_id = ?2 AND agent_id <> '' AND project <> ?1""",
                (project, session_id),
            )

"""The questions that were asked of the memory, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from anamnesis_pipeline.store import query_base
from anamnesis_pipeline.store.query_base import QUERY_EXPIRES, USED_WITHIN, AskedQuery, QueryCounts
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import clean, instant, json_list, moment


class SqliteQueries:
    """See `QueryRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, query: str, asked: Mapping[str, Any], results: Sequence[str], when: datetime) -> None:
        """See `QueryRecords.note`."""
        ids = json_list(sorted({clean(episode_id) for episode_id in results}))
        of_ids = "episodes WHERE episode_id IN (SELECT value FROM json_each(?))"
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM query_log WHERE asked_at < ? OR number <= (SELECT max(number) FROM query_log) + 1 - ?",
                (instant(when - QUERY_EXPIRES), query_base.QUERIES_KEPT),
            )
            (there,) = connection.execute(f"SELECT count(*) FROM {of_ids}", (ids,)).fetchone()
            if there < len(set(results)):  # one was removed since it was found, and its questions with it
                return
            number = connection.execute(
                "INSERT INTO query_log (asked_at, query, asked, found) VALUES (?, ?, ?, ?)",
                (instant(when), clean(query), json.dumps(asked, sort_keys=True), there),
            ).lastrowid
            connection.execute(f"INSERT INTO query_results SELECT episode_id, {number} FROM {of_ids}", (ids,))

    def use(self, episode_id: str, when: datetime) -> bool:
        """See `QueryRecords.use`."""
        with self._database.read() as connection:
            (number,) = connection.execute(
                """SELECT max(number) FROM query_results JOIN query_log USING (number)
                    WHERE episode_id = ? AND asked_at BETWEEN ? AND ?""",
                (clean(episode_id), instant(when - USED_WITHIN), instant(when)),
            ).fetchone()
        if number is None:
            return False
        with self._database.write() as connection:
            connection.execute("UPDATE query_log SET used_at = ? WHERE number = ?", (instant(when), number))
        return True

    def counts(self) -> QueryCounts:
        """See `QueryRecords.counts`."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT count(*), count(nullif(found, 0)), count(used_at) FROM query_log"
            ).fetchone()
        return QueryCounts(*row)

    def unanswered(self, limit: int) -> list[AskedQuery]:
        """See `QueryRecords.unanswered`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT query, asked, asked_at, times FROM (
                        SELECT query, asked, max(number) AS last, sum(found = 0) AS times FROM query_log
                        GROUP BY query, asked) JOIN query_log q USING (query, asked)
                    WHERE q.number = last AND q.found = 0 ORDER BY q.number DESC LIMIT ?""",
                (limit,),
            ).fetchall()
        return [AskedQuery(query, json.loads(asked), moment(at), times) for query, asked, at, times in rows]

    def latest(self, projects: Sequence[str], limit: int) -> list[AskedQuery]:
        """See `QueryRecords.latest`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT query, asked, asked_at, count(*), max(number) AS last FROM query_log
                    WHERE asked ->> '$.project' IN (SELECT value FROM json_each(?))
                    GROUP BY query ORDER BY last DESC LIMIT ?""",  # the other columns are those of the last one
                (json_list(projects), limit),
            ).fetchall()
        return [AskedQuery(query, json.loads(asked), moment(at), times) for query, asked, at, times, _ in rows]

    def every(self) -> dict[int, AskedQuery]:
        """See `QueryRecords.every`."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT number, query, asked, asked_at FROM query_log ORDER BY number").fetchall()
        return {number: AskedQuery(query, json.loads(asked), moment(at), 1) for number, query, asked, at in rows}

    def remove(self, numbers: Collection[int]) -> None:
        """See `QueryRecords.remove`."""
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM query_log WHERE number IN (SELECT value FROM json_each(?))", (json_list(numbers),)
            )

    def clear(self) -> None:
        """See `QueryRecords.clear`."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM query_log")

"""What SQLite does in its own form: pages and counts by a filter."""

# ruff: noqa: S608
# only names of ours enter the SQL

from collections.abc import Iterable, Sequence
from datetime import date

from typing_extensions import override

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.contracts import Lacking, Native
from anamnesis_pipeline.store.episode_values import EPISODE_FIELDS
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.memory_layers import LASTING_KINDS, LASTING_TAGS, WORKING_BELOW
from anamnesis_pipeline.store.records.overview import EVERYTHING, Census, OverviewRecords, SourceState, Tally
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway, SqliteTables
from anamnesis_pipeline.store.sqlite.filters import condition
from anamnesis_pipeline.store.sqlite.spaces import count_lacking
from anamnesis_pipeline.store.values import json_list, moment


class SqliteNative(Native):
    """What SQLite does in its own form."""

    @override
    def page(
        self,
        tables: SqliteTables,
        where: Where,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
        *,
        oldest_first: bool = False,
    ) -> list[Row]:
        terms, values = condition(where)
        way, beyond = ("", ">") if oldest_first else (" DESC", "<")
        if after is not None:
            terms, values = f"{terms} AND (e.timestamp, e.episode_id) {beyond} (?, ?)", [*values, *after]
        # which ones first, and their texts then: a sort of all that pass would carry every text along
        numbers = tables.connection.execute(
            f"""SELECT e.episode_key FROM episodes e WHERE {terms}
                ORDER BY e.timestamp{way}, e.episode_id{way} LIMIT ? OFFSET ?""",
            (*values, limit, skip),
        ).fetchall()
        rows = tables["episodes"].among("number", [number for (number,) in numbers], EPISODE_FIELDS)
        return sorted(rows, key=lambda row: (row["timestamp"], row["episode_id"]), reverse=not oldest_first)

    @override
    def count(self, tables: SqliteTables, where: Where) -> int:
        terms, values = condition(where)
        return int(tables.connection.execute(f"SELECT count(*) FROM episodes e WHERE {terms}", values).fetchone()[0])

    @override
    def projects(self, tables: SqliteTables) -> list[str]:
        """One seek in the index for each name: DISTINCT walks all of it."""
        rows = tables.connection.execute(
            """WITH RECURSIVE names (project) AS (
                    SELECT min(project) FROM episodes
                    UNION ALL
                    SELECT (SELECT min(project) FROM episodes WHERE project > names.project) FROM names
                        WHERE project IS NOT NULL)
                SELECT project FROM names WHERE project IS NOT NULL ORDER BY project"""
        )
        return [name for (name,) in rows]

    @override
    def note_lacking(self, tables: SqliteTables, written: Sequence[Lacking]) -> None:
        count_lacking(tables.connection, [each.number for each in written])

    @override
    def prepare(self, texts: Iterable[str]) -> None:
        """Do nothing: SQLite indexes the texts as it writes them."""


_TALLY = """SELECT count(*), coalesce(sum(status = 'active'), 0),
        coalesce(sum(status = 'active' AND (edited > 0 OR kind IN (SELECT value FROM json_each(:kinds))
            OR episode_key IN (SELECT episode_key FROM episode_tags
                WHERE tag IN (SELECT value FROM json_each(:tags))))), 0),
        coalesce(sum(superseded_by IS NOT NULL), 0), coalesce(sum(read_count >= :confirmed), 0),
        coalesce(sum(retrieval_count), 0)
    FROM episodes"""


_KEPT_AWAY = """SELECT count(*) FROM (
        SELECT part_id FROM parts WHERE held_by IS NOT NULL
        UNION SELECT p.part_id FROM tombstones t JOIN parts p ON p.part_id = t.episode_id
    ) JOIN parts USING (part_id)
    WHERE NOT EXISTS (SELECT 1 FROM episodes e WHERE e.episode_id = part_id) AND (?1 IS NULL OR source = ?1)"""


class SqliteOverview(OverviewRecords):
    """Counts over all episodes in SQLite."""

    def __init__(self, database: Database) -> None:
        super().__init__(SqliteGateway(database))
        self._database = database

    @override
    def sources(self) -> dict[str, SourceState]:
        with self._database.read() as connection:
            rows = connection.execute("SELECT source, count(*), max(timestamp) FROM episodes GROUP BY source")
            return {source: SourceState(count, moment(newest)) for source, count, newest in rows}

    @override
    def tally(self) -> Tally:
        given = {
            "kinds": json_list(sorted(LASTING_KINDS)),
            "tags": json_list(sorted(LASTING_TAGS)),
            "confirmed": WORKING_BELOW,
        }
        with self._database.read() as connection:
            return Tally(*connection.execute(_TALLY, given).fetchone())

    @override
    def census(self, where: Where = EVERYTHING) -> Census:
        terms, values = condition(where)
        of = f"FROM episodes e WHERE {terms}"
        with self._database.read() as connection:
            episodes, retrievals = connection.execute(
                f"SELECT count(*), coalesce(sum(e.retrieval_count), 0) {of}", values
            ).fetchone()
            projects, instances = (
                dict(connection.execute(f"SELECT e.{name}, count(*) {of} GROUP BY 1 ORDER BY 2 DESC, 1", values))
                for name in ("project", "instance")
            )
        return Census(episodes, retrievals, projects, instances)

    @override
    def kept_away(self, tables: SqliteTables, source: str | None) -> int:
        return int(tables.connection.execute(_KEPT_AWAY, (source,)).fetchone()[0])

    @override
    def days(self, where: Where) -> dict[date, int]:
        terms, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT substr(e.timestamp, 1, 10), count(*) FROM episodes e WHERE {terms}
                    GROUP BY 1 ORDER BY 1""",
                values,
            )
            return {date.fromisoformat(day): count for day, count in rows}

    @override
    def most_read(self, where: Where, limit: int) -> list[str]:
        terms, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT e.episode_id FROM episodes e WHERE e.read_count > 0 AND {terms}
                    ORDER BY e.read_count DESC, e.last_retrieved DESC, e.episode_id LIMIT ?""",
                (*values, limit),
            )
            return [name for (name,) in rows]

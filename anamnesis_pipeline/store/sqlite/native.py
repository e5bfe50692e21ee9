"""Pages and counts by a filter in SQLite, and what lacks vectors there."""

# ruff: noqa: S608
# only declared names enter the SQL

from collections.abc import Iterable, Sequence

from typing_extensions import override

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.contracts import Lacking, Native
from anamnesis_pipeline.store.episode_values import EPISODE_FIELDS
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.sqlite import pending
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.sqlite.filters import condition


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
        pending.refresh(tables.connection, [each.number for each in written])

    @override
    def prepare(self, texts: Iterable[str]) -> None:
        """Do nothing: SQLite indexes the texts as it writes them."""

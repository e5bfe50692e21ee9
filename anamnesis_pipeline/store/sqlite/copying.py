"""Copies of the SQLite file: rows spread over several tables, the vectors of spaces, and the last numbers given, which
it holds otherwise than `tables.py` declares.
"""

# ruff: noqa: S608
# only declared names enter the SQL

import sqlite3
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from anamnesis_pipeline.store.copying import NUMBERS, CopyRecords, copied_table
from anamnesis_pipeline.store.gateway import Match, Row
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import (
    SPACE_VARIANTS,
    SqliteEpisodes,
    SqliteGateway,
    SqlitePassages,
    SqliteRows,
    SqliteTables,
)
from anamnesis_pipeline.store.tables import EPISODES, PASSAGES, SPACES, Table

DERIVED = {
    "migrations": "what this file's version has run",
    "episode_tags": "the tags of `episodes`, by tag",
    "space_variants": "the variants of `spaces`, by variant",
    "index_files": "names the derived files of `index/`",
    "filter_version": "counts the writes to this file",
    "stem_index": "full text of `passages`, by its trigger",
    "exact_index": "full text of `passages`, by its trigger",
    "reindexing": "passages that the full text lacks",
    "stem_words": "a view of the full text",
    "exact_words": "a view of the full text",
}
"""Tables that are not copied, and why."""


class SqliteCopy(CopyRecords):
    """Copies of the SQLite file."""

    def __init__(self, database: Database) -> None:
        super().__init__(SqliteGateway(database, _Tables))
        self._database = database

    @override
    def finish(self) -> None:
        """Let SQLite learn how its indexes are filled. Triggers keep the full text."""
        with self._database.write() as connection:
            connection.execute("PRAGMA optimize")


class _Tables(SqliteTables):
    """Also those of a copy that are no table here."""

    @override
    def __getitem__(self, name: str) -> SqliteRows:
        kind = _KEPT_OTHERWISE.get(name.partition("/")[0], SqliteRows)
        return kind(self.connection, copied_table(name))


class _Spaces(SqliteRows):
    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        """At most one space is active, and one building: those that change give that up first."""
        these = {"space_id": {"$in": [row["space_id"] for row in rows]}}
        self.update(these, {"status": "added"})
        super().put(rows, keep)
        variants = SqliteRows(self._connection, SPACE_VARIANTS)
        variants.delete(these)
        variants.put([{"space_id": row["space_id"], "variant": each} for row in rows for each in row["variants"]])

    @override
    def delete(self, match: Match) -> int:
        keys = [(row["space_id"],) for row in self.find(match, ["space_id"])]
        for owned in ("vectors", "token_vectors", "index_files", "pending", "space_variants"):
            self._connection.executemany(f"DELETE FROM {owned} WHERE space_id = ?", keys)
        return super().delete(match)


class _OfSpace(SqliteRows):
    """Vectors or token vectors of a space: `vectors/<space>/<variant>`, `tokens/<space>`."""

    def __init__(self, connection: sqlite3.Connection, table: Table) -> None:
        kind, space, *variant = table.name.split("/")
        super().__init__(connection, table, "vectors" if kind == "vectors" else "token_vectors")
        found = connection.execute("SELECT space_id FROM spaces WHERE key = ?", (space,)).fetchone()
        self._own = {"space_id": found[0] if found else 0} | ({"variant": variant[0]} if variant else {})

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        """Vectors are deleted and inserted, as `vectors.py` does: a new seq tells every process that they are new."""
        self.delete({"passage_id": {"$in": [row["passage_id"] for row in rows]}})
        columns = f"{', '.join(self._own)}, {self._listed(self._table.fields)}"
        values = [(*self._own.values(), *row.values()) for row in rows]
        marks = ", ".join("?" * len(values[0]))
        self._connection.executemany(f"INSERT INTO {self._name} ({columns}) VALUES ({marks})", values)

    @override
    def _where(self, match: Match) -> tuple[str, list[Any]]:
        terms, values = super()._where(match)
        own = "".join(f"{name} = ? AND " for name in self._own)
        return f"{own}{terms}", [*self._own.values(), *values]


class _Numbers(SqliteRows):
    def __init__(self, connection: sqlite3.Connection, table: Table) -> None:
        super().__init__(connection, table, "sqlite_sequence")

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        """SQLite has no key over these."""
        self.delete({"name": {"$in": [row["name"] for row in rows]}})
        self.insert(rows)


_KEPT_OTHERWISE: dict[str, type[SqliteEpisodes | SqlitePassages | _Spaces | _OfSpace | _Numbers]] = {
    EPISODES.name: SqliteEpisodes,
    PASSAGES.name: SqlitePassages,
    SPACES.name: _Spaces,
    "vectors": _OfSpace,
    "tokens": _OfSpace,
    NUMBERS.name: _Numbers,
}
"""By the beginning of the names of their tables."""

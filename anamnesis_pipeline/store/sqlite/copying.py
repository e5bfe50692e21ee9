"""Everything that the SQLite file holds, as neutral rows, read and written."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from anamnesis_pipeline.store.copy_base import (
    NUMBERS,
    OWN_SETTINGS,
    PAGE_BYTES,
    PAGE_ROWS,
    SECRET,
    Key,
    Row,
    numbered,
    rows_of,
    tables_of,
)
from anamnesis_pipeline.store.sqlite import copied_rows
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.tables import EPISODES, PASSAGES, PENDING, SPACES, Table

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

HELD_BY = {
    SECRET.name: ("store_secret",),
    EPISODES.name: ("episodes", "episode_texts"),
    PASSAGES.name: ("passages", "passage_texts"),
    NUMBERS.name: ("sqlite_sequence",),
}
"""What holds a neutral table, where it is no table of the same name. Those of spaces: `vectors`, `token_vectors`."""


@dataclass(frozen=True, slots=True)
class Place:
    """How a neutral table is read: the columns in the order of its fields, and where they are. `lists`: fields that are
    JSON arrays here.
    """

    columns: tuple[str, ...]
    origin: str
    terms: str = "1"
    lists: frozenset[str] = frozenset()


def _same(table: Table) -> Place:
    """Of a table that is kept as it is."""
    columns = tuple(f'"{name}"' for name in table.fields)
    terms = f"substr(name, 1, {len(OWN_SETTINGS)}) <> '{OWN_SETTINGS}'" if table.name == "settings" else "1"
    return Place(columns, table.name, terms, table.lists)


_EPISODE_COLUMNS = tuple(
    "episode_key" if name == "number" else f't."{name}"' if name in copied_rows.TEXT_FIELDS else f'e."{name}"'
    for name in EPISODES.fields
)

_PLACES = {
    SECRET.name: Place(("'store_secret'", "secret"), "store_secret"),
    SPACES.name: Place(
        tuple(f'"{name}"' for name in SPACES.fields), "spaces", lists=frozenset({"variants"})
    ),
    EPISODES.name: Place(
        _EPISODE_COLUMNS, "episodes e JOIN episode_texts t USING (episode_key)",
        lists=frozenset({"tags", "message_ids", "message_keys"}),
    ),
    PASSAGES.name: Place(
        ("p.passage_id", "e.episode_id", "p.ordinal", "t.text", "t.context", "t.message_ids"),
        "passages p CROSS JOIN passage_texts t USING (passage_id) CROSS JOIN episodes e USING (episode_key)",
        lists=frozenset({"message_ids"}),
    ),
    PENDING.name: Place(("space_id", "episode_key", "source", "timestamp", "missing"), "pending"),
}  # fmt: skip


def _numbers() -> Place:
    names = ", ".join(f"'{name}'" for name in numbered())
    return Place(("name", "seq"), "sqlite_sequence", f"name IN ({names})")


class SqliteReading:
    """See `Reading`. It lives as long as the read transaction of its connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        rows = connection.execute("SELECT key, space_id FROM spaces").fetchall()  # from here on it is of one moment
        self._spaces: dict[str, int] = dict(rows)

    def tables(self) -> list[Table]:
        """See `Reading.tables`."""
        return tables_of(rows_of(self, SPACES))

    def count(self, table: Table) -> int:
        """See `Reading.count`."""
        place = self._place(table)
        origin = place.origin.partition(" ")[0]  # a join adds no rows
        (rows,) = self._connection.execute(f"SELECT count(*) FROM {origin} WHERE {place.terms}").fetchone()
        return int(rows)

    def page(self, table: Table, after: Key | None, limit: int = PAGE_ROWS) -> list[Row]:
        """See `Reading.page`."""
        place = self._place(table)
        key = ", ".join(place.columns[table.fields.index(name)] for name in table.key)
        terms = place.terms if after is None else f"{place.terms} AND ({key}) > ({', '.join('?' * len(after))})"
        found = self._connection.execute(
            f"SELECT {', '.join(place.columns)} FROM {place.origin} WHERE {terms} ORDER BY {key} LIMIT ?",
            (*(after or ()), limit),
        )
        return [copied_rows.with_lists(table.row(values), place.lists) for values in _until_full(found)]

    def _place(self, table: Table) -> Place:
        if not table.space:
            return _PLACES.get(table.name) or (_numbers() if table is NUMBERS else _same(table))
        kind, space, *variant = table.name.split("/")
        terms = f"space_id = {self._spaces.get(space, 0)}"
        if kind == "tokens":
            return Place(("passage_id", "tokens", "data"), "token_vectors", terms)
        return Place(("passage_id", "vec"), "vectors", f"{terms} AND variant = '{variant[0]}'")


class SqliteCopy:
    """See `CopyRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[SqliteReading]:
        """See `CopyRecords.reading`. The write-ahead log keeps what is written meanwhile, and cannot shrink until the
        end.
        """
        with self._database.read() as connection:
            yield SqliteReading(connection)

    def write(self, table: Table, rows: Sequence[Row], gone: Sequence[Key] = ()) -> None:
        """See `CopyRecords.write`."""
        with self._database.write() as connection:
            copied_rows.remove(connection, table, gone)
            copied_rows.write(connection, table, rows)

    def finish(self) -> None:
        """See `CopyRecords.finish`: triggers keep the full text, and SQLite learns how its indexes are filled."""
        with self._database.write() as connection:
            connection.execute("PRAGMA optimize")


def _until_full(found: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Rows up to the one with which they come to `PAGE_BYTES`."""
    held = 0
    for values in found:
        yield values
        held += sum(len(value) for value in values if isinstance(value, str | bytes))
        if held >= PAGE_BYTES:
            return

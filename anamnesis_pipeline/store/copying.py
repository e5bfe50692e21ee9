"""All that a store holds, as rows of one form that both engines read and write: for backups, and for copies from one
engine to the other.

The tables are those of `tables.py`, the vectors of each space, and the last numbers given. Values are those of JSON,
and bytes; vectors are the bytes of little-endian float16. What is made of other rows (full text, index files, ...) is
left out: each engine names it with the reason (`DERIVED`).
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, beyond
from anamnesis_pipeline.store.tables import (
    BY_NAME,
    EPISODES,
    PASSAGES,
    PENDING,
    SPACES,
    STORE_SECRET,
    Table,
    plain_tables,
    table,
)

Key = tuple[Any, ...]
"""The values of `Table.key`: texts and integers. Its order is that of the bytes of UTF-8, and of numbers."""

PAGE_ROWS = 500
PAGE_BYTES = 8 << 20
"""A page, or a transaction of a copy, ends with the row that comes to this, so that memory stays bounded."""

OWN_SETTINGS = "copy."
"""Settings whose names begin so belong to one store, and are never copied."""
_BEHIND_OWN = OWN_SETTINGS[:-1] + chr(ord(OWN_SETTINGS[-1]) + 1)

SECRET = table("secret", "name", "secret bytes")
NUMBERS = table("numbers", "name", "last int")
"""The last number given in each table that has a serial, since no number is given twice."""


def numbered() -> list[str]:
    """Return the names of the tables that have a serial."""
    return [each.name for each in BY_NAME.values() if each.serial]


def copied_table(name: str) -> Table:
    """Return a table of a copy by its name: one of `tables.py`, `numbers`, or one of a space."""
    if name == NUMBERS.name:
        return NUMBERS
    if "/" in name:
        return table(name, "passage_id int", "tokens int, data bytes" if name.startswith("tokens/") else "vector bytes")
    return BY_NAME[name]


def tables_of(spaces: Iterable[Row]) -> list[Table]:
    """Return all tables of a store with these rows of `SPACES`, in the order in which a copy writes them: what a row
    refers to is there before it.
    """
    names: list[str] = []
    for space in spaces:
        names += [f"vectors/{space['key']}/{each}" for each in space["variants"]]
        names += [f"tokens/{space['key']}"] if space["token_dims"] else []
    return [SECRET, SPACES, EPISODES, PASSAGES, *map(copied_table, names), PENDING, *plain_tables(), NUMBERS]


class Reading:
    """A store at one moment, unaffected by later writes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def tables(self) -> list[Table]:
        """Return all tables; see `tables_of`."""
        return tables_of(rows_of(self, SPACES))

    def count(self, table: Table) -> int:
        """Count the rows of a table, for progress: about, and not too few."""
        return 1 if table is SECRET else self._tables[table.name].count(_copied(table))

    def page(self, table: Table, after: Key | None, limit: int = PAGE_ROWS) -> list[Row]:
        """Return the rows whose keys follow `after` (None: from the first on), in the order of their keys: at most
        `limit`, fewer where they are long (`PAGE_BYTES`), none behind the last.
        """
        if table is SECRET:
            held = self._tables[STORE_SECRET.name].find({}) if after is None else []
            return [{"name": STORE_SECRET.name, **row} for row in held]
        match = _copied(table)
        if after is not None:
            match = {**match, **beyond(table.key, after)}
        page, size = [], 0
        for row in self._tables[table.name].each(match, table.fields, order=table.key, limit=limit):
            for name in table.reals:
                row[name] = None if row[name] is None else float(row[name])
            page.append(row)
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if size >= PAGE_BYTES:
                break
        return page


class CopyRecords:
    """A store's rows, read and written unchanged, without any rule."""

    def __init__(self, gateway: Gateway) -> None:
        """:param gateway: it also has the tables of spaces, and `NUMBERS`. What belongs to an episode, a passage or a
        space goes with it.
        """
        self._gateway = gateway

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Open the store at this moment. SQLite's log keeps what is written meanwhile, and cannot shrink until the end.

        :raises StoreRefused: the engine cannot keep the moment for as long as the reading took.
        """
        with self._gateway.snapshot() as tables:
            yield Reading(tables)

    def write(self, table: Table, rows: Sequence[Row], gone: Sequence[Key] = ()) -> None:
        """Remove the rows of the keys `gone` with all that belongs to them, then make or replace `rows`; at most
        `PAGE_ROWS` together. A space's row is written before its vectors, an episode's before its passages.
        """

        def work(tables: Tables) -> None:
            if table is SECRET:
                for row in rows:
                    tables[STORE_SECRET.name].update({}, {"secret": row["secret"]})
                return
            if gone:
                (name, *others) = table.key
                keys: Match = {"$or": [dict(zip(table.key, key, strict=True)) for key in gone]}
                tables[table.name].delete(keys if others else {name: {"$in": [key for (key,) in gone]}})
            if rows:
                tables[table.name].put(rows)

        self._gateway.write(work)

    def finish(self) -> None:
        """Complete what the engine derives of the rows, once every row is written."""


def _copied(table: Table) -> Match:
    """Return the match of the rows of a table that a copy has."""
    if table is NUMBERS:
        return {"name": {"$in": numbered()}}
    if table.name == "settings":
        return {"$or": [{"name": {"$lt": OWN_SETTINGS}}, {"name": {"$gte": _BEHIND_OWN}}]}
    return {}


def rows_of(reading: Reading, table: Table) -> Iterator[Row]:
    """Yield all rows of a table by key, with one page in memory."""
    after: Key | None = None
    while page := reading.page(table, after):
        yield from page
        after = table.key_of(page[-1])


# --- rows as lines ---------------------------------------------------------------------------------------


def line_of(row: Row) -> bytes:
    """Return a row as one line of JSON in UTF-8, without its end; bytes are `{"base64": "..."}`."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_as_base64).encode()


def row_of(line: bytes) -> Row:
    """Return the row of a line of `line_of`.

    :raises ValueError: it is no such line.
    """
    row = json.loads(line, object_hook=_of_base64)
    if not isinstance(row, dict):
        raise ValueError(f"a row is a JSON object, and this is none: {line[:60]!r}")  # noqa: TRY004 - of the line
    return row


def _as_base64(value: Any) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(f"a row holds a {type(value).__name__}")
    return {"base64": b64encode(value).decode("ascii")}


def _of_base64(value: dict[str, Any]) -> Any:
    return b64decode(value["base64"]) if value.keys() == {"base64"} else value


@dataclass(slots=True)
class Digest:
    """The number of rows, and a checksum over them that does not depend on their order: the sum of their lines'
    BLAKE2b.
    """

    rows: int = 0
    _sum: int = field(default=0)

    def add(self, line: bytes) -> None:
        """Count one row, as `line_of` gives it."""
        self.rows += 1
        self._sum += int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")

    @property
    def checksum(self) -> str:
        """32 hex characters."""
        return f"{self._sum % (1 << 128):032x}"

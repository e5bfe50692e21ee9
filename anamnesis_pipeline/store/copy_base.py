"""All that a store holds, as rows of a form that every backend reads and writes alike: for backups, and for moving from
one backend to another.

The tables are those of `tables.py`, whatever the backend keeps them in. Values are what JSON knows, and bytes:
instants and JSON are texts as `values.py` writes them, flags are 0 and 1, tags and ids are lists, vectors are the bytes
of little-endian float16. What can be made of other rows (full text, index files, ...) is none of it; each backend names
that with the reason (`DERIVED`).
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from anamnesis_pipeline.store.tables import (
    BY_NAME,
    EPISODES,
    PASSAGES,
    PENDING,
    SPACES,
    Table,
    plain_tables,
    table,
)

Row = dict[str, Any]
"""Field -> value, in the order of `Table.fields`."""
Key = tuple[Any, ...]
"""The values of `Table.key`: texts and integers. Its order is that of the bytes of UTF-8, and of numbers."""

PAGE_ROWS = 500
PAGE_BYTES = 8 << 20
"""A page, or a transaction of a copy, ends with the row that comes to this, so that memory stays bounded."""

OWN_SETTINGS = "copy."
"""Settings of these names are of the very store that holds them, and never copied."""


SECRET = table("secret", "name", "secret bytes")
NUMBERS = table("numbers", "name", "last int")
"""The last number given in each table that has a serial, since no number is given twice."""


def numbered() -> list[str]:
    """Return the names of the tables that have a serial."""
    return [each.name for each in BY_NAME.values() if each.serial]


def tables_of(spaces: Iterable[Row]) -> list[Table]:
    """All tables of a store with these rows of `SPACES`, in the order in which they are to be written: what a row
    refers to is there before it.
    """
    of_spaces: list[Table] = []
    for space in spaces:
        key = space["key"]
        of_spaces += [table(f"vectors/{key}/{each}", "passage_id int", "vector bytes") for each in space["variants"]]
        if space["token_dims"]:
            of_spaces.append(table(f"tokens/{key}", "passage_id int", "tokens int, data bytes"))
    return [SECRET, SPACES, EPISODES, PASSAGES, *of_spaces, PENDING, *plain_tables(), NUMBERS]


class Reading(Protocol):
    """A store at one moment, whatever is written meanwhile."""

    def tables(self) -> list[Table]:
        """See `tables_of`."""

    def count(self, table: Table) -> int:
        """About how many rows a table has, not too few: what progress is told by."""

    def page(self, table: Table, after: Key | None, limit: int = PAGE_ROWS) -> list[Row]:
        """The rows whose keys follow `after` (None: from the first on), in the order of their keys: at most `limit`,
        fewer where they are long (`PAGE_BYTES`), none behind the last.
        """


class CopyRecords(Protocol):
    """What a store holds, read and written as it is. Nothing is made of it, and no rule is asked."""

    def reading(self) -> AbstractContextManager[Reading]:
        """The store at this moment.

        :raises GiveUp: the backend cannot keep the moment for as long as the reading took.
        """

    def write(self, table: Table, rows: Sequence[Row], gone: Sequence[Key] = ()) -> None:
        """Remove the rows of the keys `gone` with all that belongs to them, then make or replace `rows`; at most
        `PAGE_ROWS` together. A space's row is written before its vectors, an episode's before its passages.
        """

    def finish(self) -> None:
        """Make whole what a backend derives of the rows; every row is written."""


def rows_of(reading: Reading, table: Table) -> Iterator[Row]:
    """All rows of a table by key, a page in memory."""
    after: Key | None = None
    while page := reading.page(table, after):
        yield from page
        after = table.key_of(page[-1])


# --- rows as lines ---------------------------------------------------------------------------------------


def line_of(row: Row) -> bytes:
    """A row as one line of JSON in UTF-8, without its end; bytes are `{"base64": "..."}`."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_as_base64).encode()


def row_of(line: bytes) -> Row:
    """The inverse of `line_of`.

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
    """How many rows, and a checksum over them in which their order does not count: the sum of their lines' BLAKE2b."""

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

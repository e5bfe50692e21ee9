"""All that a store holds, as rows of a form that every backend reads and writes alike: for backups, and for moving from
one backend to another.

A table here has a name, a key and fields, whatever the backend keeps it in. Values are what JSON knows, and bytes:
instants and JSON are texts as `values.py` writes them, flags are 0 and 1, tags and ids are lists, vectors are the bytes
of little-endian float16. What can be made of other rows (full text, index files, ...) is none of it; each backend names
that with the reason (`DERIVED`).
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

Row = dict[str, Any]
"""Field -> value, in the order of `Table.fields`."""
Key = tuple[Any, ...]
"""The values of `Table.key`: texts and integers. Its order is that of the bytes of UTF-8, and of numbers."""

PAGE_ROWS = 500
PAGE_BYTES = 8 << 20
"""A page, or a transaction of a copy, ends with the row that comes to this, so that memory stays bounded."""

OWN_SETTINGS = "copy."
"""Settings of these names are of the very store that holds them, and never copied."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `key` names those of the fields by which rows are told apart and ordered; `reals` those that hold
    numbers with a fraction, also where a backend gives a whole one as an integer.
    """

    name: str
    key: tuple[str, ...]
    fields: tuple[str, ...]
    reals: frozenset[str] = frozenset()

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """The key of a row."""
        return tuple(row[name] for name in self.key)

    def row(self, values: Iterable[Any]) -> Row:
        """A row of these values, which come in the order of the fields."""
        row = dict(zip(self.fields, values, strict=True))
        for name in self.reals:
            if row[name] is not None:
                row[name] = float(row[name])
        return row

    @property
    def space(self) -> str:
        """The key of the space whose vectors these are; empty: none."""
        return self.name.split("/")[1] if "/" in self.name else ""


def _table(name: str, key: str, others: str = "", reals: str = "") -> Table:
    return Table(name, tuple(key.split()), (*key.split(), *others.split()), frozenset(reals.split()))


SECRET = _table("secret", "name", "secret")
SPACES = _table(
    "spaces", "space_id", "key model_id dim generation query_prefix passage_prefix pooling precision fidelity variants "
    "token_dims token_variant status projection last_episode written_at", reals="fidelity",
)  # fmt: skip
EPISODES = _table(
    "episodes", "number", "episode_id source timestamp instance project own_project kind status superseded_by "
    "superseded_at passages content_hash edited stored_hash retrieval_count read_count last_retrieved summary tags "
    "machine path session_id metadata message_ids message_keys raw_exchange",
)  # fmt: skip
PASSAGES = _table("passages", "passage_id", "episode_id ordinal text context message_ids")
PENDING = _table("pending", "space_id number", "source timestamp missing")
NUMBERS = _table("numbers", "name", "last")
NUMBERED = ("episodes", "passages", "spaces", "query_log", "events")
"""Tables whose rows are numbered; `NUMBERS` holds the last number given of each, since none is given twice."""

PLAIN = (
    _table("sources", "key", "machine root folder kind spec"),
    _table(
        "files", "source path", "device inode size mtime_ns head_hash head_bytes offset generation lines parsed_lines "
        "parser_state gone version first_mtime_ns unread",
    ),
    _table(
        "frames", "source path generation first_line", "lines archive_offset archive_bytes revision mark base_source "
        "base_path base_generation base_revision base_offset base_bytes",
    ),
    _table("messages", "key", "source path canonical"),
    _table("dead_letters", "source path generation line", "reason"),
    _table("occurrences", "source path line message_key"),
    _table(
        "parts", "part_id", "source path session_id exchange_id ordinal kind project cwd prompt agent_id agent_type "
        "origin lead section closed started_at ended_at content_hash wanted_hash published_hash summarized_hash "
        "summary_due held_by segments",
    ),
    _table(
        "sightings", "source path part_id", "place anchor ordinal first_line last_line since_ns skew_ns text body cwd "
        "present became",
    ),
    _table("unsettled", "place anchor", "source noted"),
    _table(
        "summaries", "part_id", "content_hash text model tags records skip problem retry_at attempts reply_key",
    ),
    _table("llm_replies", "key", "backend model reply"),
    _table("llm_asked", "key part_id", "void"),
    _table(
        "llm_calls", "call_id", "day backend model settled calls input_tokens output_tokens dollars", reals="dollars",
    ),
    _table("llm_leases", "key", "call_id until"),
    _table("llm_failures", "key", "problem"),
    _table("llm_batches", "batch_id", "number backend model call_id keys"),
    _table("llm_turns", "backend", "next_at", reals="next_at"),
    _table("settings", "name", "value"),
    _table("context_sessions", "session_id", "seen_at restarted_at"),
    _table("context_shown", "session_id episode_id", "number passage_id"),
    _table("tombstones", "episode_id", "deleted_at reason went_with"),
    _table("tombstone_keys", "message_key episode_id"),
    _table("buried_sections", "episode_id source path", "place kept"),
    _table("consolidated", "episode_id", "canonical regime undone"),
    _table("unconsolidated", "session_id", "noted"),
    _table("session_notes", "source session_id", "noted root revision until branch"),
    _table("query_log", "number", "asked_at query asked found used_at"),
    _table("query_results", "episode_id number"),
    _table("events", "number", "at kind process episode_id episodes project"),
    _table("chat_sessions", "session_id", "title backend model worker_url project created_at updated_at name_history"),
    _table("chat_messages", "message_id", "session_id number role text at episode_id feedback details records_at"),
)  # fmt: skip
"""Tables that every backend keeps under the same names."""


def tables_of(spaces: Iterable[Row]) -> list[Table]:
    """All tables of a store with these rows of `SPACES`, in the order in which they are to be written: what a row
    refers to is there before it.
    """
    of_spaces = [
        table
        for space in spaces
        for table in (
            *(_table(f"vectors/{space['key']}/{variant}", "passage_id", "vector") for variant in space["variants"]),
            *([_table(f"tokens/{space['key']}", "passage_id", "tokens data")] if space["token_dims"] else []),
        )
    ]
    return [SECRET, SPACES, EPISODES, PASSAGES, *of_spaces, PENDING, *PLAIN, NUMBERS]


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

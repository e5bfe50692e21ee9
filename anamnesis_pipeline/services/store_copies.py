"""Copy one store, or a backup, into another, and prove them equal.

Rows of both are compared by key, in order; only those that differ are written or removed. An interrupted copy resumes,
and a repeated one costs only what changed. The target has a mark until it is used as a memory, so that no memory is
overwritten by another.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.model import RESERVED_SOURCES, content_id
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.reembed_state import forget_recall
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.copying import (
    NUMBERS,
    OWN_SETTINGS,
    PAGE_BYTES,
    PAGE_ROWS,
    SECRET,
    CopyRecords,
    Digest,
    Key,
    Reading,
    line_of,
    rows_of,
)
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.tables import Table

log = logging.getLogger(__name__)

MARK = f"{OWN_SETTINGS}of"
"""Name of the stored setting {origin, complete} of a store that is an unused copy."""
COPIED_FROM = f"{OWN_SETTINGS}from"
"""Name of the stored setting with the origin of a copied memory: what is forgotten here still exists there."""

INDEX_WITHIN_S = 300.0
"""Seconds that a copy waits at its end for all search indexes together."""

Tell = Callable[[str, int, int], None]
"""Progress callback: step, amount done, amount in all."""
Digests = Mapping[str, Digest]
"""Table name -> digest."""


@dataclass(slots=True)
class Changes:
    """Number of rows, and how many were written or removed to make the target equal."""

    rows: int = 0
    written: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class MoveReport:
    """Result of a copy. `resumed`: it continued an earlier one."""

    changes: Changes
    resumed: bool


# --- identity of a copy ----------------------------------------------------------------------------------


def memory_id(reading: Reading) -> str:
    """Return an id that a memory shares only with its copies; it reveals no content."""
    return content_id("memory", *(row["secret"].hex() for row in rows_of(reading, SECRET)))


def begin(store: Store, origin: str, place: str) -> bool:
    """Mark a store as the unfinished copy of `origin`. Return whether it was one before. When copies of different
    memories begin at the same time, one succeeds.

    :param place: its location, in words.
    :raises GiveUp: it holds a memory, or the copy of another one.
    """
    while True:
        mark = store.settings.get(MARK)
        if mark is None and (held := _held(store)):
            raise GiveUp(
                f"{place} holds a memory already (there are {held}), and nothing is written over it; name an empty "
                f"place, or move that memory away first (a file with the -wal and -shm beside it)"
            )
        if mark is not None and mark["origin"] != origin:
            raise GiveUp(f"{place} holds a copy of something else; name an empty place, or remove that copy")
        if store.settings.swap(MARK, mark, {"origin": origin, "complete": False}):
            return mark is not None


def complete(store: Store, origin: str) -> None:
    """Mark a copy as complete. From its first use on it is an independent memory."""
    store.settings.set(MARK, {"origin": origin, "complete": True})


def note_origin(store: Store, place: str) -> None:
    """Store where a memory was copied from, in words."""
    store.settings.set(COPIED_FROM, place)


def settle(store: Store, place: str) -> None:
    """Take a store into use.

    :raises GiveUp: it is an unfinished copy.
    """
    if check_whole(store, place):
        store.settings.set(MARK, None)


def check_whole(store: Store, place: str) -> bool:
    """Return whether a store is an unused copy.

    :raises GiveUp: it is an unfinished one.
    """
    mark = store.settings.get(MARK)
    if mark is not None and not mark["complete"]:
        raise GiveUp(
            f"{place} is a copy that is not finished; run the same `anamnesis migrate` or `anamnesis restore` again, "
            f"which goes on where it was, or remove the copy"
        )
    return mark is not None


def _held(store: Store) -> str:
    """Return the name of a table with rows that a new store does not have; empty: none."""
    begins_with = {SECRET.name: 1, "sources": len(RESERVED_SOURCES)}
    with store.copies.reading() as now:
        for table in now.tables():
            allowed = begins_with.get(table.name, 0)
            if table is not NUMBERS and len(now.page(table, None, allowed + 1)) > allowed:
                return table.name
    return ""


# --- copying ---------------------------------------------------------------------------------------------


def move(source: Store, target: Store, place: str, tell: Tell) -> MoveReport:
    """Make `target` a copy of the current state of `source`, and prove it. The source is only read.

    :param place: location of the target, in words.
    :raises GiveUp: the target holds another memory, or differs in the end.
    """
    with source.copies.reading() as now:
        origin = memory_id(now)
        resumed = begin(target, origin, place)
        changes = Changes()
        digests = {table.name: bring(target.copies, table, rows, changes) for table, rows in told(now, tell)}
    finish(target, origin, digests, place, tell)
    return MoveReport(changes, resumed)


def told(now: Reading, tell: Tell) -> Iterator[tuple[Table, Iterator[Row]]]:
    """Yield every table with its rows; call `tell` for each page."""
    for table in now.tables():
        yield table, _told(rows_of(now, table), table, now.count(table), tell)


def bring(target: CopyRecords, table: Table, rows: Iterable[Row], changes: Changes) -> Digest:
    """Make a table of `target` equal to these rows, which come in key order. Return their digest.

    :param changes: rows written and removed are added to it.
    """
    digest, batch, held = Digest(), _Batch(), _Ahead(target, table)
    for row in rows:
        line, key = line_of(row), table.key_of(row)
        digest.add(line)
        for surplus in held.before(key):
            batch.gone.append(surplus)
            batch = _written_if_full(target, table, batch, changes)
        if held.take(key) != row:
            batch.rows.append(row)
            batch.size += len(line)
        batch = _written_if_full(target, table, batch, changes)
    for surplus in held.before(None):
        batch.gone.append(surplus)
        batch = _written_if_full(target, table, batch, changes)
    _write(target, table, batch, changes)
    changes.rows += digest.rows
    return digest


def finish(target: Store, origin: str, digests: Digests, place: str, tell: Tell) -> None:
    """Check a copy, and mark it complete.

    :raises GiveUp: it differs.
    """
    check(target.copies, digests, place, tell)
    target.copies.finish()
    complete(target, origin)


def check(target: CopyRecords, digests: Digests, place: str, tell: Tell) -> None:
    """:raises GiveUp: the target's tables differ from these in number or checksum of their rows."""
    with target.reading() as now:
        tables = now.tables()
    if surplus := {table.name for table in tables} ^ digests.keys():
        raise GiveUp(f"{place} has other tables than what was copied: {', '.join(sorted(surplus))}; run it again")
    for table in tables:
        wanted, found = digests[table.name], Digest()
        for row in _told(_rows_now(target, table), table, wanted.rows, tell, "checking "):
            found.add(line_of(row))
        if (found.rows, found.checksum) != (wanted.rows, wanted.checksum):
            raise GiveUp(
                f"{place} differs from what was copied: of {table.name} it holds {counted(found.rows, 'row')} "
                f"({found.checksum}), wanted {wanted.rows:,} ({wanted.checksum}). If something writes to it, stop "
                f"that; then run it again"
            )


def _rows_now(store: CopyRecords, table: Table) -> Iterator[Row]:
    """Yield all rows of a table by key. Each page is a separate snapshot: no backend has to keep one for that long."""
    after: Key | None = None
    while True:
        with store.reading() as now:
            page = now.page(table, after)
        if not page:
            return
        yield from page
        after = table.key_of(page[-1])


def make_fast(store: Store, tell: Tell) -> str:
    """Build the search index of the active space; does nothing for few vectors. Waits some minutes for an index that a
    server builds, since a user is waiting and all vectors are there; the server then continues alone.

    :return: why it could not be built, which leaves the copy complete; empty: it is there.
    """
    if (space := store.spaces.active()) is None:
        return ""
    tell("search index", 0, 1)
    try:
        store.vectors.build(space.key, within_s=INDEX_WITHIN_S)
        forget_recall(store, space.key)  # measured on the other store's index
    except AnamnesisError as problem:
        log.warning("Of space %s no search index could be built: %s", space.key, problem)
        return str(problem)
    tell("search index", 1, 1)
    return ""


@dataclass(slots=True)
class _Batch:
    """Changes for one transaction."""

    rows: list[Row] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.rows) + len(self.gone) >= PAGE_ROWS or self.size >= PAGE_BYTES


def _written_if_full(target: CopyRecords, table: Table, batch: _Batch, changes: Changes) -> _Batch:
    if not batch.is_full:
        return batch
    _write(target, table, batch, changes)
    return _Batch()


def _write(target: CopyRecords, table: Table, batch: _Batch, changes: Changes) -> None:
    if batch.rows or batch.gone:
        target.write(table, batch.rows, batch.gone)
    changes.written += len(batch.rows)
    changes.removed += len(batch.gone)


class _Ahead:
    """The rows of a table of the target, read in key order: rows written meanwhile come before the read position."""

    def __init__(self, target: CopyRecords, table: Table) -> None:
        self._table = table
        self._rows = _rows_now(target, table)
        self._row = next(self._rows, None)

    def before(self, key: Key | None) -> Iterator[Key]:
        """Take the rows before `key` (None: all that are left). Yield their keys."""
        while (row := self._row) is not None and (key is None or self._table.key_of(row) < key):
            self._row = next(self._rows, None)
            yield self._table.key_of(row)

    def take(self, key: Key) -> Row | None:
        """Take the row with this key, if there is one; those before it were taken."""
        row = self._row
        if row is None or self._table.key_of(row) != key:
            return None
        self._row = next(self._rows, None)
        return row


def _told(rows: Iterable[Row], table: Table, of: int, tell: Tell, doing: str = "") -> Iterator[Any]:
    done = 0
    for done, row in enumerate(rows, start=1):
        if done % PAGE_ROWS == 0:
            tell(f"{doing}{table.name}", done, of)
        yield row
    tell(f"{doing}{table.name}", done, done)

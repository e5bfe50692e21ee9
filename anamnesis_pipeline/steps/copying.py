"""One store made equal to another, or to a backup, and proven equal.

Rows of both are compared by key, in order, and only those that differ are written or removed: a copy that was
interrupted goes on, and one that is made again costs what changed. The store that is copied into bears a mark until it
is used as a memory, so that no memory is ever copied over another.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.model import RESERVED_SOURCES, content_id
from anamnesis_pipeline.steps.reembed_state import forget_recall
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
from anamnesis_pipeline.wording import counted

log = logging.getLogger(__name__)

MARK = f"{OWN_SETTINGS}of"
"""Name of the stored setting {origin, complete} of a store that is a copy and was not used yet."""
COPIED_FROM = f"{OWN_SETTINGS}from"
"""Name of the stored setting that says where the memory was copied from: what is forgotten here is there still."""

INDEX_WITHIN_S = 300.0
"""So long the end of a copy waits for the search indexes, all together."""

Tell = Callable[[str, int, int], None]
"""Told of the step, how much of it is done, and how much there is."""
Digests = Mapping[str, Digest]
"""Of each table, by its name."""


@dataclass(slots=True)
class Changes:
    """How many rows there are, and how many of them were written or removed to make the target so."""

    rows: int = 0
    written: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What a copy came to. `resumed`: it went on where an earlier one was."""

    changes: Changes
    resumed: bool


# --- whose copy a store is -------------------------------------------------------------------------------


def memory_id(reading: Reading) -> str:
    """What a memory and its copies have in common, and no other memory; says nothing of what it is made of."""
    return content_id("memory", *(row["secret"].hex() for row in rows_of(reading, SECRET)))


def begin(store: Store, origin: str, place: str) -> bool:
    """Mark a store as the unfinished copy of `origin`; whether it was one before. Of copies of different memories that
    begin at once one does.

    :param place: where it is, in words.
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
    """Note that a copy is whole. From its first use on it is a memory of its own."""
    store.settings.set(MARK, {"origin": origin, "complete": True})


def note_origin(store: Store, place: str) -> None:
    """Keep where a memory was copied from, in words."""
    store.settings.set(COPIED_FROM, place)


def settle(store: Store, place: str) -> None:
    """Take a store into use.

    :raises GiveUp: it is an unfinished copy.
    """
    if check_whole(store, place):
        store.settings.set(MARK, None)


def check_whole(store: Store, place: str) -> bool:
    """Whether a store is a copy that was not used yet.

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
    """A table of a store that holds what a new one's does not; empty: there is none."""
    begins_with = {SECRET.name: 1, "sources": len(RESERVED_SOURCES)}
    with store.copies.reading() as now:
        for table in now.tables():
            allowed = begins_with.get(table.name, 0)
            if table is not NUMBERS and len(now.page(table, None, allowed + 1)) > allowed:
                return table.name
    return ""


# --- copying ---------------------------------------------------------------------------------------------


def move(source: Store, target: Store, place: str, tell: Tell) -> MoveReport:
    """Make `target` a copy of `source` as it is at this moment, and prove it. The source is only read.

    :param place: where the target is, in words.
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
    """Every table with its rows; `tell` hears of each page."""
    for table in now.tables():
        yield table, _told(rows_of(now, table), table, now.count(table), tell)


def bring(target: CopyRecords, table: Table, rows: Iterable[Row], changes: Changes) -> Digest:
    """Make a table of `target` consist of these rows, which come by key; returns what they are known by.

    :param changes: what it took is added to.
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
    """Prove that a copy is what it should be, and make it whole.

    :raises GiveUp: it differs.
    """
    check(target.copies, digests, place, tell)
    target.copies.finish()
    complete(target, origin)


def check(target: CopyRecords, digests: Digests, place: str, tell: Tell) -> None:
    """:raises GiveUp: the target's tables are others than these, by number or by checksum of their rows."""
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
    """All rows of a table by key, each page as it is when it is read: no backend has to keep one moment for so long."""
    after: Key | None = None
    while True:
        with store.reading() as now:
            page = now.page(table, after)
        if not page:
            return
        yield from page
        after = table.key_of(page[-1])


def make_fast(store: Store, tell: Tell) -> str:
    """Build what the searched space's vectors are found fast by; nothing where they are few. What a server builds is
    waited for some minutes, since somebody sits before it and all is there by now; it goes on by itself.

    :return: why it could not be built, which makes the copy no less whole; empty: it is there.
    """
    if (space := store.spaces.active()) is None:
        return ""
    tell("search index", 0, 1)
    try:
        store.vectors.build(space.key, within_s=INDEX_WITHIN_S)
        forget_recall(store, space.key)  # it was of the other store's index
    except AnamnesisError as problem:
        log.warning("Of space %s no search index could be built: %s", space.key, problem)
        return str(problem)
    tell("search index", 1, 1)
    return ""


@dataclass(slots=True)
class _Batch:
    """What goes into one transaction."""

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
    """The rows of a table of the target, looked at in the order of their keys: what is written meanwhile lies behind
    them.
    """

    def __init__(self, target: CopyRecords, table: Table) -> None:
        self._table = table
        self._rows = _rows_now(target, table)
        self._row = next(self._rows, None)

    def before(self, key: Key | None) -> Iterator[Key]:
        """Take the rows before `key` (None: all that are left); yields their keys."""
        while (row := self._row) is not None and (key is None or self._table.key_of(row) < key):
            self._row = next(self._rows, None)
            yield self._table.key_of(row)

    def take(self, key: Key) -> Row | None:
        """Take the row of this key, if there is one; those before it were taken."""
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

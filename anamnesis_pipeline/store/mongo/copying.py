"""Everything that the database holds, as neutral rows, read and written."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anamnesis_pipeline.errors import GiveUp
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
from anamnesis_pipeline.store.gateway import beyond
from anamnesis_pipeline.store.mongo import copied_docs
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.space_docs import ADDING, DROPPED, live_spaces, tokens_name, vectors_name
from anamnesis_pipeline.store.mongo.spaces import MongoSpaces, SpaceIndexes, make_collections
from anamnesis_pipeline.store.mongo.vector_docs import unpack
from anamnesis_pipeline.store.tables import EPISODES, PASSAGES, PENDING, SPACES, Table

DERIVED = {
    "writer": "whose turn it is to write",
    "store": "the version of this database",
}
"""Collections that are not copied, and why; counters that `NUMBERS` does not name go on by themselves (`seq`)."""

HELD_BY = {SECRET.name: "store_secret", NUMBERS.name: "counters"}
"""What holds a neutral table, where it is no collection of the same name. Those of spaces: `vectors_`, `tokens_`."""

MOST_BYTES = (16 << 20) - 4_096
"""A document may have 16 MiB, names of fields included (https://www.mongodb.com/docs/manual/reference/limits/)."""

_BEHIND_OWN = OWN_SETTINGS[:-1] + chr(ord(OWN_SETTINGS[-1]) + 1)
"""The first text behind all that begin with `OWN_SETTINGS`."""


@dataclass(frozen=True, slots=True)
class Place:
    """How a neutral table is read. `names`: field -> what it is called in the documents, where that is another name."""

    collection: str
    names: dict[str, str] = field(default_factory=dict)
    where: Filter = field(default_factory=dict)

    def name(self, of: str) -> str:
        """What a field is called in the documents."""
        return self.names.get(of, of)


_PLACES = {
    SECRET.name: Place("store_secret", {"name": "_id"}),
    SPACES.name: Place("spaces", {"space_id": "_id"}, {"status": {"$nin": [ADDING, DROPPED]}}),
    EPISODES.name: Place("episodes", {"episode_id": "_id"}),
    PASSAGES.name: Place("passages", {"passage_id": "_id"}),
    "settings": Place(
        "settings", where={"$or": [{"name": {"$lt": OWN_SETTINGS}}, {"name": {"$gte": _BEHIND_OWN}}]}
    ),
}  # fmt: skip


class MongoReading:
    """See `Reading`. It lives as long as its session does."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        spaces = tables["spaces"].find(_PLACES[SPACES.name].where, ("_id", "key", "dim"))
        self._dims = {found["key"]: found["dim"] for found in spaces}
        self._spaces = [found["_id"] for found in spaces]

    def tables(self) -> list[Table]:
        """See `Reading.tables`."""
        return tables_of(rows_of(self, SPACES))

    def count(self, table: Table) -> int:
        """See `Reading.count`. To count what is of the moment, the server would read all of it."""
        return self._tables[_place(table).collection].size()

    def page(self, table: Table, after: Key | None, limit: int = PAGE_ROWS) -> list[Row]:
        """See `Reading.page`."""
        place = _place(table)
        terms: list[Filter] = [place.where] if place.where else []
        if table is PENDING:  # what a space that is added or dropped just now lacks is left out with it
            terms.append({"space_id": {"$in": self._spaces}})
        terms += [beyond([place.name(name) for name in table.key], after)] if after is not None else []
        found = self._tables[place.collection].each(
            {"$and": terms} if terms else {},
            [place.name(name) for name in table.fields],
            order=[(place.name(name), 1) for name in table.key],
            limit=limit,
        )
        return [self._row(table, place, document) for document in _until_full(found)]

    def _row(self, table: Table, place: Place, document: Document) -> Row:
        values = [document[place.name(name)] for name in table.fields]
        if table.name == SECRET.name:
            values[0] = "store_secret"
        elif table.name.startswith("vectors/"):
            values[1] = unpack([values[1]], self._dims[table.space]).astype(copied_docs.STORED).tobytes()
        return table.row(values)


class MongoCopy:
    """See `CopyRecords`."""

    def __init__(self, database: Database, spaces: MongoSpaces, indexes: SpaceIndexes) -> None:
        self._database = database
        self._spaces = spaces
        self._indexes = indexes

    @contextmanager
    def reading(self) -> Iterator[MongoReading]:
        """See `CopyRecords.reading`. The server keeps the moment for as long as it was told to, by itself 5 minutes."""
        with self._database.at_one_moment() as tables:
            yield MongoReading(tables)

    def write(self, table: Table, rows: Sequence[Row], gone: Sequence[Key] = ()) -> None:
        """See `CopyRecords.write`."""
        _refuse_too_large(self._database.place, table, rows)
        if table is SPACES:
            self._change_spaces(rows, gone)
            gone = ()

        def work(tables: Tables) -> None:
            copied_docs.remove(tables, table, gone)
            copied_docs.write(tables, table, rows)

        self._database.write(work)

    def _change_spaces(self, rows: Sequence[Row], gone: Sequence[Key]) -> None:
        """Collections of a space are no part of a transaction: those of spaces that go are gone before the others are
        made, since a space that was dropped and added again has another number and the same key.
        """
        if gone:
            self._database.write(partial(copied_docs.remove, table=SPACES, keys=gone))
            self._spaces.finish_drops()
        for row in rows:
            self._database.read(partial(make_collections, key=row["key"]))

    def finish(self) -> None:
        """See `CopyRecords.finish`: search indexes are asked for, and batches go on behind the last number."""
        self._database.write(_count_on)
        for space in self._database.read(live_spaces):
            self._indexes.ask(space)


def _place(table: Table) -> Place:
    if not table.space:
        if table is NUMBERS:
            return Place("counters", {"name": "_id", "last": "next"}, {"_id": {"$in": numbered()}})
        return _PLACES.get(table.name, Place(table.name))
    if table.name.startswith("tokens/"):
        return Place(tokens_name(table.space), {"passage_id": "_id"})
    variant = table.name.rpartition("/")[2]
    names = {"passage_id": "_id", "vector": variant}
    return Place(vectors_name(table.space), names, {variant: {"$exists": True}})


def _refuse_too_large(place: str, table: Table, rows: Sequence[Row]) -> None:
    """:raises GiveUp: a row would be no document; the text says which."""
    for row in rows:
        texts = [value for value in row.values() if isinstance(value, str | bytes)]
        if 4 * sum(map(len, texts)) < MOST_BYTES:  # a character has at most 4 bytes
            continue
        size = sum(len(value if isinstance(value, bytes) else value.encode()) for value in texts)
        if size > MOST_BYTES:
            key = ", ".join(map(str, table.key_of(row)))
            raise GiveUp(
                f"{place} takes no document of more than 16 MB, and of {table.name} the row {key} has "
                f"{size / 2**20:.1f}; shorten it or delete it where it is, then try again"
            )


def _until_full(found: Iterable[Document]) -> Iterator[Document]:
    """Documents up to the one with which they come to `PAGE_BYTES`."""
    held = 0
    for document in found:
        yield document
        held += sum(len(value) for value in document.values() if isinstance(value, str | bytes))
        if held >= PAGE_BYTES:
            return


def _count_on(tables: Tables) -> None:
    last: Any = tables["llm_batches"].one({}, ("number",), order=[("number", -1)])
    if last is not None:
        tables["counters"].upsert({"_id": "llm_batches"}, {"$max": {"next": last["number"]}})

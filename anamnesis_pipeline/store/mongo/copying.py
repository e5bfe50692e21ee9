"""Copies of the database: fields made from others, the vectors of spaces, and the last numbers given, which documents
hold otherwise than `tables.py` declares.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from pymongo import ReplaceOne
from typing_extensions import override

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.copying import NUMBERS, CopyRecords, Key, copied_table
from anamnesis_pipeline.store.gateway import Match, Order, Row
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.engine import MongoEpisodes, MongoGateway, MongoPassages, MongoRows, MongoTables
from anamnesis_pipeline.store.mongo.facets import FACETS
from anamnesis_pipeline.store.mongo.schema import tokens_name, vectors_name
from anamnesis_pipeline.store.mongo.spaces import MongoSpaces, SpaceIndexes, find_space, live_spaces
from anamnesis_pipeline.store.mongo.vector_search import unpack
from anamnesis_pipeline.store.mongo.vectors import write_vectors
from anamnesis_pipeline.store.records.spaces import DROPPED, SHOWN
from anamnesis_pipeline.store.tables import EPISODES, PASSAGES, PENDING, SPACES, Table
from anamnesis_pipeline.store.vector_values import STORED

DERIVED = {
    "writer": "whose turn it is to write",
    "store": "the version of this database",
}
"""Collections that are not copied, and why; counters that `NUMBERS` does not name continue automatically (`seq`)."""

MAX_BYTES = (16 << 20) - 4_096
"""A document may have 16 MiB, names of fields included (https://www.mongodb.com/docs/manual/reference/limits/)."""


class MongoCopy(CopyRecords):
    """Copies of the database."""

    def __init__(self, database: Database, spaces: MongoSpaces, indexes: SpaceIndexes) -> None:
        super().__init__(MongoGateway(database, _Tables))
        self._database = database
        self._spaces = spaces
        self._indexes = indexes

    @override
    def write(self, table: Table, rows: Sequence[Row], gone: Sequence[Key] = ()) -> None:
        """Write as `CopyRecords` does, and make or drop the collections of spaces, which are no part of a transaction:
        those of spaces that go are gone before the others are made, since a space that was dropped and added again has
        another number and the same key.

        :raises GiveUp: a row is larger than a document may be.
        """
        for row in rows:
            texts = [value for value in row.values() if isinstance(value, str | bytes)]
            if 4 * sum(map(len, texts)) < MAX_BYTES:  # a character has at most 4 bytes
                continue
            size = sum(len(value if isinstance(value, bytes) else value.encode()) for value in texts)
            if size > MAX_BYTES:
                key = ", ".join(map(str, table.key_of(row)))
                raise GiveUp(
                    f"{self._database.place} takes no document of more than 16 MB, and of {table.name} the row {key} "
                    f"has {size / 2**20:.1f}; shorten it or delete it where it is, then try again"
                )
        if table is SPACES:
            if gone:
                super().write(table, [], gone)
                self._spaces.finish_drops()
                gone = ()
            for row in rows:
                self._spaces.make_collections(row["key"])
        super().write(table, rows, gone)

    @override
    def finish(self) -> None:
        """Ask for search indexes, and let batches go on behind the last number."""

        def count_on(collections: Collections) -> None:
            last = collections["llm_batches"].one({}, ("number",), order=[("number", -1)])
            if last is not None:
                collections["counters"].upsert({"_id": "llm_batches"}, {"$max": {"next": last["number"]}})

        self._database.write(count_on)
        with self._database.read() as collections:
            spaces = live_spaces(collections)
        for space in spaces:
            self._indexes.ask(space)


class _Tables(MongoTables):
    """Also those of a copy that are no collection of the same name."""

    @override
    def __getitem__(self, name: str) -> MongoRows:
        kind = _KEPT_OTHERWISE.get(name.partition("/")[0], _Rows)
        return kind(self.collections, copied_table(name))


class _Rows(MongoRows):
    @override
    def count(self, match: Match, *, by: Sequence[str] = ()) -> int:
        """To count the rows of the moment, the server would read all of them."""
        return super().count(match, by=by) if by else self._collection.size()


class _Spaces(_Rows):
    @override
    def each(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Row]:
        return super().each({"$and": [match, SHOWN]}, fields, order=order, limit=limit, skip=skip)

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        """At most one space is active, and one building: those that change give that up first."""
        self.update({"space_id": {"$in": [row["space_id"] for row in rows]}}, {"status": "added"})
        super().put(rows, keep)

    @override
    def delete(self, match: Match) -> int:
        """The rest is removed behind the transaction."""
        self._collections["pending"].delete({"space_id": {"$in": [row["space_id"] for row in self.find(match)]}})
        return self.update(match, {"status": DROPPED})


class _Episodes(MongoEpisodes, _Rows):
    """With the count of `_Rows`."""


class _Passages(MongoPassages, _Rows):
    """With the count of `_Rows`."""


class _Pending(_Rows):
    @override
    def each(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Row]:
        """Rows of a space that is added or dropped just now are left out with it."""
        spaces = [row["space_id"] for row in _Spaces(self._collections, SPACES).find({}, ["space_id"])]
        of_spaces = {"$and": [match, {"space_id": {"$in": spaces}}]}
        return super().each(of_spaces, fields, order=order, limit=limit, skip=skip)

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        numbers = {"number": {"$in": sorted({row["number"] for row in rows})}}
        found = self._collections["episodes"].find(numbers, ("_id", "number"))
        ids = {episode["number"]: episode["_id"] for episode in found}
        documents = [{**row, "episode_id": ids[row["number"]]} for row in rows]
        self._collection.write([ReplaceOne(self._key(each), each, upsert=True) for each in documents])


class _Vectors(_Rows):
    """Vectors of a variant: `vectors/<space>/<variant>`. A document has those of all variants."""

    def __init__(self, collections: Collections, table: Table) -> None:
        _, self._space, self._variant = table.name.split("/")
        names = {"passage_id": "_id", "vector": self._variant}
        super().__init__(collections, table, vectors_name(self._space), names)

    @override
    def each(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Row]:
        with_one = {"$and": [match, {"vector": {"$ne": None}}]}
        for row in super().each(with_one, fields, order=order, limit=limit, skip=skip):
            yield {**row, "vector": unpack([row["vector"]], -1).astype(STORED).tobytes()}

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        vectors = {row["passage_id"]: np.frombuffer(row["vector"], STORED).astype(np.float32) for row in rows}
        these = {"_id": {"$in": list(vectors)}}
        passages = self._collections["passages"].find(these, ("_id", *FACETS), order=[("_id", 1)])
        space = find_space(self._collections, self._space)
        write_vectors(self._collections, space, passages, {Variant(self._variant): vectors})

    @override
    def delete(self, match: Match) -> int:
        these = self._filter(match)
        count = self._collection.update(these, {"$unset": {self._variant: ""}})
        variants = find_space(self._collections, self._space).variants
        self._collection.delete({**these, **{each.value: {"$exists": False} for each in variants}})
        return count


class _Tokens(_Rows):
    """Token vectors of a space: `tokens/<space>`."""

    def __init__(self, collections: Collections, table: Table) -> None:
        super().__init__(collections, table, tokens_name(table.space), {"passage_id": "_id"})


class _Numbers(_Rows):
    def __init__(self, collections: Collections, table: Table) -> None:
        super().__init__(collections, table, "counters", {"name": "_id", "last": "next"})


_KEPT_OTHERWISE: dict[str, type[MongoRows]] = {
    SPACES.name: _Spaces,
    EPISODES.name: _Episodes,
    PASSAGES.name: _Passages,
    PENDING.name: _Pending,
    "vectors": _Vectors,
    "tokens": _Tokens,
    NUMBERS.name: _Numbers,
}
"""By the beginning of the names of their tables."""

"""The gateway over MongoDB."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from pymongo import ReplaceOne, UpdateOne
from typing_extensions import override

from anamnesis_pipeline.store.gateway import (
    MAX_ROWS_PER_WRITE,
    Field,
    Gateway,
    Match,
    Order,
    Row,
    Rows,
    Tables,
    spelled_out,
)
from anamnesis_pipeline.store.index_terms import exact_terms
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.collections import Collection, Document, Filter, Write
from anamnesis_pipeline.store.mongo.facets import CHANGED_FIELDS, changed_facets, facets_of
from anamnesis_pipeline.store.mongo.schema import IDS, seq_counter, tokens_name, vectors_name
from anamnesis_pipeline.store.mongo.search_indexes import unspaced_fields
from anamnesis_pipeline.store.records.forgetting import Traces
from anamnesis_pipeline.store.records.spaces import DROPPED
from anamnesis_pipeline.store.tables import BY_NAME, EPISODES, PASSAGES, Flag, RowFlag, Table

T = TypeVar("T")

KEPT = (
    "the server's files, until the place of a deleted document is used again",
    "the oplog of each server, until it has rolled over (rs.printReplicationInfo() says how far it reaches back)",
    "search indexes, until the parts of them that have deleted documents are merged",
)
"""Where MongoDB keeps deleted documents."""
terms_of = lru_cache(2 * MAX_ROWS_PER_WRITE)(exact_terms)
"""Remembered for as many texts as two transactions write: those of one are made before its turn, in which no other
process can write, and it may run again.
"""


class MongoGateway(Gateway):
    """The engine over one MongoDB database."""

    def __init__(self, database: Database, tables: type["MongoTables"] | None = None) -> None:
        self._database = database
        self._tables = tables or MongoTables

    @override
    @contextmanager
    def read(self) -> Iterator["MongoTables"]:
        with self._database.read() as collections:
            yield self._tables(collections)

    @override
    @contextmanager
    def snapshot(self) -> Iterator["MongoTables"]:
        with self._database.snapshot() as collections:
            yield self._tables(collections)

    @override
    def write(self, work: Callable[["MongoTables"], T], *, within_s: float | None = None) -> T:
        return self._database.write(lambda collections: work(self._tables(collections)), within_s=within_s)


class MongoTraces(Traces):
    """What MongoDB keeps of deleted documents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def scrub(self) -> list[str]:
        """Do nothing: what was deleted is in no collection, and no search answers with it."""
        return []

    @override
    def keeps(self) -> list[str]:
        """WiredTiger writes a page to another place and leaves the old one until that is needed, even where
        `compact` gives room back; the oplog is cut at its old end alone.

        https://www.mongodb.com/docs/manual/core/wiredtiger/, https://www.mongodb.com/docs/manual/core/replica-set-oplog/
        """
        return [f"{self._database.place}: {place}" for place in KEPT]


class MongoTables(Tables):
    """The tables of the database, as its collections hold them."""

    def __init__(self, collections: Collections) -> None:
        self.collections = collections

    @override
    def __getitem__(self, name: str) -> "MongoRows":
        return _SPREAD.get(name, MongoRows)(self.collections, BY_NAME[name])


class MongoRows(Rows):
    """The documents of one collection, as rows."""

    def __init__(
        self, collections: Collections, table: Table, name: str = "", names: Mapping[str, str] | None = None
    ) -> None:
        """:param name: of the collection, and `names`: of fields in documents, where these have others."""
        self._collections = collections
        self._collection: Collection = collections[name or table.name]
        self._table = table
        self._names = names or {IDS.get(table.name, ""): "_id"}

    @override
    def each(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Row]:
        names = fields or self._table.fields
        found = self._collection.each(
            self._filter(match), [self._name(name) for name in names], order=self._sort(order), limit=limit, skip=skip
        )
        for document in found:
            yield self._row(document, names)

    @override
    def among(self, field: str, values: Iterable[Any], fields: Sequence[str] = (), **match: Any) -> Iterator[Row]:
        names = fields or self._table.fields
        found = self._collection.among(
            self._name(field), values, [self._name(name) for name in names], **self._filter(match)
        )
        for document in found:
            yield self._row(document, names)

    @override
    def has(self, match: Match) -> bool:
        return self._collection.has(self._filter(match))

    @override
    def count(self, match: Match, *, by: Sequence[str] = ()) -> int:
        if not by:
            return self._collection.count(self._filter(match))
        group = {"_id": {name: f"${self._name(name)}" for name in by}}
        stages: list[Document] = [{"$match": self._filter(match)}, {"$group": group}, {"$count": "groups"}]
        return next((int(each["groups"]) for each in self._collection.aggregate(stages)), 0)

    @override
    def sums(self, match: Match, fields: Sequence[str] = (), *, by: Sequence[str] = ()) -> list[Row]:
        sums: Document = {"rows": {"$sum": 1}, **{name: {"$sum": f"${self._name(name)}"} for name in fields}}
        group = {"_id": {name: f"${self._name(name)}" for name in by}, **sums}
        found = self._collection.aggregate([{"$match": self._filter(match)}, {"$group": group}])
        if not found and not by:
            return [dict.fromkeys(("rows", *fields), 0)]
        return [{**each.pop("_id"), **each} for each in found]

    @override
    def firsts(self, match: Match, *, by: Sequence[str], fields: Sequence[str], order: Order) -> list[Row]:
        """Where an index begins with `by` and the flags of the match, the server looks at one entry for each group
        (https://www.mongodb.com/docs/manual/reference/operator/aggregation/group/#optimizations).
        """
        sort = dict.fromkeys([self._name(name) for name in by], 1)
        sort |= {name: 1 for name in match if name in self._table.flags} | dict(self._sort(order))
        group: Document = {"_id": {name: f"${self._name(name)}" for name in by}}
        group |= {name: {"$first": f"${self._name(name)}"} for name in fields}
        found = self._collection.aggregate([{"$match": self._filter(match)}, {"$sort": sort}, {"$group": group}])
        return [{**each.pop("_id"), **each} for each in found]

    @override
    def insert(self, rows: Sequence[Row]) -> int:
        numbered, first = self._numbered(rows)
        self._collection.insert([{**self._document(row), **self._flags(row)} for row in numbered])
        return first

    @override
    def add(self, rows: Sequence[Row]) -> int:
        writes = []
        for row in self._numbered(rows)[0]:
            first = {**self._rest(row), **self._flags(row)}
            writes.append(UpdateOne(self._key(row), {"$setOnInsert": first}, upsert=True))
        return self._collection.made(writes)

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        required, stages = self._table.required, flag_stages(self._table)
        writes: list[Write] = []
        for row in rows:
            if not keep and len(row) == len(self._table.kinds):
                writes.append(ReplaceOne(self._key(row), {**self._document(row), **self._flags(row)}, upsert=True))
                continue
            rest, is_whole = self._rest(row), required <= row.keys()
            if is_whole:  # the server works out the others
                rest |= {name: flag.of(row) for name, flag in self._table.flags.items() if isinstance(flag, RowFlag)}
            if stages:
                kept = {name: {"$ifNull": [f"${name}", rest.pop(name)]} for name in keep}
                writes.append(UpdateOne(self._key(row), [{"$set": _literal(rest) | kept}, *stages], upsert=is_whole))
                continue
            first = {name: rest.pop(name) for name in keep if name in rest}
            change = {name: its for name, its in (("$set", rest), ("$setOnInsert", first)) if its}
            writes.append(UpdateOne(self._key(row), change, upsert=is_whole))
        self._collection.write(writes)

    @override
    def update(self, match: Match, change: Row, *, add: Mapping[str, int] | None = None) -> int:
        stages = flag_stages(self._table)
        if stages or any(isinstance(value, Field) for value in change.values()):
            added = {name: {"$add": [f"${name}", count]} for name, count in (add or {}).items()}
            changed = {"$set": _literal(self._document(change)) | added}
            return self._collection.update(self._filter(match), [changed, *stages])
        changes = {"$set": self._document(change), "$inc": dict(add or {})}
        return self._collection.update(self._filter(match), {name: its for name, its in changes.items() if its})

    @override
    def delete(self, match: Match) -> int:
        return self._collection.delete(self._filter(match))

    def _flags(self, row: Row) -> Document:
        return {name: flag.of(row) for name, flag in self._table.flags.items()}

    def _numbered(self, rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
        """Return the rows with the numbers of their serial field, and the first one given (0: none is)."""
        serial = self._table.serial
        if not serial or not rows or serial in rows[0]:
            return rows, 0
        first = self._collections.next_number(self._table.name, len(rows))
        return [{**row, serial: number} for number, row in enumerate(rows, first)], first

    def _name(self, field: str) -> str:
        if field not in self._table.kinds and field not in self._table.flags:
            raise KeyError(f"{self._table.name} has no field {field}; its fields are {', '.join(self._table.fields)}")
        return self._names.get(field, field)

    def _sort(self, order: Order) -> list[tuple[str, int]]:
        return [(self._name(name.removeprefix("-")), -1 if name.startswith("-") else 1) for name in order]

    def _document(self, row: Row) -> Document:
        return {self._name(name): value for name, value in row.items()}

    def _key(self, row: Row) -> Document:
        return {self._name(name): row[name] for name in self._table.key}

    def _rest(self, row: Row) -> Document:
        return {self._name(name): value for name, value in row.items() if name not in self._table.key}

    def _row(self, document: Document, names: Sequence[str]) -> Row:
        return {name: document[self._name(name)] for name in names}

    def _filter(self, match: Match) -> Filter:
        """Return a match with the names of the documents, and its one operator that is not MongoDB's."""
        terms: Document = {}
        for name, wanted in match.items():
            if name == "$or":
                terms[name] = [self._filter(each) for each in wanted]
            elif name == "$and":
                terms.setdefault(name, []).extend(self._filter(each) for each in wanted)
            elif name == "$beyond":
                terms.setdefault("$and", []).append(self._filter(spelled_out(wanted)))
            elif isinstance(wanted, Mapping) and "$contains" in wanted:
                terms[self._name(name)] = {"$regex": re.escape(wanted["$contains"]), "$options": "i"}
            elif isinstance(wanted, Mapping) and "$has" in wanted:
                terms[self._name(name)] = wanted["$has"]
            elif isinstance(wanted, Mapping) and wanted.get("$gte") == "" and self._table.kinds[name].endswith("?"):
                rest = {operator: value for operator, value in wanted.items() if operator != "$gte"}
                terms[self._name(name)] = {**rest, "$type": "string"}  # as the partial indexes have it
            else:
                terms[self._name(name)] = wanted
        return terms


class MongoEpisodes(MongoRows):
    """Episodes. What filters look at is repeated in their passages and vectors (`facets.py`)."""

    @override
    def insert(self, rows: Sequence[Row]) -> int:
        numbered, first = self._numbered(rows)
        self._collection.insert([self._with_facets(row) for row in numbered])
        return first

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        whole = [row for row in rows if len(row) == len(self._table.kinds)]
        changed = {row["number"]: self._document(row) for row in rows if len(row) < len(self._table.kinds)}
        if changed:
            found = self._collection.among("number", changed, (*CHANGED_FIELDS, "number"))
            self._change((each, changed[each["number"]]) for each in found)
        if whole:
            documents = [self._with_facets(row) for row in whole]
            held = self._collection.among("_id", (each["_id"] for each in documents), CHANGED_FIELDS)
            before = {each["_id"]: each for each in held}
            self._collection.write([ReplaceOne({"_id": each["_id"]}, each, upsert=True) for each in documents])
            self._spread(
                {each["_id"]: changed_facets(before[each["_id"]], each) for each in documents if each["_id"] in before}
            )

    @override
    def update(self, match: Match, change: Row, *, add: Mapping[str, int] | None = None) -> int:
        fields = {name: self._name(value.name) for name, value in change.items() if isinstance(value, Field)}
        given = {name: value for name, value in change.items() if name not in fields}
        added = add or {}
        found = self._collection.find(self._filter(match), sorted({*CHANGED_FIELDS, *fields.values(), *added}))
        self._change(
            (
                each,
                given
                | {name: each[other] for name, other in fields.items()}
                | {name: each[name] + count for name, count in added.items()},
            )
            for each in found
        )
        return len(found)

    @override
    def delete(self, match: Match) -> int:
        """Delete them with all that belongs to them."""
        ids = [row["episode_id"] for row in self.find(match, ["episode_id"])]
        of_these = {"episode_id": {"$in": ids}}
        passages = [found["_id"] for found in self._collections["passages"].find(of_these, ("_id",))]
        MongoPassages(self._collections, PASSAGES).delete_keys(passages)
        self._collections["pending"].delete(of_these)
        return self._collection.delete({"_id": {"$in": ids}})

    def _with_facets(self, row: Row) -> Document:
        document = self._document(row)
        return document | {name: value for name, value in facets_of(document).items() if name != "episode_id"}

    def _change(self, changes: Iterable[tuple[Document, Document]]) -> None:
        """Set fields of episodes, given as the `CHANGED_FIELDS` of a document and its new fields, and what follows from
        them in their passages and vectors.
        """
        writes: list[Write] = []
        changed: dict[str, Document] = {}
        for document, fields in changes:
            changed[document["_id"]] = facets = changed_facets(document, {**document, **fields})
            writes.append(UpdateOne({"_id": document["_id"]}, {"$set": {**facets, **fields}}))
        self._collection.write(writes)
        self._spread(changed)

    def _spread(self, facets: Mapping[str, Document]) -> None:
        """Write changed facets of episodes, by id, into their passages and the vectors of every space. Each gets a
        own `seq`, by which a reader knows that a search index has not seen it yet.
        """
        changed = {episode_id: its for episode_id, its in facets.items() if its}
        if not changed:
            return
        tables = self._collections
        for name in ("passages", *(vectors_name(key) for key, _ in _live_spaces(tables))):
            found = tables[name].find({"episode_id": {"$in": list(changed)}}, ("_id", "episode_id"), order=[("_id", 1)])
            first = tables.next_number(seq_counter(name), len(found)) if found else 0
            tables[name].write(
                [
                    UpdateOne({"_id": each["_id"]}, {"$set": {**changed[each["episode_id"]], "seq": seq}})
                    for seq, each in enumerate(found, first)
                ]
            )


class MongoPassages(MongoRows):
    """Passages. One never changes: it is deleted with its vectors, and another is inserted."""

    @override
    def insert(self, rows: Sequence[Row]) -> int:
        if not rows:
            return 0
        numbered, first = self._numbered(rows)
        episodes = self._collections["episodes"].among("_id", {row["episode_id"] for row in rows}, CHANGED_FIELDS)
        facets = {found["_id"]: facets_of(found) for found in episodes}
        seq = self._collections.next_number(seq_counter("passages"), len(rows))
        self._collection.insert(
            [
                self._document(row)
                | {"terms": terms_of(row["text"]), "seq": seq + place}
                | unspaced_fields(row["text"], row["context"])
                | facets[row["episode_id"]]
                for place, row in enumerate(numbered)
            ]
        )
        return first

    @override
    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        self.delete({"passage_id": {"$in": [row["passage_id"] for row in rows]}})
        self.insert(rows)

    @override
    def delete(self, match: Match) -> int:
        """Delete them with the vectors of every space."""
        found = [row["passage_id"] for row in self.find(match, ["passage_id"])]
        self.delete_keys(found)
        return len(found)

    def delete_keys(self, passage_ids: Sequence[int]) -> None:
        """Delete the passages of these keys with the vectors of every space."""
        if not passage_ids:
            return
        where = {"_id": {"$in": list(passage_ids)}}
        self._collection.delete(where)
        for key, token_dims in _live_spaces(self._collections):
            self._collections[vectors_name(key)].delete(where)
            if token_dims:
                self._collections[tokens_name(key)].delete(where)


def _live_spaces(collections: Collections) -> list[tuple[str, int]]:
    """Return key and `token_dims` of the spaces that may have vectors, those that are being added included."""
    found = collections["spaces"].find({"status": {"$ne": DROPPED}}, ("key", "token_dims"), order=[("_id", 1)])
    return [(each["key"], each["token_dims"]) for each in found]


_SPREAD: Mapping[str, type[MongoRows]] = {EPISODES.name: MongoEpisodes, PASSAGES.name: MongoPassages}
"""Tables whose documents hold more than their fields."""


def flag_stages(table: Table) -> list[Document]:
    """Return the stages of an update that work out the flags of a table, none if it has none."""
    flags = {
        name: {
            "$cond": [
                {
                    "$and": [
                        *({"$eq": [f"${field}", None]} for field in flag.unset),
                        *({"$eq": [f"${field}", value]} for field, value in flag.equal.items()),
                        *({"$ne": [f"${field}", f"${other}"]} for field, other in flag.unequal.items()),
                    ]
                },
                1,
                0,
            ]
        }
        for name, flag in table.flags.items()
        if isinstance(flag, Flag)
    }
    return [{"$set": flags}] if flags else []


def _literal(change: Row) -> Document:
    """Return a change as expressions: a text may begin with "$"."""
    return {
        name: f"${value.name}" if isinstance(value, Field) else {"$literal": value} for name, value in change.items()
    }

"""The collections, their indexes and validators. The database holds by which definitions they were made, so that a
start makes what is missing only where these are others by now, and asks for no more than that where they are not.

A collection has the name and the fields of its table in `store/tables.py`. What differs: `_id` is the id of episodes
and the number of passages and spaces; `validators.py` names the fields that are kept beside those, and the collections
of this engine alone. `vectors_<space>` and `tokens_<space>` hold the vectors of a space by passage: see `vectors.py`.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pymongo import UpdateOne

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.exact_terms import exact_terms
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.mongo import validators
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.indexes import Index
from anamnesis_pipeline.store.mongo.search_definitions import unspaced_fields
from anamnesis_pipeline.store.mongo.validators import validator_of
from anamnesis_pipeline.store.records import sessions
from anamnesis_pipeline.store.tables import BY_NAME, TEXT, by
from anamnesis_pipeline.store.tables import Index as DeclaredIndex

VERSION = 4
_UNSPACED, _SESSIONS, _READS = 2, 3, 4
"""From these versions on passages have the fields of scripts without spaces, sessions are noted, and what is read is
counted.
"""
APPLICATION = "anamnesis"
IS_TEXT = {"$type": "string"}
"""`tables.TEXT` as queries of this engine have it: a partial index serves those with its very terms."""


_OWN_INDEXES = {
    "files": [by("incomplete source path", {"incomplete": 1}), by("source", {"to_parse": 1})],
    "passages": [by("seq")],
    "pending": [
        by("space_id episode_id", unique=True),
        by("space_id number"),
        by("episode_id"),
    ],
}
"""Indexes over the fields that only this engine keeps."""
_WITHOUT_KEY = {*validators.IDS, "pending", "store_secret", *validators.OWN}
"""Collections whose key in `tables.py` needs no unique index here: `_id` or another one is."""


def indexes_of(name: str) -> list[Index]:
    """Return the indexes of a collection."""
    table = validators.declared(name)
    key = [] if name in _WITHOUT_KEY else [by(" ".join(table.key), unique=True)]
    number = [by("number")] if name == "episodes" else []
    return [_index(name, each) for each in (*key, *number, *_OWN_INDEXES.get(name, ()), *table.indexes)]


def _index(name: str, index: DeclaredIndex) -> Index:
    """Return a declared index with the field names of the documents."""
    own = validators.IDS.get(name)
    fields = tuple("-_id" if field == f"-{own}" else "_id" if field == own else field for field in index.fields)
    where = {field: IS_TEXT if wanted == TEXT else wanted for field, wanted in index.where.items()}
    return Index(fields, index.unique, where)


COLLECTIONS: dict[str, Sequence[Index]] = {name: indexes_of(name) for name in (*BY_NAME, *validators.OWN)}

OF_SPACES: dict[str, Sequence[Index]] = {
    "vectors_": [Index(("seq",)), Index(("episode_id",))],
    "tokens_": [Index(("tokens",))],
}
"""By the beginning of the names of a space's collections (`space_docs.py`)."""


def prepare(database: Database) -> None:
    """Let collections, indexes and validators be those of this version, where others were here before.

    :raises StoreCorrupt: the database is of a newer version, or of another program.
    """
    if database.read(_version) == VERSION and database.read(_made_by) == _definitions():
        return
    database.read(lambda tables: _make_collections(tables, _former_indexes(tables)))
    while database.write(_index_some):
        pass
    version = database.read(_version)
    if 0 < version < _SESSIONS:
        for keys in batches(database.read(_sessions)):
            database.write(partial(_note_sessions, keys=keys))
    if 0 < version < _READS:
        while database.write(_count_reads):
            pass
    database.write(_fill)


def _version(tables: Tables) -> int:
    """The version of what is there; 0: nothing is."""
    found = tables["store"].one({"_id": APPLICATION})
    if found is None:
        if foreign := tables.names() - COLLECTIONS.keys():
            raise StoreCorrupt(
                f"the database has collections of another program ({', '.join(sorted(foreign)[:3])}); "
                f"choose another name with ANAMNESIS_MONGO_DATABASE"
            )
        return 0
    if found["version"] > VERSION:
        raise StoreCorrupt(
            f"the database was written by a newer version ({found['version']}), and this one knows {VERSION}; "
            f"update anamnesis"
        )
    return int(found["version"])


def _made_by(tables: Tables) -> str:
    """What tells the definitions apart that the database was made by."""
    found = tables["store"].one({"_id": APPLICATION}, ("made_by",)) or {}
    return str(found.get("made_by", ""))


def _definitions() -> str:
    """What tells the definitions of this version apart from others."""
    defined = {**COLLECTIONS, **OF_SPACES}
    validators = [validator_of(name) for name in defined]
    return hashlib.sha256(repr((defined, validators)).encode()).hexdigest()[:16]


def _index_names() -> dict[str, list[str]]:
    """Names of the indexes by collection, by the beginning of its name where it is of a space."""
    return {name: [index.name for index in indexes] for name, indexes in {**COLLECTIONS, **OF_SPACES}.items()}


def _former_indexes(tables: Tables) -> dict[str, list[str]]:
    """The same of the definitions that the database was made by."""
    found = tables["store"].one({"_id": APPLICATION}, ("indexes",)) or {}
    return dict(found.get("indexes", {}))


def _make_collections(tables: Tables, former: Mapping[str, Sequence[str]]) -> None:
    for name, indexes in COLLECTIONS.items():
        tables[name].make(indexes, former.get(name, ()))
    for name in sorted(tables.names()):
        for begin, indexes in OF_SPACES.items():
            if name.startswith(begin):
                tables[name].make(indexes, former.get(begin, ()))


def _index_some(tables: Tables) -> bool:
    """Give passages of an earlier version what full text holds of scripts without spaces, some at a time; it goes on
    where another process was ended. False: none is left.
    """
    made = tables["store"].one({"_id": APPLICATION}) or {"version": _UNSPACED}
    if made["version"] >= _UNSPACED:
        return False
    behind = {"_id": {"$gt": made.get("indexed_to", 0)}}
    found = tables["passages"].find(behind, ("_id", "text", "context"), order=[("_id", 1)], limit=MAX_ROWS_PER_WRITE)
    tables["passages"].write([
        UpdateOne({"_id": each["_id"]}, {"$set": {"terms": exact_terms(each["text"]), **fields}})
        for each in found
        if (fields := unspaced_fields(each["text"], each["context"]))
    ])  # fmt: skip
    if found:
        tables["store"].update({"_id": APPLICATION}, {"$set": {"indexed_to": found[-1]["_id"]}})
    return bool(found)


def _note_sessions(tables: Tables, keys: Sequence[tuple[str, str]]) -> None:
    sessions.note(MongoTables(tables), keys)


def _sessions(tables: Tables) -> list[tuple[str, str]]:
    """(source, session) of every episode of a log that has one."""
    stages: list[dict[str, Any]] = [
        {"$match": {"session_id": {"$gt": ""}}},
        {"$group": {"_id": {"source": "$source", "session_id": "$session_id"}}},
    ]
    return sorted((row["_id"]["source"], row["_id"]["session_id"]) for row in tables["episodes"].aggregate(stages))


def _count_reads(tables: Tables) -> bool:
    """Let episodes of an earlier version, some at a time, be read as often as they were found: that was not told apart
    then. False: none is left.
    """
    uncounted = {"read_count": {"$exists": False}}
    found = tables["episodes"].find(uncounted, ("_id", "retrieval_count"), limit=MAX_ROWS_PER_WRITE)
    tables["episodes"].write(
        [UpdateOne({"_id": each["_id"]}, {"$set": {"read_count": each["retrieval_count"]}}) for each in found]
    )
    return bool(found)


def _fill(tables: Tables) -> None:
    """What a new store begins with."""
    for key in RESERVED_SOURCES:
        row = {"machine": "", "root": "", "folder": "", "kind": "reserved", "spec": ""}
        tables["sources"].upsert({"key": key}, {"$setOnInsert": row})
    tables["store_secret"].upsert({"_id": "secret"}, {"$setOnInsert": {"secret": os.urandom(32)}})
    made = {"version": VERSION, "made_by": _definitions(), "indexes": _index_names()}
    tables["store"].upsert({"_id": APPLICATION}, {"$set": made})

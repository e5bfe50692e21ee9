"""Opening the store in MongoDB. The database holds by which definitions its collections were made, so that a start
makes what is missing only where these are others by now, and asks for no more than that where they are not.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import Literal, TypeVar

import pymongo
from pymongo import UpdateOne

from anamnesis_pipeline.errors import StoreBusy, StoreCorrupt
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, write_all
from anamnesis_pipeline.store.index_terms import exact_terms
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.copying import MongoCopy
from anamnesis_pipeline.store.mongo.engine import MongoGateway, MongoTraces
from anamnesis_pipeline.store.mongo.fulltext import MongoTextIndex
from anamnesis_pipeline.store.mongo.native import MongoNative, MongoOverview
from anamnesis_pipeline.store.mongo.schema import COLLECTIONS, INDEXES_OF_SPACES, validator_of
from anamnesis_pipeline.store.mongo.search_indexes import text_index, unspaced_fields
from anamnesis_pipeline.store.mongo.spaces import MongoSpaces
from anamnesis_pipeline.store.mongo.vectors import MongoVectors
from anamnesis_pipeline.store.records import session_notes

log = logging.getLogger(__name__)
T = TypeVar("T")

ASKED_FOR_S = 5.0
"""So long one attempt to reach the server takes, and so often the log says what is waited for."""
PAUSE_S = 0.5


def open_mongo(
    uri: str, database: str, *, quantization: Literal["none", "scalar", "binary"] = "none", wait_s: float = 60.0
) -> Store:
    """Open, and prepare if need be, the store in a database of a replica set or of MongoDB Atlas.

    :param quantization: what the vector indexes of spaces hold instead of float32.
    :param wait_s: how long a primary may take to answer. The search service is not waited for: without it the store
        opens all the same, and searches by it are degraded.
    :raises StoreBusy: there is no primary within `wait_s`, or its name cannot be resolved.
    :raises GiveUp: the server refuses the user, or is none of a replica set.
    :raises BadSetting: `uri` is none.
    :raises StoreCorrupt: the database is of a newer version, or of another program.
    """
    until = time.monotonic() + wait_s
    held = _awaited(lambda: Database(uri, database), until)

    def ping() -> None:
        with pymongo.timeout(ASKED_FOR_S):
            held.command({"ping": 1}, admin=True)

    try:
        _awaited(ping, until)
        prepare(held)
        passages = text_index()
        text = MongoTextIndex(held, passages)
        with pymongo.timeout(ASKED_FOR_S):
            text.prepare()
        vectors = MongoVectors(held, passages, quantization)
        spaces = MongoSpaces(held, vectors)
        return Store.over(
            MongoGateway(held),
            MongoNative(),
            MongoTraces(held),
            text=text,
            vectors=vectors,
            spaces=spaces,
            overview=MongoOverview(held),
            copies=MongoCopy(held, spaces, vectors),
            close=held.close,
        )
    except BaseException:
        held.close()
        raise


def _awaited(work: Callable[[], T], until: float) -> T:
    """What `work` returns, once there is a primary; an election, or a server that starts, takes some seconds.

    :raises StoreBusy: there was none in time.
    """
    began = time.monotonic()
    while True:
        try:
            return work()
        except StoreBusy as exc:
            now = time.monotonic()
            if now + PAUSE_S >= until:
                raise
            log.warning("Waiting since %.0f s of at most %.0f: %s", now - began, until - began, exc)
        time.sleep(PAUSE_S)


# --- the collections of this version ---------------------------------------------------------------------

VERSION = 5
_UNSPACED, _SESSIONS, _READS = 2, 3, 4
"""From these versions on passages have the fields of scripts without spaces, sessions are noted, and what is read is
counted; in 5, what is to be observed has its source.
"""
APPLICATION = "anamnesis"


def prepare(database: Database) -> None:
    """Let collections, indexes and validators be those of this version, where others were here before.

    :raises StoreCorrupt: the database is of a newer version, or of another program.
    """
    definitions = {**COLLECTIONS, **INDEXES_OF_SPACES}
    checked = [validator_of(name) for name in definitions]
    made_by = hashlib.sha256(repr((definitions, checked)).encode()).hexdigest()[:16]
    with database.read() as tables:
        held = tables["store"].one({"_id": APPLICATION}) or {}
        version = int(held.get("version", 0))
        if not held and (foreign := tables.names() - COLLECTIONS.keys()):
            raise StoreCorrupt(
                f"the database has collections of another program ({', '.join(sorted(foreign)[:3])}); "
                f"choose another name with ANAMNESIS_MONGO_DATABASE"
            )
        if version > VERSION:
            raise StoreCorrupt(
                f"the database was written by a newer version ({version}), and this one knows {VERSION}; update "
                f"anamnesis"
            )
        if version == VERSION and held.get("made_by") == made_by:
            return
        former = dict(held.get("indexes", {}))
        there = sorted(tables.names())
        of_spaces = [(name, begin) for name in there for begin in INDEXES_OF_SPACES if name.startswith(begin)]
        for name, begin in [*((name, name) for name in COLLECTIONS), *of_spaces]:
            tables[name].make(definitions[begin], former.get(begin, ()))
        # (source, session) of every episode of a log that has one
        pairs: Document = {"_id": {"source": "$source", "session_id": "$session_id"}}
        stages: list[Document] = [{"$match": {"session_id": {"$gt": ""}}}, {"$group": pairs}]
        rows = tables["episodes"].aggregate(stages) if 0 < version < _SESSIONS else []
        sessions = sorted((row["_id"]["source"], row["_id"]["session_id"]) for row in rows)
    while database.write(_index_some):
        pass
    write_all(MongoGateway(database), sessions, session_notes.note)
    if 0 < version < _READS:
        while database.write(_count_reads):
            pass

    def fill(tables: Collections) -> None:
        for key in RESERVED_SOURCES:
            row = {"machine": "", "root": "", "folder": "", "kind": "reserved", "spec": ""}
            tables["sources"].upsert({"key": key}, {"$setOnInsert": row})
        # of earlier versions; it is filled again, as the rules of what is observed are others
        tables["unobserved"].delete({"source": {"$exists": False}})
        tables["store_secret"].upsert({"_id": "secret"}, {"$setOnInsert": {"secret": os.urandom(32)}})
        # indexes: by collection, or by the beginning of its name where it is of a space
        names = {name: [index.name for index in indexes] for name, indexes in definitions.items()}
        made = {"version": VERSION, "made_by": made_by, "indexes": names}
        tables["store"].upsert({"_id": APPLICATION}, {"$set": made})

    database.write(fill)


def _index_some(tables: Collections) -> bool:
    """Give passages of an earlier version what full text holds of scripts without spaces, some at a time; it goes on
    where another process was ended. False: none is left.
    """
    made = tables["store"].one({"_id": APPLICATION}) or {"version": _UNSPACED}
    if made["version"] >= _UNSPACED:
        return False
    behind = {"_id": {"$gt": made.get("indexed_to", 0)}}
    found = tables["passages"].find(behind, ("_id", "text", "context"), order=[("_id", 1)], limit=MAX_ROWS_PER_WRITE)
    tables["passages"].write(
        [
            UpdateOne({"_id": each["_id"]}, {"$set": {"terms": exact_terms(each["text"]), **fields}})
            for each in found
            if (fields := unspaced_fields(each["text"], each["context"]))
        ]
    )
    if found:
        tables["store"].update({"_id": APPLICATION}, {"$set": {"indexed_to": found[-1]["_id"]}})
    return bool(found)


def _count_reads(tables: Collections) -> bool:
    """Let episodes of an earlier version, some at a time, be read as often as they were found: that was not told apart
    then. False: none is left.
    """
    uncounted = {"read_count": {"$exists": False}}
    found = tables["episodes"].find(uncounted, ("_id", "retrieval_count"), limit=MAX_ROWS_PER_WRITE)
    tables["episodes"].write(
        [UpdateOne({"_id": each["_id"]}, {"$set": {"read_count": each["retrieval_count"]}}) for each in found]
    )
    return bool(found)

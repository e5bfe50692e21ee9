"""The collections, their indexes and validators. The database holds by which definitions they were made, so that a
start makes what is missing only where these are others by now, and asks for no more than that where they are not.

A collection has the name and the fields of the table in `store/sqlite/schema.py`, with values written alike (instants
and JSON as texts, flags as 0 and 1), so that one can be copied into the other. What differs:

- `episodes` holds what SQLite has in `episodes`, `episode_texts` and `episode_tags`; `_id` is the episode's id,
  `number` the order in which they came. `tags`, `message_ids` and `message_keys` are arrays.
- `passages` holds `passages` and `passage_texts`; `_id` is the passage's key. They repeat what filters look at
  (`facets.py`), `terms` is what the exact analyzer reads, and `text_unspaced` and `context_unspaced` are what the other
  one reads of scripts without spaces.
- `vectors_<space>` and `tokens_<space>`, by passage: see `vectors.py`.
- `parts` and `files` have flags for what is left to do, since a partial index cannot compare two fields: see `parts.py`
  and `cursors.py`.
- `counters` and `writer` are this backend's own (`client.py`).
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pymongo import UpdateOne

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.store.base import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.exact_terms import exact_terms
from anamnesis_pipeline.store.mongo import session_docs
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.indexes import Index
from anamnesis_pipeline.store.mongo.search_definitions import unspaced_fields
from anamnesis_pipeline.store.mongo.validators import validator_of

VERSION = 4
_UNSPACED, _SESSIONS, _READS = 2, 3, 4
"""From these versions on passages have the fields of scripts without spaces, sessions are noted, and what is read is
counted.
"""
APPLICATION = "anamnesis"


def _by(*fields: str, **where: Any) -> Index:
    return Index(fields, where=where)


def _key(*fields: str) -> Index:
    return Index(fields, unique=True)


_TEXT = {"$gt": ""}

COLLECTIONS: dict[str, Sequence[Index]] = {
    # ingest
    "sources": [_key("key")],
    "files": [
        _key("source", "path"),
        _by("incomplete", "source", "path", incomplete=1),
        _by("source", to_parse=1),
    ],
    "frames": [
        _key("source", "path", "generation", "first_line"),
        _by("mark", mark=_TEXT),
        _by("base_source", "base_path", "base_generation", base_source={"$type": "string"}),
    ],
    "messages": [_key("key"), _by("source", "canonical"), _by("canonical", canonical=_TEXT)],
    "dead_letters": [_key("source", "path", "generation", "line")],
    "occurrences": [_key("source", "path", "line", "message_key"), _by("message_key")],
    "parts": [
        _key("part_id"),
        _by("source", "exchange_id", "closed", "summarized_hash"),  # all that counts need
        _by("source", "path", "ordinal", "part_id"),
        _by("session_id", "agent_id", "started_at", "part_id", "project"),
        _by("source", "kind", "origin"),
        _by("source", "ended_at", closed=0),
        _by("source", "to_summarize", "-ended_at", "-part_id", to_summarize=1),
        _by("source", "-ended_at", "-part_id", "summary_due", closed=1, summary_due={"$type": "string"}),
        _by("source", "to_publish", "-ended_at", "-part_id", to_publish=1),
        _by("held_by", held_by={"$type": "string"}),
    ],
    # documents
    "sightings": [
        _key("source", "path", "part_id"),
        _by("source", "path", present=1),
        _by("place", "anchor", "part_id", "present"),
        _by("part_id", "present"),
        _by("text"),
        _by("became", became=_TEXT),
    ],
    "unsettled": [_key("place", "anchor"), _by("source", "place", "anchor")],
    # summaries and calls of LLMs
    "summaries": [_key("part_id"), _by("model", "problem", "skip"), _by("-retry_at", "part_id", problem=_TEXT)],
    "llm_replies": [_key("key")],
    "llm_asked": [_key("key", "part_id"), _by("part_id")],
    "llm_calls": [_key("call_id"), _by("day")],
    "llm_leases": [_key("key"), _by("call_id")],
    "llm_failures": [_key("key")],
    "llm_batches": [_key("batch_id"), _by("backend", "number")],
    "llm_turns": [_key("backend")],
    "settings": [_key("name")],
    # context
    "context_sessions": [_key("session_id"), _by("seen_at")],
    "context_shown": [_key("session_id", "episode_id"), _by("session_id", "number")],
    # episodes
    "episodes": [
        _by("number"),
        _by("timestamp", "_id"),
        _by("project", "timestamp", "_id"),
        _by("own_project", "project"),
        _by("project", "kind", "status", "timestamp", "_id"),
        _by("instance", "project", "timestamp", "kind", "status"),
        _by("source", "timestamp", "_id"),
        _by("source", "passages"),
        _by("session_id"),
        _by("path"),
        _by("superseded_by", "_id", superseded_by=_TEXT),
        _by("tags", "-number", "project", "status"),
        _by("edited", edited={"$gt": 0}),
        _by("-retrieval_count", "read_count", retrieval_count={"$gt": 0}),
        _by("-read_count", "-last_retrieved", "_id", read_count={"$gt": 0}),
    ],
    "passages": [_key("episode_id", "ordinal"), _by("seq")],
    "tombstones": [
        _key("episode_id"),
        _by("-deleted_at", "-episode_id"),
        _by("went_with", went_with=_TEXT),
    ],
    "tombstone_keys": [_key("message_key", "episode_id"), _by("episode_id")],
    "buried_sections": [_key("episode_id", "source", "path"), _by("place"), _by("source", "path")],
    # spaces
    "spaces": [_key("key"), Index(("status",), unique=True, where={"status": {"$in": ["active", "building"]}})],
    "pending": [
        _key("space_id", "episode_id"),
        _by("space_id", "number"),
        _by("space_id", "source", "-timestamp", "-number", "missing"),
        _by("episode_id"),
    ],
    # consolidation
    "consolidated": [_key("episode_id"), _by("canonical"), _by("regime", "undone")],
    "unconsolidated": [_key("session_id")],
    "session_notes": [
        _key("source", "session_id"),
        _by("source", "noted", "session_id", noted={"$gt": 0}),
        _by("session_id"),
        _by("root", root=_TEXT),
    ],
    # questions
    "query_log": [_key("number"), _by("asked_at")],
    "query_results": [_key("episode_id", "number"), _by("number")],
    "events": [_key("number"), _by("kind", "number"), _by("episode_id", "number")],
    # conversations
    "chat_sessions": [_key("session_id"), _by("updated_at", "session_id")],
    "chat_messages": [
        _key("message_id"),
        _key("session_id", "number"),
        _by("episode_id"),
        _by("feedback", "at"),
        _by("records_at"),
    ],
    # this backend's own
    "store_secret": [],
    "counters": [],
    "writer": [],
    "store": [],
}

OF_SPACES: dict[str, Sequence[Index]] = {"vectors_": [_by("seq"), _by("episode_id")], "tokens_": [_by("tokens")]}
"""By how the names of the collections of a space begin (`space_docs.py`)."""


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
        for sessions in batches(database.read(_sessions)):
            database.write(partial(session_docs.note, sessions=sessions))
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

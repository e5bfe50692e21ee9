"""Removing texts for good, and writing them anew, in MongoDB."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pymongo import DeleteMany, UpdateOne

from anamnesis_pipeline.model import Episode, Part, Passage
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.forget_base import CachedReply, Selection
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_writes import drop_merges, drop_session_records, write_documents
from anamnesis_pipeline.store.records import llm, typed
from anamnesis_pipeline.store.records.parts import PART_FIELDS, read_part, write_parts
from anamnesis_pipeline.store.records.summaries import rewrite_summary
from anamnesis_pipeline.store.values import instant
from anamnesis_pipeline.summary_model import Summary

PARTS_PER_WRITE = 50
"""A part is at most some 4,000 characters, so a write stays short."""
LAST_CHARACTER = "\U0010ffff"
KEPT = (
    "the server's files, until the place of a deleted document is used again",
    "the oplog of each server, until it has rolled over (rs.printReplicationInfo() says how far it reaches back)",
    "search indexes, until the parts of them that have deleted documents are merged",
)
"""What MongoDB keeps by itself."""


class MongoForgetting:
    """See `ForgetRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def matching(self, what: Selection) -> list[str]:
        """See `ForgetRecords.matching`."""

        def work(tables: Tables) -> list[tuple[str, str]]:
            return [row for ids in _id_batches(what) for of in (_episodes, _parts) for row in of(tables, what, ids)]

        found = sorted(self._database.snapshot(work))  # by id, then, since sorting is stable, by time
        return [key for key, _ in sorted(found, key=lambda row: row[1], reverse=True)]

    def forgotten(self, keys: Sequence[str]) -> set[str]:
        """See `ForgetRecords.forgotten`."""
        return self._database.snapshot(lambda tables: typed.forbidden(MongoTables(tables), keys))

    def has_forgotten(self, begin: str = "") -> bool:
        """See `ForgetRecords.has_forgotten`."""
        where = {"message_key": {"$gte": begin, "$lt": f"{begin}{LAST_CHARACTER}"}}
        return self._database.read(lambda tables: tables["tombstone_keys"].has(where))

    def aliases_of(self, keys: Sequence[str]) -> dict[str, str]:
        """See `ForgetRecords.aliases_of`."""
        own = [key for key in keys if key]  # an empty one is that of no other message
        return self._database.read(
            lambda tables: {
                row["key"]: row["canonical"] for row in tables["messages"].among("canonical", own, ("key", "canonical"))
            }
        )

    def bury(self, keys_of: Mapping[str, Iterable[str]]) -> None:
        """See `ForgetRecords.bury`."""
        now = instant(datetime.now(UTC))
        for batch in batches([(key, episode_id) for episode_id, keys in keys_of.items() for key in ("", *keys)]):
            self._database.write(partial(_bury, graves=batch, now=now))

    def parts(self, part_ids: Sequence[str]) -> list[Part]:
        """See `ForgetRecords.parts`."""
        rows = self._database.read(lambda tables: list(tables["parts"].among("part_id", part_ids, PART_FIELDS)))
        return sorted(map(read_part, rows), key=lambda part: part.part_id)

    def parts_of_files(self, files: Iterable[tuple[str, str]]) -> list[Part]:
        """See `ForgetRecords.parts_of_files`."""
        wanted = sorted(set(files))
        rows = self._database.snapshot(lambda tables: list(tables["parts"].of_files(wanted, PART_FIELDS)))
        return sorted(map(read_part, rows), key=lambda part: (part.source, part.path, part.ordinal, part.part_id))

    def parts_after(self, part_id: str, limit: int) -> list[Part]:
        """See `ForgetRecords.parts_after`."""
        behind = {"part_id": {"$gt": part_id}}
        rows = self._database.read(
            lambda tables: tables["parts"].find(behind, PART_FIELDS, order=[("part_id", 1)], limit=limit)
        )
        return list(map(read_part, rows))

    def replace_parts(self, parts: Sequence[Part], *, resummarize: bool = False) -> int:
        """See `ForgetRecords.replace_parts`."""
        return sum(
            self._database.write(partial(_replace_parts, parts=batch, resummarize=resummarize))
            for batch in batches(parts, PARTS_PER_WRITE)
        )

    def remove_parts(self, part_ids: Sequence[str]) -> int:
        """See `ForgetRecords.remove_parts`."""
        return sum(
            self._database.write(partial(_remove_parts, part_ids=batch)) for batch in batches(part_ids, PARTS_PER_WRITE)
        )

    def remove_file(self, source: str, path: str) -> None:
        """See `ForgetRecords.remove_file`."""

        def work(tables: Tables) -> None:
            for name in ("frames", "dead_letters", "sightings", "buried_sections", "files"):
                tables[name].delete({"source": source, "path": path})

        self._database.write(work)

    def rewrite_episode(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """See `ForgetRecords.rewrite_episode`."""
        episode, passages = episode_values.storable(episode), episode_values.storable_passages(passages)

        def work(tables: Tables) -> bool:
            held = tables["episodes"].one({"_id": episode.episode_id}, ["raw_exchange"])
            if held is None:
                return False
            if held["raw_exchange"] != episode.raw_exchange:
                llm.void(MongoTables(tables), [episode.episode_id])
                drop_merges(tables, [episode.episode_id])
            write_documents(tables, [(episode, passages)])
            return True

        return self._database.write(work)

    def rewrite_summary(self, before: Summary, after: Summary) -> bool:
        """See `ForgetRecords.rewrite_summary`."""
        return self._database.write(lambda tables: rewrite_summary(MongoTables(tables), before, after))

    def replies_after(self, key: str, limit: int) -> list[CachedReply]:
        """See `ForgetRecords.replies_after`."""
        fields = ("key", "reply", "backend", "model")
        rows = self._database.read(
            lambda tables: tables["llm_replies"].find({"key": {"$gt": key}}, fields, order=[("key", 1)], limit=limit)
        )
        return [CachedReply(**row) for row in rows]

    def scrub(self) -> list[str]:
        """See `ForgetRecords.scrub`. There is nothing to do: what was deleted is in no collection any more, and no
        search answers with it. What is left of it lies where no client reaches (`keeps`).
        """
        return []

    def keeps(self) -> list[str]:
        """See `ForgetRecords.keeps`. WiredTiger writes a page to another place and leaves the old one until that is
        needed, even where `compact` gives room back; the oplog is cut at its old end alone.

        https://www.mongodb.com/docs/manual/core/wiredtiger/, https://www.mongodb.com/docs/manual/core/replica-set-oplog/
        """
        return [f"{self._database.place}: {place}" for place in KEPT]


def _id_batches(what: Selection) -> Iterator[Filter]:
    """The ids that are selected as conditions on a field, each of few enough for a query; one of none where all are."""
    if what.ids is None:
        yield {}
        return
    for batch in batches(sorted(set(what.ids))):
        yield {"$in": list(batch)}


def _episodes(tables: Tables, what: Selection, ids: Filter) -> Iterator[tuple[str, str]]:
    """(id, time) of the episodes that are meant."""
    where = _condition(what, "timestamp") | ({"_id": ids} if ids else {})
    if what.sources is not None:
        where["source"] = {"$in": list(what.sources)}
    if what.path:
        where["$or"] = [{"path": what.path}, {"path": _begins(_folder(what.path))}]
    for row in tables["episodes"].each(where, ("_id", "timestamp")):
        yield row["_id"], row["timestamp"]


def _parts(tables: Tables, what: Selection, ids: Filter) -> Iterator[tuple[str, str]]:
    """(id, time) of the parts that are meant and have no episode."""
    where = _condition(what, "started_at") | ({"part_id": ids} if ids else {})
    where["$or"] = _places(what, tables["sources"].find({}, ("key", "root", "folder")))
    if not where["$or"]:
        return
    rows = [(row["part_id"], row["started_at"]) for row in tables["parts"].each(where, ("part_id", "started_at"))]
    published = {row["_id"] for row in tables["episodes"].among("_id", (key for key, _ in rows), ("_id",))}
    yield from (row for row in rows if row[0] not in published)


def _condition(what: Selection, time: str) -> Document:
    """The filters that are alike for episodes and parts. `time`: the field of when it begins."""
    where: Document = {}
    if what.session_id:
        where["session_id"] = what.session_id
    if what.projects:
        where["project"] = {"$in": list(what.projects)}
    bounds = {name: instant(when) for name, when in (("$gte", what.since), ("$lt", what.until)) if when is not None}
    return where | ({time: bounds} if bounds else {})


def _places(what: Selection, sources: Iterable[Document]) -> list[Document]:
    """Conditions of which a part meets one that is of the path and the sources that are meant. The path of a part is
    relative to its source; parts of a source that is not known are not meant.
    """
    chosen = [row for row in sources if what.sources is None or row["key"] in what.sources]
    whole, places = [], list[Document]()
    for row in chosen:
        inside = "" if row["folder"] in ("", ".") else f"/{row['folder']}"
        top, folder = f"{row['root']}{inside}/", _folder(what.path)
        if not what.path or top.startswith(folder):
            whole.append(row["key"])
        elif what.path.startswith(top):
            its = [{"path": what.path.removeprefix(top)}, {"path": _begins(folder.removeprefix(top))}]
            places.append({"source": row["key"], "$or": its})
    return [*([{"source": {"$in": whole}}] if whole else []), *places]


def _folder(path: str) -> str:
    return f"{path.rstrip('/')}/"


def _begins(text: str) -> Filter:
    """Texts that begin with this one, as a range that an index has."""
    return {"$gte": text, "$lt": f"{text}{LAST_CHARACTER}"}


def _bury(tables: Tables, graves: Sequence[tuple[str, str]], now: str) -> None:
    """(message key or empty, episode id): leave tombstones where there are none."""
    first: dict[str, Any] = {"deleted_at": now, "reason": "", "went_with": ""}
    tables["tombstones"].write(
        [
            UpdateOne({"episode_id": episode_id}, {"$setOnInsert": first}, upsert=True)
            for episode_id in dict.fromkeys(episode_id for _, episode_id in graves)
        ]
    )
    keys = [{"message_key": key, "episode_id": episode_id} for key, episode_id in graves if key]
    tables["tombstone_keys"].write([UpdateOne(row, {"$setOnInsert": row}, upsert=True) for row in keys])


def _replace_parts(tables: Tables, parts: Sequence[Part], *, resummarize: bool) -> int:
    """A summary that stays is noted as being of the new text: it is the same text under other masks. One of an even
    older text goes: nobody reads it any more.
    """
    ids = [part.part_id for part in parts]
    llm.void(MongoTables(tables), ids)
    if resummarize:
        llm.withdraw(MongoTables(tables), ids)
        tables["summaries"].delete({"part_id": {"$in": ids}})
    rows = tables["parts"].find({"part_id": {"$in": ids}}, ("part_id", "content_hash"))
    before = {row["part_id"]: row["content_hash"] for row in rows}
    stored = [part for part in parts if part.part_id in before]
    new = {part.part_id: part.content_hash for part in stored}
    renamed = [
        UpdateOne({"part_id": key, "content_hash": before[key]}, {"$set": {"content_hash": content_hash}})
        for key, content_hash in new.items()
    ]
    older = [DeleteMany({"part_id": key, "content_hash": {"$ne": content_hash}}) for key, content_hash in new.items()]
    tables["summaries"].write([*renamed, *older])  # a bulk is one command for each run of writes of one kind
    write_parts(MongoTables(tables), stored)
    MongoTables(tables)["parts"].update({"part_id": {"$in": list(before)}}, {"published_hash": None})
    drop_session_records(tables, [(part.source, part.session_id) for part in stored])
    return len(stored)


def _remove_parts(tables: Tables, part_ids: Sequence[str]) -> int:
    llm.withdraw(MongoTables(tables), part_ids)
    of_parts = {"part_id": {"$in": list(part_ids)}}
    tables["summaries"].delete(of_parts)
    return tables["parts"].delete(of_parts)

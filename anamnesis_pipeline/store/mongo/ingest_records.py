"""Sources, file cursors, archive frames, message keys and parts in MongoDB."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pymongo import UpdateOne

from anamnesis_pipeline.archive_model import ArchiveFrame, DeadLetter
from anamnesis_pipeline.message_keys import agent_key
from anamnesis_pipeline.model import FileCursor, Part, Source
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.ingest_base import ParsedChunk, SourceCounts
from anamnesis_pipeline.store.mongo import cursors, messages, session_docs, sessions, typed
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Filter
from anamnesis_pipeline.store.mongo.counting import count_source
from anamnesis_pipeline.store.mongo.engine import MongoGateway, MongoTables
from anamnesis_pipeline.store.mongo.newest_first import buried
from anamnesis_pipeline.store.mongo.parts import change_parts, of_source, part_change, read_parts, write_parts
from anamnesis_pipeline.store.mongo.publishing import parts_to_publish, unpublished_sources
from anamnesis_pipeline.store.mongo.summaries import MongoSummaries
from anamnesis_pipeline.store.records.archive import ArchiveRecords, NewFrames
from anamnesis_pipeline.store.values import clean, instant
from anamnesis_pipeline.summary_model import Summary

Crawled = tuple[FileCursor | None, FileCursor, ArchiveFrame | None]

_SOURCE = ("key", "machine", "root", "folder", "kind", "spec")
_IS_UNPARSED = {"to_parse": 1}
_REWRITTEN = {"published_hash": None}
"""Fields of a part whose episode is to be written anew."""


class MongoIngest(ArchiveRecords, MongoSummaries):
    """See `IngestRecords`."""

    def __init__(self, database: Database) -> None:
        super().__init__(MongoGateway(database))
        self._database = database

    def put_sources(self, sources: Sequence[Source]) -> int:
        """See `IngestRecords.put_sources`."""
        return sum(self._database.write(partial(_put_sources, sources=batch)) for batch in batches(sources))

    def sources(self) -> list[Source]:
        """See `IngestRecords.sources`."""
        found = self._database.read(lambda tables: tables["sources"].find({}, _SOURCE, order=[("key", 1)]))
        return [Source(**source) for source in found]

    def cursors(self, source: str) -> dict[str, FileCursor]:
        """See `IngestRecords.cursors`."""
        found = self._database.read(
            lambda tables: tables["files"].find({"source": source}, cursors.CURSOR_FIELDS, order=[("path", 1)])
        )
        return {document["path"]: cursors.read_cursor(document) for document in found}

    def cursor(self, source: str, path: str) -> FileCursor | None:
        """See `IngestRecords.cursor`."""
        found = self._database.read(
            lambda tables: tables["files"].one({"source": source, "path": path}, cursors.CURSOR_FIELDS)
        )
        return cursors.read_cursor(found) if found else None

    def incomplete_files(self) -> list[FileCursor]:
        """See `IngestRecords.incomplete_files`."""
        where = {"gone": 0, "incomplete": 1}
        order = [("source", 1), ("path", 1)]
        found = self._database.read(lambda tables: tables["files"].find(where, cursors.CURSOR_FIELDS, order=order))
        return list(map(cursors.read_cursor, found))

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        """See `IngestRecords.commit_crawl`."""
        return self.commit_crawls([(before, after, frame)])[0]

    def commit_crawls(self, crawled: Sequence[Crawled]) -> list[bool]:
        """See `IngestRecords.commit_crawls`."""
        done: list[bool] = []
        for batch in batches(crawled, MAX_ROWS_PER_WRITE // 2):
            done += self._database.write(partial(_commit_crawls, crawled=batch))
        return done

    def mark_gone(self, source: str, paths: Iterable[str]) -> int:
        """See `IngestRecords.mark_gone`."""
        newly = 0
        for batch in batches(sorted(set(paths))):
            there = {"source": source, "gone": 0, "path": {"$in": list(batch)}}
            newly += self._database.write(partial(_mark_gone, there=there))
        return newly

    def known_keys(self, keys: Sequence[str], reader: tuple[str, str] | None = None) -> set[str]:
        """See `IngestRecords.known_keys`."""
        return self._database.snapshot(
            lambda tables: messages.read_known(tables, keys, reader) | typed.forbidden(tables, keys)
        )

    def claims_near(self, entries: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `IngestRecords.claims_near`."""
        return self._database.snapshot(lambda tables: typed.claims_near(tables, entries))

    def part(self, part_id: str) -> Part | None:
        """See `IngestRecords.part`."""

        def work(tables: Tables) -> Part | None:
            return None if buried(tables, [part_id]) else read_parts(tables, [part_id]).get(part_id)

        return self._database.read(work)

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        """See `IngestRecords.commit_parsed`.

        A key that another file came to own, or that was tombstoned, since the chunk was parsed also means that
        another run was faster: written anyway, the same message would end up in two parts.
        """
        return self._database.write(lambda tables: _commit_parsed(tables, chunk))

    def session_start(self, session_id: str) -> tuple[str, str] | None:
        """See `IngestRecords.session_start`."""
        return self._database.read(lambda tables: sessions.session_start(tables, session_id))

    def projects_of(self, part_ids: Sequence[str]) -> set[str]:
        """See `IngestRecords.projects_of`."""
        return self._database.snapshot(lambda tables: sessions.projects_of(tables, part_ids))

    def move_parts(self, source: str, paths: Sequence[str], cwd: str, before: str, after: str) -> int:
        """See `IngestRecords.move_parts`."""
        if before == after:
            return 0
        names = clean(before), clean(after)
        return self._repeatedly(lambda tables: sessions.move_parts(tables, source, paths, cwd, *names))

    def name_agent(self, source: str, path: str, agent_type: str, origin: str) -> int:
        """See `IngestRecords.name_agent`."""
        named = {"agent_type": clean(agent_type), "origin": clean(origin)}
        others = [{name: {"$ne": value}} for name, value in named.items()]
        where = {"source": source, "path": path, "$or": others}
        return self._repeatedly(lambda tables: _change_some(tables, where, named | _REWRITTEN))

    def renew_session(self, session_id: str) -> int:
        """See `IngestRecords.renew_session`."""
        where = {"session_id": session_id, "published_hash": {"$ne": None}}
        return self._repeatedly(lambda tables: _change_some(tables, where, _REWRITTEN))

    def link_agents(self, source: str) -> int:
        """See `IngestRecords.link_agents`."""
        links = self._database.snapshot(lambda tables: _links(tables, source))
        return sum(self._database.write(partial(_link, links=batch)) for batch in batches(links))

    def dead_letters(self, source: str | None = None, limit: int = 1_000) -> list[DeadLetter]:
        """See `IngestRecords.dead_letters`."""
        return self._database.read(lambda tables: messages.read_dead_letters(tables, source, limit))

    def close_idle_parts(self, source: str, ended_before: datetime) -> int:
        """See `IngestRecords.close_idle_parts`."""
        where = {"source": source, **_idle(ended_before)}
        return self._repeatedly(lambda tables: _change_some(tables, where, {"closed": 1}))

    def unfinished_sources(self, ended_before: datetime) -> set[str]:
        """See `IngestRecords.unfinished_sources`."""

        def work(tables: Tables) -> set[str]:
            found = set(tables["files"].values("source", _IS_UNPARSED))
            found |= set(tables["parts"].values("source", {**of_source(None), **_idle(ended_before)}))
            found |= set(tables["unsettled"].values("source", {})) | cursors.vanished_sources(tables)
            found |= session_docs.unfinished_sources(tables)
            return found | unpublished_sources(tables, found)

        return self._database.read(work)

    def unread_sources(self) -> set[str]:
        """See `IngestRecords.unread_sources`."""

        def work(tables: Tables) -> set[str]:
            logs = {
                source["key"]
                for source in tables["sources"].each({}, ["key", "kind"])
                if source["kind"].lower().startswith("claude")
            }
            found = logs - set(tables["files"].values("source", {}))
            found |= set(tables["files"].values("source", _IS_UNPARSED))
            return found | unpublished_sources(tables, found)

        return self._database.read(work)

    def parts_to_publish(self, source: str, limit: int) -> list[tuple[Part, Summary | None]]:
        """See `IngestRecords.parts_to_publish`."""
        return self._database.read(lambda tables: parts_to_publish(tables, source, limit))

    def counts(self, source: str | None = None) -> SourceCounts:
        """See `IngestRecords.counts`."""
        return self._database.snapshot(lambda tables: count_source(tables, source))

    def _repeatedly(self, work: Callable[[Tables], int]) -> int:
        """Do some of a long work in each transaction, until one does less than it may; returns how much it was."""
        done, last = 0, MAX_ROWS_PER_WRITE
        while last == MAX_ROWS_PER_WRITE:
            last = self._database.write(work)
            done += last
        return done


def _put_sources(tables: Tables, sources: Sequence[Source]) -> int:
    """Returns how many were new."""
    keys = {source.key for source in sources}
    known = {source["key"] for source in tables["sources"].among("key", keys, ["key"])}
    tables["sources"].write([
        UpdateOne(
            {"key": source.key},
            {"$set": {name: getattr(source, name) for name in _SOURCE if name != "key"}},
            upsert=True,
        )
        for source in sources
    ])  # fmt: skip
    return len(keys - known)


def _commit_crawls(tables: Tables, crawled: Sequence[Crawled]) -> list[bool]:
    """Compare and set, of each file for itself."""
    stored = cursors.stored_versions(tables, [(after.source, after.path) for _, after, _ in crawled])
    frames = NewFrames(
        MongoTables(tables), [(after.source, after.path, frame) for _, after, frame in crawled if frame is not None]
    )
    written: list[FileCursor] = []
    done: list[bool] = []
    for before, after, frame in crawled:
        version = stored.get((after.source, after.path))
        is_first = version == (before.version if before else None)
        done.append(is_first and (frame is None or frames.accept(after.source, after.path, frame)))
        if done[-1]:
            written.append(replace(after, version=(version or 0) + 1))
    cursors.write_cursors(tables, written)
    frames.write()
    return done


def _mark_gone(tables: Tables, there: Filter) -> int:
    return tables["files"].update(there, {"$set": {"gone": 1}, "$inc": {"version": 1}})


def _commit_parsed(tables: Tables, chunk: ParsedChunk) -> bool:
    before = chunk.before
    if cursors.stored_version(tables, before) != before.version or _is_contested(tables, chunk):
        return False
    cursors.write_cursor(tables, replace(chunk.after, version=before.version + 1))
    messages.write_messages(tables, chunk)
    write_parts(tables, chunk.parts)
    sessions.place_agents(tables, (part.session_id for part in chunk.parts))
    return True


def _is_contested(tables: Tables, chunk: ParsedChunk) -> bool:
    forbidden = tables["tombstone_keys"].among("message_key", chunk.keys, ["message_key"])
    return (
        messages.is_owned_by_another(tables, chunk.keys, (chunk.before.source, chunk.before.path))
        or any(forbidden)
        or bool(buried(tables, [part.part_id for part in chunk.parts]))
        or not typed.are_open(tables, chunk.aliases)
    )


def _change_some(tables: Tables, where: Filter, fields: Mapping[str, Any]) -> int:
    """Change as many parts as one transaction may; returns how many."""
    parts = tables["parts"].find(where, ["part_id"], limit=MAX_ROWS_PER_WRITE)
    return change_parts(tables, {"part_id": {"$in": [part["part_id"] for part in parts]}}, fields)


def _idle(ended_before: datetime) -> dict[str, Any]:
    return {"closed": 0, "ended_at": {"$lt": instant(ended_before)}}


def _links(tables: Tables, source: str) -> list[tuple[Filter, str]]:
    """Parts of subagents that have no origin, by agent, and the call that spawned it, where that is known."""
    unlinked = {"source": source, "kind": "subagent", "origin": ""}
    agents = tables["parts"].aggregate([
        {"$match": unlinked},
        {"$group": {"_id": {"session_id": "$session_id", "agent_id": "$agent_id"}}},
    ])  # fmt: skip
    known = {agent_key(group["_id"]["session_id"], group["_id"]["agent_id"]): group["_id"] for group in agents}
    return [({**unlinked, **known[key]}, call) for key, call in messages.read_calls(tables, known).items()]


def _link(tables: Tables, links: Sequence[tuple[Filter, str]]) -> int:
    return tables["parts"].write([part_change(where, {"origin": call} | _REWRITTEN) for where, call in links])

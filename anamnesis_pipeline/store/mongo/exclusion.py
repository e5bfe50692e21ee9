"""What is held back, and tombstones, in MongoDB."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from pymongo import UpdateOne

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.exclusion_base import BuriedSection, Lifted, Tombstone
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.cursors import File
from anamnesis_pipeline.store.mongo.parts import PART_FIELDS, change_parts, read_part
from anamnesis_pipeline.store.values import clean, instant, moment

_IS_HELD = {"$type": "string"}
"""As the partial index has it: it serves only a query that says the same."""


class MongoExclusion:
    """See `ExclusionRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def waiting(self, source: str, after: str, limit: int) -> list[Part]:
        """See `ExclusionRecords.waiting`."""
        where = {"source": source, "to_publish": 1, "part_id": {"$gt": after}}
        rows = self._database.read(
            lambda tables: tables["parts"].find(where, PART_FIELDS, order=[("part_id", 1)], limit=limit)
        )
        return list(map(read_part, rows))

    def hold(self, rule_of: Mapping[str, str]) -> int:
        """See `ExclusionRecords.hold`."""
        return sum(self._database.write(partial(_hold, rule_of=batch)) for batch in batches(sorted(rule_of.items())))

    def release(self, rule_id: str) -> int:
        """See `ExclusionRecords.release`."""
        of_rule = {"held_by": {"$eq": rule_id, **_IS_HELD}}
        rows = self._database.read(lambda tables: tables["parts"].find(of_rule, ["part_id"]))
        for batch in batches([row["part_id"] for row in rows]):
            self._database.write(partial(change_parts, where={"part_id": {"$in": batch}}, fields={"held_by": None}))
        return len(rows)

    def held(self) -> dict[str, int]:
        """See `ExclusionRecords.held`."""
        stages: list[dict[str, Any]] = [
            {"$match": {"held_by": _IS_HELD}},
            {"$group": {"_id": "$held_by", "parts": {"$sum": 1}}},
        ]
        rows = self._database.read(lambda tables: tables["parts"].aggregate(stages))
        return {row["_id"]: row["parts"] for row in rows}

    def explain(self, reason: str, episode_ids: Iterable[str], went_with: Mapping[str, str]) -> None:
        """See `ExclusionRecords.explain`."""
        keys = sorted({*episode_ids, *went_with})
        changes = [
            UpdateOne({"episode_id": key}, {"$set": {"reason": clean(reason), "went_with": went_with.get(key, "")}})
            for key in keys
        ]
        for batch in batches(changes):
            self._database.write(partial(_write, name="tombstones", writes=batch))

    def tombstones(self, limit: int, before: tuple[datetime, str] | None = None) -> list[Tombstone]:
        """See `ExclusionRecords.tombstones`."""
        where: dict[str, Any] = {"went_with": ""}
        if before:
            at = instant(before[0])
            where["$or"] = [{"deleted_at": {"$lt": at}}, {"deleted_at": at, "episode_id": {"$lt": before[1]}}]
        order = [("deleted_at", -1), ("episode_id", -1)]
        rows = self._database.read(lambda tables: tables["tombstones"].find(where, order=order, limit=limit))
        return [Tombstone(row["episode_id"], moment(row["deleted_at"]), row["reason"]) for row in rows]

    def entries_of(self, ids: Sequence[str]) -> dict[str, str]:
        """See `ExclusionRecords.entries_of`."""

        def work(tables: Tables) -> dict[str, str]:
            held = tables["parts"].among("part_id", ids, ("part_id", "held_by"))
            rules = {row["part_id"]: row["held_by"] for row in held if row["held_by"] is not None}
            above = _above(tables, ids)
            return rules | {key: entry for key in ids if (entry := _entry(above, key))}

        return self._database.snapshot(work)

    def stood_in(self, episode_ids: Sequence[str]) -> dict[str, list[File]]:
        """See `ExclusionRecords.stood_in`."""
        found = sorted(self._database.snapshot(lambda tables: set(_stood_in(tables, episode_ids))))
        files: dict[str, list[File]] = {}
        for episode_id, source, path in found:
            files.setdefault(episode_id, []).append((source, path))
        return files

    def lift(self, episode_ids: Sequence[str]) -> Lifted:
        """See `ExclusionRecords.lift`."""
        ids = self._database.snapshot(lambda tables: _with_company(tables, episode_ids))
        total = Lifted()
        for batch in batches(sorted(ids)):
            done = self._database.write(partial(_lift, ids=batch))
            total = Lifted(total.tombstones + done.tombstones, total.parts + done.parts, total.files + done.files)
        return total

    def lift_keys(self, keys: Sequence[str]) -> None:
        """See `ExclusionRecords.lift_keys`."""
        for batch in batches(keys):
            self._database.write(partial(_delete, name="tombstone_keys", field="message_key", values=batch))

    def secret(self) -> bytes:
        """See `ExclusionRecords.secret`."""
        found = self._database.read(lambda tables: tables["store_secret"].find({"_id": "secret"}))
        return bytes(found[0]["secret"])

    def bury_sections(self, sections: Iterable[BuriedSection]) -> None:
        """See `ExclusionRecords.bury_sections`."""
        for batch in batches(sorted(set(sections), key=_place)):
            rows = [asdict(section) for section in batch]
            keys = [{name: row.pop(name) for name in ("episode_id", "source", "path")} for row in rows]
            writes = [UpdateOne(key, {"$setOnInsert": row}, upsert=True) for key, row in zip(keys, rows, strict=True)]
            self._database.write(partial(_write, name="buried_sections", writes=writes))

    def has_buried(self) -> bool:
        """See `ExclusionRecords.has_buried`."""
        return self._database.read(lambda tables: tables["buried_sections"].has({}))

    def buried_at(self, source: str, place: str, texts: Iterable[str]) -> list[BuriedSection]:
        """See `ExclusionRecords.buried_at`."""
        fields = ("episode_id", "source", "path", "place", "kept")

        def work(tables: Tables) -> list[BuriedSection]:
            buried = tables["buried_sections"]
            found = buried.find({"place": place}, fields)
            if buried.has({"source": source}):
                seen = tables["sightings"].among("text", texts, ["path"], source=source)
                found += buried.among("path", [s["path"] for s in seen], fields, source=source)
            return [BuriedSection(**row) for row in found]

        return list({each.episode_id: each for each in sorted(self._database.snapshot(work), key=_place)}.values())


def _hold(tables: Tables, rule_of: Sequence[tuple[str, str]]) -> int:
    parts_of: dict[str, list[str]] = {}
    for part_id, rule_id in rule_of:
        parts_of.setdefault(rule_id, []).append(part_id)
    return sum(
        change_parts(tables, {"part_id": {"$in": ids}, "held_by": None}, {"held_by": rule_id})
        for rule_id, ids in parts_of.items()
    )


def _above(tables: Tables, ids: Iterable[str]) -> dict[str, str]:
    """Tombstone -> what it went with, or empty, of these and of all with which they went, however far up."""
    went_with: dict[str, str] = {}
    asked, level = set[str](), set(ids)
    while level:
        asked |= level
        rows = tables["tombstones"].among("episode_id", level, ("episode_id", "went_with"))
        found = {row["episode_id"]: row["went_with"] for row in rows}
        went_with |= found
        level = {entry for entry in found.values() if entry} - asked
    return went_with


def _entry(went_with: Mapping[str, str], episode_id: str) -> str:
    """The entry in the list that a tombstone stands for; empty where there is none."""
    passed: set[str] = set()
    entry = episode_id if episode_id in went_with else ""
    while went_with.get(entry) and entry not in passed:
        passed.add(entry)
        entry = went_with[entry]
    return "" if entry in passed else entry


def _stood_in(tables: Tables, episode_ids: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """(tombstone, source, path) as far as they are known from sections, parts and messages; some may repeat."""
    for row in tables["buried_sections"].among("episode_id", episode_ids, ("episode_id", "source", "path")):
        yield row["episode_id"], row["source"], row["path"]
    for row in tables["parts"].among("part_id", episode_ids, ("part_id", "source", "path")):
        yield row["part_id"], row["source"], row["path"]
    keys = list(tables["tombstone_keys"].among("episode_id", episode_ids, ("message_key", "episode_id")))
    messages = tables["messages"].among("key", (row["message_key"] for row in keys), ("key", "source", "path"))
    files = {message["key"]: (message["source"], message["path"]) for message in messages}
    for row in keys:
        if row["message_key"] in files:
            yield row["episode_id"], *files[row["message_key"]]


def _with_company(tables: Tables, episode_ids: Iterable[str]) -> set[str]:
    """These, and all that went with them, however far down."""
    going, level = set[str](), {key for key in episode_ids if key}  # '' is what went with nothing has
    while level:
        going |= level
        rows = tables["tombstones"].among("went_with", level, ["episode_id"])
        level = {row["episode_id"] for row in rows} - going
    return going


def _lift(tables: Tables, ids: Sequence[str]) -> Lifted:
    """Of at most so many ids as one transaction may change."""
    of_these = {"episode_id": {"$in": list(ids)}}
    keys = [row["message_key"] for row in tables["tombstone_keys"].find(of_these, ["message_key"])]
    files = {(row["source"], row["path"]) for row in tables["buried_sections"].find(of_these, ["source", "path"])}
    lifted = tables["tombstones"].delete(of_these)
    for name in ("tombstone_keys", "buried_sections"):
        tables[name].delete(of_these)
    parts = change_parts(tables, {"part_id": {"$in": list(ids)}}, {"published_hash": None})
    logs = set() if parts else _without_messages(tables, keys)
    return Lifted(lifted, parts, _read_again(tables, files | logs, is_forgotten=not parts))


def _without_messages(tables: Tables, keys: Sequence[str]) -> set[File]:
    """The files that had messages which were forgotten and are not any more; these are not known as read now."""
    still = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
    rows = list(tables["messages"].among("key", set(keys) - still, ("key", "source", "path")))
    for batch in batches([row["key"] for row in rows]):
        _delete(tables, "messages", "key", batch)
    return {(row["source"], row["path"]) for row in rows}


def _read_again(tables: Tables, files: Iterable[File], *, is_forgotten: bool) -> int:
    """Let the next crawl read files from their beginning; returns how many. What was handed in is nowhere to be read.

    :param is_forgotten: what is archived of them lacks something; else they may be as they were.
    """
    reserved = set(tables["sources"].values("key", {"kind": "reserved"}))
    # no file has such a fingerprint, so it is taken for another file: a new generation
    other = {"head_hash": "lifted"} if is_forgotten else {}
    change = {"$set": {"mtime_ns": 0, **other}, "$inc": {"version": 1}}
    return tables["files"].write(
        [
            UpdateOne({"source": source, "path": path}, change)
            for source, path in sorted(files)
            if source not in reserved
        ]
    )


def _write(tables: Tables, name: str, writes: Sequence[UpdateOne]) -> int:
    return tables[name].write(writes)


def _delete(tables: Tables, name: str, field: str, values: Sequence[str]) -> int:
    return tables[name].delete({field: {"$in": list(values)}})


def _place(section: BuriedSection) -> tuple[str, str, str]:
    return section.episode_id, section.source, section.path

"""Replies of LLMs, what their calls cost, and batches under way, in MongoDB.

Whatever is looked at before it is written stands in one transaction, and those take turns (`client.py`): so two
processes neither book the same last tokens, nor lease one key, nor take one moment.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from pymongo import UpdateOne

from anamnesis_pipeline.errors import LlmCallTaken
from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.llm_base import LONGEST_QUEUE_S, Lease, OpenBatch
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.values import clean, instant, json_list
from anamnesis_pipeline.summary_model import LlmBudget, LlmUse

BATCH_NUMBERS = "llm_batches"
"""The counter of batches."""


class MongoLlm:
    """See `LlmRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def replies(self, keys: Sequence[str]) -> dict[str, str]:
        """See `LlmRecords.replies`."""
        return self._texts("llm_replies", "reply", keys)

    def note_asked(self, asked: Mapping[str, Part]) -> set[str]:
        """See `LlmRecords.note_asked`."""
        noted: set[str] = set()
        for batch in batches(list(asked.items())):
            noted |= self._database.write(partial(_note_asked, asked=batch))
        return noted

    def put_reply(self, key: str, reply: str, backend: str, model: str) -> bool:
        """See `LlmRecords.put_reply`."""
        row = {"backend": backend, "model": model, "reply": clean(reply)}

        def work(tables: Tables) -> bool:
            if tables["llm_asked"].has({"key": key, "void": 1}):
                return False
            tables["llm_replies"].upsert({"key": key}, {"$setOnInsert": row})
            tables["llm_failures"].delete({"key": key})
            return True

        return self._database.write(work)

    def rewrite_reply(self, key: str, before: str, after: str) -> bool:
        """See `LlmRecords.rewrite_reply`."""
        where, change = {"key": key, "reply": before}, {"$set": {"reply": clean(after)}}
        return self._database.write(lambda tables: tables["llm_replies"].update(where, change)) == 1

    def put_failures(self, problems: Mapping[str, str]) -> None:
        """See `LlmRecords.put_failures`."""
        for batch in batches(list(problems.items())):
            self._database.write(partial(_put_failures, problems=batch))

    def failures(self, keys: Sequence[str]) -> dict[str, str]:
        """See `LlmRecords.failures`."""
        return self._texts("llm_failures", "problem", keys)

    def reserve(
        self,
        call_id: str,
        day: str,
        backend: str,
        model: str,
        expected: LlmUse,
        budget: LlmBudget,
        lease: Lease | None = None,
    ) -> bool:
        """See `LlmRecords.reserve`."""
        row = {"day": day, "backend": backend, "model": model, "settled": 0, **_fields(expected)}

        def work(tables: Tables) -> bool:
            if not budget.holds(_used(tables, day) + expected):
                return False
            if lease is not None:
                _take(tables, call_id, lease)
            tables["llm_calls"].upsert({"call_id": call_id}, {"$setOnInsert": row})
            return True

        return self._database.write(work)

    def renew(self, call_id: str, until: datetime) -> None:
        """See `LlmRecords.renew`."""
        change = {"$set": {"until": instant(until)}}
        self._database.write(lambda tables: tables["llm_leases"].update({"call_id": call_id}, change))

    def leased(self, keys: Sequence[str], now: datetime) -> set[str]:
        """See `LlmRecords.leased`."""
        open_still = {"$gt": instant(now)}
        return self._database.read(
            lambda tables: {row["key"] for row in tables["llm_leases"].among("key", keys, ["key"], until=open_still)}
        )

    def settle(self, call_id: str, used: LlmUse | None) -> None:
        """See `LlmRecords.settle`."""
        change = {"settled": 1} if used is None else {"settled": 1, **_fields(used)}

        def work(tables: Tables) -> None:
            tables["llm_calls"].update({"call_id": call_id, "settled": 0}, {"$set": change})
            tables["llm_leases"].delete({"call_id": call_id})

        self._database.write(work)

    def used(self, day: str) -> LlmUse:
        """See `LlmRecords.used`."""
        return self._database.read(lambda tables: _used(tables, day))

    def take_turn(self, backend: str, now: datetime, per_minute: int) -> float:
        """See `LlmRecords.take_turn`."""
        moment = now.timestamp()

        def work(tables: Tables) -> float:
            row = tables["llm_turns"].one({"backend": backend})
            free_at = row["next_at"] if row and row["next_at"] - moment < LONGEST_QUEUE_S else moment
            turn = max(moment, free_at)
            tables["llm_turns"].upsert({"backend": backend}, {"$set": {"next_at": turn + 60.0 / per_minute}})
            return float(turn - moment)

        return self._database.write(work)

    def put_batch(self, batch_id: str, backend: str, batch: OpenBatch) -> None:
        """See `LlmRecords.put_batch`."""
        row = {"backend": backend, "model": batch.model, "call_id": batch.call_id, "keys": json_list(batch.keys)}

        def work(tables: Tables) -> None:
            row_now = {**row, "number": tables.next_number(BATCH_NUMBERS)}
            tables["llm_batches"].upsert({"batch_id": batch_id}, {"$setOnInsert": row_now})

        self._database.write(work)

    def open_batches(self, backend: str) -> dict[str, OpenBatch]:
        """See `LlmRecords.open_batches`."""
        rows = self._database.read(
            lambda tables: tables["llm_batches"].find({"backend": backend}, order=[("number", 1)])
        )
        return {
            row["batch_id"]: OpenBatch(row["call_id"], row["model"], tuple(json.loads(row["keys"]))) for row in rows
        }

    def close_batch(self, batch_id: str) -> None:
        """See `LlmRecords.close_batch`."""
        self._database.write(lambda tables: tables["llm_batches"].delete({"batch_id": batch_id}))

    def _texts(self, name: str, field: str, keys: Sequence[str]) -> dict[str, str]:
        return self._database.read(
            lambda tables: {row["key"]: row[field] for row in tables[name].among("key", keys, ["key", field])}
        )


def withdraw(tables: Tables, part_ids: Sequence[str]) -> None:
    """Remove every reply about these parts; those still to come are not kept. Of at most so many parts as one
    transaction may change.
    """
    asked = tables["llm_asked"].find({"part_id": {"$in": list(part_ids)}}, ["key"])
    tables["llm_replies"].delete({"key": {"$in": sorted({row["key"] for row in asked})}})
    void(tables, part_ids)


def void(tables: Tables, part_ids: Sequence[str]) -> None:
    """Keep no reply about these parts that is still to come, and no summary read from one. Summaries there are stay."""
    of_parts = {"part_id": {"$in": list(part_ids)}}
    tables["llm_asked"].update(of_parts, {"$set": {"void": 1}})
    tables["summaries"].update(of_parts, {"$set": {"reply_key": ""}})


def _note_asked(tables: Tables, asked: Sequence[tuple[str, Part]]) -> set[str]:
    may_be = _as_stored(tables, [part for _, part in asked])
    allowed = [(key, part.part_id) for (key, part), is_so in zip(asked, may_be, strict=True) if is_so]
    tables["llm_asked"].write(
        [UpdateOne({"key": key, "part_id": part_id}, {"$set": {"void": 0}}, upsert=True) for key, part_id in allowed]
    )
    return {key for key, _ in allowed}


def _put_failures(tables: Tables, problems: Sequence[tuple[str, str]]) -> None:
    tables["llm_failures"].write(
        [
            UpdateOne({"key": key}, {"$setOnInsert": {"problem": clean(problem)}}, upsert=True)
            for key, problem in problems
        ]
    )


def _as_stored(tables: Tables, parts: Sequence[Part]) -> Iterable[bool]:
    """Whether each part, as somebody has it in memory, is not forgotten, and still the one in the store if it is
    there.
    """
    ids = [part.part_id for part in parts]
    gone = {row["episode_id"] for row in tables["tombstones"].among("episode_id", ids, ["episode_id"])}
    fields = ("part_id", "content_hash", "lead", "prompt")
    stored = {row["part_id"]: row for row in tables["parts"].among("part_id", ids, fields)}
    for part in parts:
        own = dict(zip(fields, (part.part_id, part.content_hash, clean(part.lead), clean(part.prompt)), strict=True))
        yield part.part_id not in gone and stored.get(part.part_id, own) == own


def _take(tables: Tables, call_id: str, lease: Lease) -> None:
    """:raises LlmCallTaken: another call has one of the keys."""
    leases, until = tables["llm_leases"], instant(lease.until)
    keys = list(dict.fromkeys(lease.keys))
    leases.delete({"key": {"$in": keys}, "until": {"$lte": instant(lease.since)}})
    if leases.has({"key": {"$in": keys}}):
        raise LlmCallTaken("another run is asking the same; its reply will do for both")
    leases.insert([{"key": key, "call_id": call_id, "until": until} for key in keys])


def _used(tables: Tables, day: str) -> LlmUse:
    sums = {field: {"$sum": f"${field}"} for field in _fields(LlmUse())}
    found = tables["llm_calls"].aggregate([{"$match": {"day": day}}, {"$group": {"_id": None, **sums}}])
    if not found:
        return LlmUse()
    total = found[0]
    return LlmUse(total["calls"], total["input_tokens"], total["output_tokens"], float(total["dollars"]))


def _fields(use: LlmUse) -> dict[str, int | float]:
    return {
        "calls": use.calls, "input_tokens": use.input_tokens, "output_tokens": use.output_tokens,
        "dollars": float(use.dollars),
    }  # fmt: skip

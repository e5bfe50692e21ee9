"""Replies of LLMs, what their calls cost, and batches in progress.

Each rule that reads before it writes does so in one transaction, of which one runs at a time: so two processes never
book the same last tokens, take the same lease or take the same turn.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from anamnesis_pipeline.errors import LlmCallTaken
from anamnesis_pipeline.model import LlmBudget, LlmUse, Part
from anamnesis_pipeline.store.gateway import Gateway, Tables, write_all
from anamnesis_pipeline.store.values import clean, instant, json_list

LONGEST_QUEUE_S = 3600.0
"""A turn further ahead than this was taken before the clock was set back."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Request keys that no other call may ask for, from `since` until the call is settled, or until `until`."""

    keys: tuple[str, ...]
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that was handed in and not yet collected: what it is booked as, its model, the keys it will answer."""

    call_id: str
    model: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A reply of an LLM that is kept so as not to ask again."""

    key: str
    reply: str
    backend: str
    model: str


class LlmRecords:
    """Replies of LLMs by what was asked, and what the calls cost. A day is a UTC date, e.g. `2026-11-22`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def replies(self, keys: Sequence[str]) -> dict[str, str]:
        """Return key -> reply, for those that are cached."""
        return self._texts("llm_replies", "reply", keys)

    def replies_after(self, key: str, limit: int) -> list[CachedReply]:
        """Return cached replies in the order of their keys, behind this one; `''` comes before all."""
        names = ("key", "reply", "backend", "model")
        with self._gateway.read() as tables:
            rows = tables["llm_replies"].find({"key": {"$gt": key}}, names, order=["key"], limit=limit)
        return [CachedReply(**row) for row in rows]

    def note_asked(self, asked: Mapping[str, Part]) -> set[str]:
        """Note key -> part before an LLM is asked about the part under this key. Return the keys that may be asked: not
        those of a part that was forgotten meanwhile, or is stored with another text or context.
        """

        def work(tables: Tables, asked: Sequence[tuple[str, Part]]) -> set[str]:
            ids = [part.part_id for _, part in asked]
            gone = {row["episode_id"] for row in tables["tombstones"].among("episode_id", ids, ["episode_id"])}
            fields = ("part_id", "content_hash", "lead", "prompt")
            stored = {row["part_id"]: row for row in tables["parts"].among("part_id", ids, fields)}
            allowed: dict[str, str] = {}
            for key, part in asked:
                values = part.part_id, part.content_hash, clean(part.lead), clean(part.prompt)
                own = dict(zip(fields, values, strict=True))
                if part.part_id not in gone and stored.get(part.part_id, own) == own:
                    allowed[key] = part.part_id
            tables["llm_asked"].put([{"key": key, "part_id": part_id, "void": 0} for key, part_id in allowed.items()])
            return set(allowed)

        return set().union(*write_all(self._gateway, list(asked.items()), work))

    def put_reply(self, key: str, reply: str, backend: str, model: str) -> bool:
        """Cache a reply; the first one stays, and the failure noted for the key is removed. Return False, with nothing
        written, if its subject was forgotten since it was asked for (`ForgetRecords.remove_parts`, `replace_parts`).
        """
        row = {"key": key, "backend": backend, "model": model, "reply": clean(reply)}

        def work(tables: Tables) -> bool:
            if tables["llm_asked"].has({"key": key, "void": 1}):
                return False
            tables["llm_replies"].add([row])
            tables["llm_failures"].delete({"key": key})
            return True

        return self._gateway.write(work)

    def rewrite_reply(self, key: str, before: str, after: str) -> bool:
        """Replace the text of a cached reply. Return False, with nothing written, if it is not `before`."""
        match, change = {"key": key, "reply": before}, {"reply": clean(after)}
        return self._gateway.write(lambda tables: tables["llm_replies"].update(match, change)) == 1

    def put_failures(self, problems: Mapping[str, str]) -> None:
        """Note why a batch brought no reply to these keys."""
        rows = [{"key": key, "problem": clean(problem)} for key, problem in problems.items()]
        write_all(self._gateway, rows, lambda tables, rows: tables["llm_failures"].add(rows))

    def failures(self, keys: Sequence[str]) -> dict[str, str]:
        """Return key -> why a batch brought no reply to it, for those that have none since."""
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
        """Book what a call may use, before it is made, and take its lease, in one transaction. Return False, with
        nothing written, if the day's use, open calls counted as booked, would exceed the budget.

        :raises LlmCallTaken: an open call has a lease of one of the keys; nothing is written.
        """
        row = {"call_id": call_id, "day": day, "backend": backend, "model": model, "settled": 0, **_fields(expected)}

        def work(tables: Tables) -> bool:
            if not budget.holds(_used(tables, day) + expected):
                return False
            if lease is not None:
                leases, keys = tables["llm_leases"], list(dict.fromkeys(lease.keys))
                leases.delete({"key": {"$in": keys}, "until": {"$lte": instant(lease.since)}})
                if leases.has({"key": {"$in": keys}}):
                    raise LlmCallTaken("another run is asking the same; its reply will do for both")
                leases.insert([{"key": key, "call_id": call_id, "until": instant(lease.until)} for key in keys])
            tables["llm_calls"].add([row])
            return True

        return self._gateway.write(work)

    def renew(self, call_id: str, until: datetime) -> None:
        """Let the lease of an open call, if it has one, end at `until`."""
        change = {"until": instant(until)}
        self._gateway.write(lambda tables: tables["llm_leases"].update({"call_id": call_id}, change))

    def leased(self, keys: Sequence[str], now: datetime) -> set[str]:
        """Return those of `keys` that an open call has a lease of."""
        with self._gateway.read() as tables:
            rows = tables["llm_leases"].among("key", keys, ["key"], until={"$gt": instant(now)})
            return {row["key"] for row in rows}

    def settle(self, call_id: str, used: LlmUse | None) -> None:
        """Replace what was booked by what was used (nothing, for a call never made; None: it stays as booked), and end
        the lease. A second call changes nothing.
        """
        change = {"settled": 1} if used is None else {"settled": 1, **_fields(used)}

        def work(tables: Tables) -> None:
            tables["llm_calls"].update({"call_id": call_id, "settled": 0}, change)
            tables["llm_leases"].delete({"call_id": call_id})

        self._gateway.write(work)

    def used(self, day: str) -> LlmUse:
        """Return the use of a day, open calls as booked."""
        with self._gateway.read() as tables:
            return _used(tables, day)

    def take_turn(self, backend: str, now: datetime, per_minute: int) -> float:
        """Book the next free moment of a call, for all processes together. Return the seconds to wait until then.

        Moments are 60 / `per_minute` seconds apart.
        """
        moment = now.timestamp()

        def work(tables: Tables) -> float:
            row = tables["llm_turns"].one({"backend": backend})
            free_at = row["next_at"] if row and row["next_at"] - moment < LONGEST_QUEUE_S else moment
            turn = max(moment, free_at)
            tables["llm_turns"].put([{"backend": backend, "next_at": turn + 60.0 / per_minute}])
            return float(turn - moment)

        return self._gateway.write(work)

    def put_batch(self, batch_id: str, backend: str, batch: OpenBatch) -> None:
        """Note a batch that was submitted."""
        row = {
            "batch_id": batch_id,
            "backend": backend,
            "model": batch.model,
            "call_id": batch.call_id,
            "keys": json_list(batch.keys),
        }
        self._gateway.write(lambda tables: tables["llm_batches"].add([row]))

    def open_batches(self, backend: str) -> dict[str, OpenBatch]:
        """Return batch id -> batch not yet collected, in the order in which they were submitted."""
        with self._gateway.read() as tables:
            rows = tables["llm_batches"].find({"backend": backend}, order=["number"])
        return {
            row["batch_id"]: OpenBatch(row["call_id"], row["model"], tuple(json.loads(row["keys"]))) for row in rows
        }

    def close_batch(self, batch_id: str) -> None:
        """Remove a batch that was collected, or is lost."""
        self._gateway.write(lambda tables: tables["llm_batches"].delete({"batch_id": batch_id}))

    def _texts(self, table: str, field: str, keys: Sequence[str]) -> dict[str, str]:
        with self._gateway.read() as tables:
            return {row["key"]: row[field] for row in tables[table].among("key", keys, ["key", field])}


def withdraw(tables: Tables, part_ids: Sequence[str]) -> None:
    """Remove every reply about these parts, and keep none that is still to come. At most as many parts as one
    transaction may change.
    """
    asked = tables["llm_asked"].among("part_id", part_ids, ["key"])
    tables["llm_replies"].delete({"key": {"$in": sorted({row["key"] for row in asked})}})
    void(tables, part_ids)


def void(tables: Tables, part_ids: Sequence[str]) -> None:
    """Keep no reply about these parts that is still to come, and no summary read from one. Present summaries stay."""
    of_parts = {"part_id": {"$in": list(part_ids)}}
    tables["llm_asked"].update(of_parts, {"void": 1})
    tables["summaries"].update(of_parts, {"reply_key": ""})


def _used(tables: Tables, day: str) -> LlmUse:
    (total,) = tables["llm_calls"].sums({"day": day}, list(_fields(LlmUse())))
    return LlmUse(total["calls"], total["input_tokens"], total["output_tokens"], float(total["dollars"]))


def _fields(use: LlmUse) -> dict[str, int | float]:
    return asdict(use) | {"dollars": float(use.dollars)}

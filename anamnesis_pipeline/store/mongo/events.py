"""What happened to episodes, in MongoDB; see `EventRecords`."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.store import event_base
from anamnesis_pipeline.store.event_base import Event, Happening
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.values import instant, moment, sought

NUMBERS = "events"
"""The counter of events."""
REMOVED_EVERY = 256
"""Old events are removed once in so many."""


class MongoEvents:
    """See `EventRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def since(self, number: int, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """See `EventRecords.since`."""
        where = {**_of(kinds), "number": {"$gt": number}}
        rows = self._database.read(lambda tables: tables["events"].find(where, order=[("number", 1)], limit=limit))
        return [_read(row) for row in rows]

    def latest(self, limit: int, kinds: Collection[Happening] = ()) -> list[Event]:
        """See `EventRecords.latest`."""
        rows = self._database.read(
            lambda tables: tables["events"].find(_of(kinds), order=[("number", -1)], limit=limit)
        )
        return [_read(row) for row in reversed(rows)]

    def of(self, episode_id: str, limit: int) -> list[Event]:
        """See `EventRecords.of`."""
        rows = self._database.read(
            lambda tables: tables["events"].find(
                {"episode_id": sought(episode_id)}, order=[("number", -1)], limit=limit
            )
        )
        return [_read(row) for row in reversed(rows)]

    def counts(self) -> dict[str, int]:
        """See `EventRecords.counts`."""
        stages: list[Document] = [
            {"$match": {"kind": {"$gte": ""}}},
            {"$group": {"_id": "$kind", "events": {"$sum": 1}}},
        ]
        rows = self._database.read(lambda tables: tables["events"].aggregate(stages))
        found = {row["_id"]: row["events"] for row in rows}
        return {kind: found.get(kind, 0) for kind in Happening}

    def clear(self) -> None:
        """See `EventRecords.clear`."""
        self._database.write(lambda tables: tables["events"].delete({}))


def note(tables: Tables, kind: Happening, episode_ids: Sequence[str]) -> None:
    """One event about these episodes; none where there are none."""
    if not episode_ids:
        return
    first = tables["episodes"].one({"_id": episode_ids[0]}, ["project"])
    number = tables.next_number(NUMBERS)
    row = {
        "number": number, "at": instant(datetime.now(UTC)), "kind": str(kind), "process": event_base.this_process(),
        "episode_id": episode_ids[0], "episodes": len(episode_ids), "project": first["project"] if first else "",
    }  # fmt: skip
    tables["events"].insert([row])
    if number % REMOVED_EVERY == 0:
        tables["events"].delete({"number": {"$lte": number - event_base.EVENTS_KEPT}})


def _of(kinds: Collection[Happening]) -> dict[str, Any]:
    return {"kind": {"$in": [str(kind) for kind in kinds]}} if kinds else {}


def _read(row: Mapping[str, Any]) -> Event:
    return Event(
        row["number"], moment(row["at"]), Happening(row["kind"]), row["process"], row["episode_id"], row["episodes"],
        row["project"],
    )  # fmt: skip

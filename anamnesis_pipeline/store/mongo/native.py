"""What MongoDB does in its own form: pages and counts by a filter."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from typing_extensions import override

from anamnesis_pipeline.model import CHAT, CHAT_ANSWER, FORMER_KIND, HOLDING, RECORD_KIND, EpisodeFilter
from anamnesis_pipeline.store.contracts import Lacking, Native
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.memory_layers import LASTING_KINDS, LASTING_TAGS, WORKING_BELOW
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.collections import Collection, Document
from anamnesis_pipeline.store.mongo.engine import MongoGateway, MongoTables, terms_of
from anamnesis_pipeline.store.mongo.facets import layer_at, of_episodes
from anamnesis_pipeline.store.mongo.spaces import live_spaces, note_lacking
from anamnesis_pipeline.store.records.overview import (
    EVERYTHING,
    RECORD_TYPES,
    Census,
    Grouping,
    OverviewRecords,
    SourceState,
    Tally,
)
from anamnesis_pipeline.store.values import EPISODE_FIELDS, moment


class MongoNative(Native):
    """What MongoDB does in its own form."""

    @override
    def page(
        self,
        tables: MongoTables,
        where: EpisodeFilter,
        limit: int,
        after: tuple[str, str] | None = None,
        skip: int = 0,
        *,
        oldest_first: bool = False,
    ) -> list[Row]:
        way, operator = (1, "$gt") if oldest_first else (-1, "$lt")
        behind: Document = {}
        if after is not None:
            at, episode_id = after
            behind = {
                "timestamp": {f"{operator}e": at},
                "$or": [{"timestamp": {operator: at}}, {"timestamp": at, "_id": {operator: episode_id}}],
            }
        found = tables.collections["episodes"].find(
            {"$and": [of_episodes(where), behind]},
            ["_id" if name == "episode_id" else name for name in EPISODE_FIELDS],
            order=[("timestamp", way), ("_id", way)],
            limit=limit,
            skip=skip,
        )
        return [{**document, "episode_id": document["_id"]} for document in found]

    @override
    def count(self, tables: MongoTables, where: EpisodeFilter) -> int:
        return tables.collections["episodes"].count(of_episodes(where))

    @override
    def projects(self, tables: MongoTables) -> list[str]:
        return tables.collections["episodes"].values("project", {})

    @override
    def note_lacking(self, tables: MongoTables, written: Sequence[Lacking]) -> None:
        note_lacking(tables.collections, live_spaces(tables.collections), written)

    @override
    def prepare(self, texts: Iterable[str]) -> None:
        """What is worked out is remembered: a transaction may run again."""
        for text in texts:
            terms_of(text)


_KINDS: list[dict[str, Any]] = [
    {"$match": {"project": {"$gte": ""}}},
    {"$group": {"_id": {"kind": "$kind", "status": "$status"}, "episodes": {"$sum": 1}}},
]
_TO_LAST: dict[str, Any] = {
    "$or": [{"tags": {"$in": sorted(LASTING_TAGS)}}, {"edited": {"$gt": 0}}],
    "status": {"$in": list(HOLDING)},
    "kind": {"$nin": sorted(LASTING_KINDS)},
}
"""What is curated though its kind does not say so."""
_EVERY_SOURCE: Document = {"source": {"$gte": ""}}
"""Said so that an index that begins with the source is read."""
_SOURCES: list[dict[str, Any]] = [
    {"$match": _EVERY_SOURCE},
    {"$group": {"_id": "$source", "episodes": {"$sum": 1}, "newest": {"$max": "$timestamp"}}},
]

_RETRIEVED: dict[str, Any] = {"$or": [{"retrieval_count": {"$gt": 0}}, {"read_count": {"$gt": 0}}]}
_RETRIEVALS: list[dict[str, Any]] = [
    {
        "$group": {
            "_id": None,
            "retrievals": {"$sum": "$retrieval_count"},
            "confirmed": {"$sum": {"$cond": [{"$gte": ["$read_count", WORKING_BELOW]}, 1, 0]}},
        }
    },
]
_OFTEN_FIRST = (("read_count", -1), ("last_retrieved", -1), ("_id", 1))


_KIND: Document = {
    "$cond": [{"$and": [{"$eq": ["$source", CHAT]}, {"$eq": ["$kind", FORMER_KIND]}]}, CHAT_ANSWER, "$kind"]
}
"""`model.kind_of`."""
_GROUPED: dict[str, Any] = {
    "kind": _KIND,
    "month": {"$substrBytes": ["$timestamp", 0, 7]},
    "day": {"$substrBytes": ["$timestamp", 0, 10]},
    "hour": {"$substrBytes": ["$timestamp", 0, 13]},
    "project": "$project",
    "source": "$source",
    "instance": "$instance",
    "type": {
        "$cond": [
            {"$eq": ["$kind", RECORD_KIND]},
            {"$min": {"$setIntersection": ["$tags", RECORD_TYPES]}},
            _KIND,
        ]
    },
}
"""`Grouping` as expressions, but for the layer, which depends on the time."""


class MongoOverview(OverviewRecords):
    """Counts over all episodes in MongoDB."""

    def __init__(self, database: Database) -> None:
        super().__init__(MongoGateway(database))
        self._database = database

    @override
    def sources(self) -> dict[str, SourceState]:
        with self._database.read() as collections:
            rows = collections["episodes"].aggregate(_SOURCES)
        return {row["_id"]: SourceState(row["episodes"], moment(row["newest"])) for row in rows}

    @override
    def tally(self) -> Tally:
        """Each count reads an index, or the few episodes that were edited; never texts."""
        with self._database.snapshot() as collections:
            episodes = collections["episodes"]
            rows = [(each["_id"], int(each["episodes"])) for each in episodes.aggregate(_KINDS)]
            active = [(key["kind"], count) for key, count in rows if key["status"] in HOLDING]
            lasting = sum(count for kind, count in active if kind in LASTING_KINDS)
            found = [*episodes.aggregate([{"$match": _RETRIEVED}, *_RETRIEVALS]), {"confirmed": 0, "retrievals": 0}][0]
            return Tally(
                episodes=sum(count for _, count in rows),
                active=sum(count for _, count in active),
                curated=lasting + episodes.count(_TO_LAST),
                replaced=episodes.count({"superseded_by": {"$gt": ""}}),
                confirmed=int(found["confirmed"]),
                retrievals=int(found["retrievals"]),
            )

    @override
    def census(self, where: EpisodeFilter = EVERYTHING) -> Census:
        wanted = of_episodes(where)
        with self._database.read() as collections:
            projects, instances = (_by(collections, name, wanted) for name in ("project", "instance"))
            found = collections["episodes"].aggregate([{"$match": {"$and": [_RETRIEVED, wanted]}}, *_RETRIEVALS])
        retrievals = found[0]["retrievals"] if found else 0
        return Census(sum(projects.values()), retrievals, projects, instances)

    @override
    def kept_away(self, tables: MongoTables, source: str | None) -> int:
        """Held are looked for among parts, the others among tombstones.

        https://www.mongodb.com/docs/manual/reference/operator/aggregation/lookup/
        """
        of = _EVERY_SOURCE if source is None else {"source": source}
        theirs: Document = {
            "from": "parts",
            "localField": "episode_id",
            "foreignField": "part_id",
            "as": "parts",
            "pipeline": [{"$match": {**of, "held_by": None}}, {"$project": {"_id": 0, "part_id": 1}}],
        }
        held: list[Document] = [{"$match": {**of, "held_by": {"$type": "string"}}}]
        buried: list[Document] = [{"$lookup": theirs}, {"$match": {"parts.0": {"$exists": True}}}]
        parts, tombstones = tables.collections["parts"], tables.collections["tombstones"]
        return _without_episode(parts, held, "part_id") + _without_episode(tombstones, buried, "episode_id")

    @override
    def days(self, where: EpisodeFilter) -> dict[date, int]:
        stages: list[dict[str, Any]] = [
            # said of the project, the index is read that has all but tags and sessions
            {"$match": {"$and": [of_episodes(where), {"project": {"$gte": ""}}]}},
            {"$group": {"_id": {"$substrBytes": ["$timestamp", 0, 10]}, "episodes": {"$sum": 1}}},
            {"$sort": {"_id": 1}},
        ]
        with self._database.read() as collections:
            rows = collections["episodes"].aggregate(stages)
        return {date.fromisoformat(row["_id"]): row["episodes"] for row in rows}

    @override
    def groups(self, by: Grouping, where: EpisodeFilter, now: datetime) -> dict[str, int]:
        value = layer_at(now) if by == "layer" else _GROUPED[by]
        stages: list[dict[str, Any]] = [
            {"$match": {"$and": [of_episodes(where), {"project": {"$gte": ""}}]}},
            {"$group": {"_id": value, "episodes": {"$sum": 1}}},
            {"$sort": {"episodes": -1, "_id": 1}},
        ]
        with self._database.read() as collections:
            rows = collections["episodes"].aggregate(stages)
        return {row["_id"] or "": row["episodes"] for row in rows}

    @override
    def most_read(self, where: EpisodeFilter, limit: int) -> list[str]:
        wanted = {"$and": [{"read_count": {"$gt": 0}}, of_episodes(where)]}
        with self._database.read() as collections:
            rows = collections["episodes"].find(wanted, ("_id",), order=_OFTEN_FIRST, limit=limit)
        return [row["_id"] for row in rows]


def _by(tables: Collections, name: str, wanted: Mapping[str, Any]) -> dict[str, int]:
    """Value of a field -> episodes that have it and pass a filter, read of the index that begins with it."""
    rows = tables["episodes"].aggregate(
        [
            {"$match": {"$and": [{name: {"$gte": ""}}, wanted]}},
            {"$group": {"_id": f"${name}", "episodes": {"$sum": 1}}},
            {"$sort": {"episodes": -1, "_id": 1}},
        ]
    )
    return {row["_id"]: row["episodes"] for row in rows}


def _without_episode(collection: Collection, stages: Sequence[Document], episode_id: str) -> int:
    """Count what a pipeline yields and is no episode."""
    theirs: Document = {
        "from": "episodes",
        "localField": episode_id,
        "foreignField": "_id",
        "as": "episodes",
        "pipeline": [{"$project": {"_id": 1}}],
    }
    missing: list[Document] = [{"$lookup": theirs}, {"$match": {"episodes.0": {"$exists": False}}}, {"$count": "parts"}]
    return next((int(each["parts"]) for each in collection.aggregate([*stages, *missing])), 0)

"""Counts over all episodes in MongoDB; see `OverviewRecords`."""

from datetime import date
from typing import Any

from anamnesis_pipeline.memory_layers import LASTING_KINDS, LASTING_TAGS, WORKING_BELOW
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.facets import of_episodes
from anamnesis_pipeline.store.mongo.parts import of_source
from anamnesis_pipeline.store.overview_base import Census, SourceState, Tally
from anamnesis_pipeline.store.values import moment

_IS_ACTIVE: dict[str, Any] = {"$eq": ["$status", "active"]}
_IS_CURATED: dict[str, Any] = {
    "$or": [
        {"$gt": ["$edited", 0]},
        {"$in": ["$kind", sorted(LASTING_KINDS)]},
        {"$ne": [{"$setIntersection": ["$tags", sorted(LASTING_TAGS)]}, []]},
    ]
}


def _times(condition: dict[str, Any]) -> dict[str, Any]:
    """How many documents meet a condition, as `$group` counts."""
    return {"$sum": {"$cond": [condition, 1, 0]}}


_TALLY: list[dict[str, Any]] = [
    {
        "$group": {
            "_id": None,
            "episodes": {"$sum": 1},
            "active": _times(_IS_ACTIVE),
            "curated": _times({"$and": [_IS_ACTIVE, _IS_CURATED]}),
            "replaced": _times({"$ne": ["$superseded_by", None]}),
            "confirmed": _times({"$gte": ["$retrieval_count", WORKING_BELOW]}),
            "retrievals": {"$sum": "$retrieval_count"},
        }
    },
    {"$unset": "_id"},
]
_SOURCES: list[dict[str, Any]] = [
    {"$match": of_source(None)},
    {"$group": {"_id": "$source", "episodes": {"$sum": 1}, "newest": {"$max": "$timestamp"}}},
]

_RETRIEVALS: list[dict[str, Any]] = [
    {"$match": {"retrieval_count": {"$gt": 0}}},
    {"$group": {"_id": None, "retrievals": {"$sum": "$retrieval_count"}}},
]
_OFTEN_FIRST = (("retrieval_count", -1), ("last_retrieved", -1), ("_id", 1))


class MongoOverview:
    """See `OverviewRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sources(self) -> dict[str, SourceState]:
        """See `OverviewRecords.sources`."""
        rows = self._database.read(lambda tables: tables["episodes"].aggregate(_SOURCES))
        return {row["_id"]: SourceState(row["episodes"], moment(row["newest"])) for row in rows}

    def tally(self) -> Tally:
        """See `OverviewRecords.tally`."""
        rows = self._database.read(lambda tables: tables["episodes"].aggregate(_TALLY))
        return Tally(**rows[0]) if rows else Tally()

    def census(self) -> Census:
        """See `OverviewRecords.census`."""
        projects, instances, found = self._database.read(
            lambda tables: (
                _by(tables, "project"), _by(tables, "instance"), tables["episodes"].aggregate(_RETRIEVALS)
            )
        )  # fmt: skip
        retrievals = found[0]["retrievals"] if found else 0
        return Census(sum(projects.values()), retrievals, projects, instances)

    def days(self, where: Where) -> dict[date, int]:
        """See `OverviewRecords.days`."""
        stages: list[dict[str, Any]] = [
            # said of the project, the index is read that has all but tags and sessions
            {"$match": {"$and": [of_episodes(where), {"project": {"$gte": ""}}]}},
            {"$group": {"_id": {"$substrBytes": ["$timestamp", 0, 10]}, "episodes": {"$sum": 1}}},
            {"$sort": {"_id": 1}},
        ]
        rows = self._database.read(lambda tables: tables["episodes"].aggregate(stages))
        return {date.fromisoformat(row["_id"]): row["episodes"] for row in rows}

    def most_retrieved(self, where: Where, limit: int) -> list[str]:
        """See `OverviewRecords.most_retrieved`."""
        wanted = {"$and": [{"retrieval_count": {"$gt": 0}}, of_episodes(where)]}
        rows = self._database.read(
            lambda tables: tables["episodes"].find(wanted, ("_id",), order=_OFTEN_FIRST, limit=limit)
        )
        return [row["_id"] for row in rows]


def _by(tables: Tables, name: str) -> dict[str, int]:
    """Value of a field -> episodes that have it, read of the index that begins with it."""
    rows = tables["episodes"].aggregate([
        {"$match": {name: {"$gte": ""}}},
        {"$group": {"_id": f"${name}", "episodes": {"$sum": 1}}},
        {"$sort": {"episodes": -1, "_id": 1}},
    ])  # fmt: skip
    return {row["_id"]: row["episodes"] for row in rows}

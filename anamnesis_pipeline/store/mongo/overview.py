"""Counts over all episodes in MongoDB; see `OverviewRecords`."""

from typing import Any

from anamnesis_pipeline.memory_layers import LASTING_KINDS, LASTING_TAGS, WORKING_BELOW
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.mongo.parts import of_source
from anamnesis_pipeline.store.overview_base import SourceState, Tally
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

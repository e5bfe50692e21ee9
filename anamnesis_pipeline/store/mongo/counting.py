"""How many rows there are of a source, or of all. Every count is made by the server and reads an index or small
documents, never texts.
"""

from typing import Any

from anamnesis_pipeline.model import EXCLUDED
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.overview_base import SourceCounts

_BEHIND_EXCLUDED = EXCLUDED[:-1] + chr(ord(EXCLUDED[-1]) + 1)
"""What begins with `EXCLUDED` is before this text, and not before that."""
_IS_UNREAD = {
    "$and": [
        {"$eq": ["$gone", 0]},
        {"$ne": ["$unread", ""]},
        {"$or": [{"$lt": ["$unread", EXCLUDED]}, {"$gte": ["$unread", _BEHIND_EXCLUDED]}]},
    ]
}


def of_source(source: str | None) -> Document:
    """The condition that something is of a source; None: of any, said so that an index that begins with it is read."""
    return {"source": {"$gte": ""} if source is None else source}


def count_source(tables: Tables, source: str | None) -> SourceCounts:
    """See `OverviewRecords.counts`."""
    of = of_source(source)
    return SourceCounts(
        **_files(tables, of),
        **_parts(tables, of),
        **count_episodes(tables, of),
        messages=tables["messages"].count({**of, "canonical": ""}),
        occurrences=tables["occurrences"].count(of),
        dead_letters=tables["dead_letters"].count(of),
        kept_away=_kept_away(tables, of),
    )


def _files(tables: Tables, of: Document) -> dict[str, int]:
    parsed = {"$max": ["$parsed_lines", 0]}
    return _sums(tables, "files", [{"$match": of}], {
        "files": 1,
        "files_gone": "$gone",
        "files_unread": {"$cond": [_IS_UNREAD, 1, 0]},
        "bytes": "$offset",
        "lines": "$lines",
        "unparsed_lines": {"$subtract": ["$lines", parsed]},
    })  # fmt: skip


def _parts(tables: Tables, of: Document) -> dict[str, int]:
    by_exchange = {
        "_id": {"source": "$source", "exchange_id": "$exchange_id"},
        "parts": {"$sum": 1},
        "open_parts": {"$sum": {"$cond": [{"$eq": ["$closed", 0]}, 1, 0]}},
        "summaries": {"$sum": {"$cond": [{"$eq": ["$summarized_hash", None]}, 0, 1]}},
    }
    return _sums(tables, "parts", [{"$match": of}, {"$group": by_exchange}], {
        "exchanges": 1, "parts": "$parts", "open_parts": "$open_parts", "summaries": "$summaries",
    })  # fmt: skip


def count_episodes(tables: Tables, of: Document) -> dict[str, int]:
    """`episodes`, and their `passages`; reads an index, and is right also after the server crashed."""
    return _sums(tables, "episodes", [{"$match": of}], {"episodes": 1, "passages": "$passages"})


def _sums(tables: Tables, name: str, stages: list[Document], terms: dict[str, Any]) -> dict[str, int]:
    """The sum of each of these terms over what a pipeline yields; 0 where that is nothing."""
    total = {"$group": {"_id": None, **{key: {"$sum": term} for key, term in terms.items()}}}
    sums = next(iter(tables[name].aggregate([*stages, total])), {})
    return {key: int(sums.get(key, 0)) for key in terms}


def _kept_away(tables: Tables, of: Document) -> int:
    """Parts that are no episodes on purpose: a rule holds them, or their episode was deleted.

    https://www.mongodb.com/docs/manual/reference/operator/aggregation/lookup/
    """
    held = {**of, "held_by": {"$type": "string"}}
    buried: Document = {
        "from": "parts", "localField": "episode_id", "foreignField": "part_id", "as": "parts",
        "pipeline": [{"$match": {**of, "held_by": None}}, {"$project": {"_id": 0, "part_id": 1}}],
    }  # fmt: skip
    return _without_episode(tables, "parts", [{"$match": held}], "part_id") + _without_episode(
        tables, "tombstones", [{"$lookup": buried}, {"$match": {"parts.0": {"$exists": True}}}], "episode_id"
    )


def _without_episode(tables: Tables, name: str, stages: list[Document], episode_id: str) -> int:
    """How many of what a pipeline yields are no episodes."""
    theirs: Document = {
        "from": "episodes", "localField": episode_id, "foreignField": "_id", "as": "episodes",
        "pipeline": [{"$project": {"_id": 1}}],
    }  # fmt: skip
    missing = [{"$lookup": theirs}, {"$match": {"episodes.0": {"$exists": False}}}]
    return _sums(tables, name, [*stages, *missing], {"missing": 1})["missing"]

"""Parts in the order in which they are worked off: the newest first, by the end of their last segment, then id."""

from collections.abc import Iterable, Sequence

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store import part_values
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.parts import of_source

Place = tuple[str, str]
"""End and id of a part."""
NEWEST_FIRST = (("ended_at", -1), ("part_id", -1))


def place(part: Part) -> Place:
    """Where a part is in the list."""
    return part_values.ended_at(part), part.part_id


def behind(last: Place | None) -> Document:
    """The condition that a part comes behind this place; None: that it is a part."""
    if last is None:
        return {}
    ended_at, part_id = last
    older = [{"ended_at": {"$lt": ended_at}}, {"ended_at": ended_at, "part_id": {"$lt": part_id}}]
    return {"ended_at": {"$lte": ended_at}, "$or": older}


def newest_of_sources(tables: Tables, where: Filter, flags: Sequence[str] = ()) -> dict[str, str]:
    """Source -> its newest part that matches, for those that have one.

    Where an index begins with the source and `flags`, the server looks at one entry of it for each source
    (https://www.mongodb.com/docs/manual/reference/operator/aggregation/group/#optimizations).
    """
    order = {"source": 1, **dict.fromkeys(flags, 1), **dict(NEWEST_FIRST)}
    groups = tables["parts"].aggregate([
        {"$match": {**of_source(None), **where}},
        {"$sort": order},
        {"$group": {"_id": "$source", "part_id": {"$first": "$part_id"}}},
    ])  # fmt: skip
    return {group["_id"]: group["part_id"] for group in groups}


def buried(tables: Tables, part_ids: Iterable[str]) -> set[str]:
    """Those of these parts whose episode was deleted with a tombstone."""
    return {found["episode_id"] for found in tables["tombstones"].among("episode_id", part_ids, ["episode_id"])}

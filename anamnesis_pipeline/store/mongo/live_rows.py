"""All passages or vectors that pass a filter, where they are few enough to be read: what a search without an index is
answered from. They are exactly those, since they are read as they are now.
"""

from collections.abc import Sequence

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.facets import condition, of_episodes
from anamnesis_pipeline.store.mongo.search_indexes import SearchIndex
from anamnesis_pipeline.store.mongo.text_queries import filtered
from anamnesis_pipeline.store.mongo.translation import IndexDown, asking

EPISODES_LOOKED_UP = 5_000
"""A filter that leaves more is not followed from the episodes, whose fields are indexed, to what belongs to them."""


def live_rows(
    tables: Tables, name: str, where: Where, fields: Sequence[str], most: int, *, has: str | None = None
) -> list[Document] | None:
    """The documents of a collection that pass; None when there are more than `most`, or it takes too long to tell.

    :param has: a field that they must have.
    """
    wanted = {**condition(where), **({has: {"$exists": True}} if has else {})}
    if tables[name].size() > most:
        if not where.is_selective:
            return None
        episodes = tables["episodes"].find(of_episodes(where), ("_id",), limit=EPISODES_LOOKED_UP + 1)
        if len(episodes) > EPISODES_LOOKED_UP:
            return None
        wanted |= {"episode_id": {"$in": [episode["_id"] for episode in episodes]}}
    found = tables[name].find(wanted, fields, limit=most + 1)
    return found if len(found) <= most else None


# --- how much a filter leaves, as the index of full text counts it ---------------------------------------

PASSAGES = "passages"


def leaves_few(tables: Tables, index: SearchIndex, where: Where, most: int) -> bool:
    """Whether at most so many passages pass, about; False where the index does not say."""
    try:
        name = index.name(tables)
        passing = _passing(tables, name, condition(where), most)
        if not passing and (other := index.instead_of(name, tables, lambda: bool(_passing(tables, name, {}, 1)))):
            passing = _passing(tables, other, condition(where), most)
    except IndexDown:
        return False
    return passing <= most


def _passing(tables: Tables, name: str, where: Filter, most: int) -> int:
    """How many pass, at least."""
    count = {"type": "lowerBound", "threshold": most}
    with asking(name):
        (found,) = tables[PASSAGES].search([{"$searchMeta": {"index": name, **filtered([], where), "count": count}}])
    return int(found["count"]["lowerBound"])

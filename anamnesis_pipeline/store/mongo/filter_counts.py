"""How much a filter leaves, as the index of full text counts it: that knows what is filtered by of every passage, and
counts in milliseconds whatever the filter is.
"""

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Filter
from anamnesis_pipeline.store.mongo.facets import condition
from anamnesis_pipeline.store.mongo.search_indexes import SearchIndex
from anamnesis_pipeline.store.mongo.search_operators import filtered
from anamnesis_pipeline.store.mongo.search_refusals import IndexDown, asking

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

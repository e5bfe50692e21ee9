"""How much a filter leaves, as the index of full text counts it: that knows what is filtered by of every passage, and
counts in milliseconds whatever the filter is.
"""

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.facets import condition
from anamnesis_pipeline.store.mongo.search_indexes import SearchIndex
from anamnesis_pipeline.store.mongo.search_operators import filtered
from anamnesis_pipeline.store.mongo.search_refusals import IndexDown, asking


def leaves_few(tables: Tables, index: SearchIndex, where: Where, most: int) -> bool:
    """Whether at most so many passages pass, about; False where the index does not say."""
    try:
        name = index.name(tables)
        count = {"type": "lowerBound", "threshold": most}
        with asking(name):
            found = tables[index.collection].search(
                [{"$searchMeta": {"index": name, **filtered([], condition(where)), "count": count}}]
            )
    except IndexDown:
        return False
    return bool(found) and int(found[0]["count"]["lowerBound"]) <= most

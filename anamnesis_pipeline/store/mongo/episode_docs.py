"""Episodes as documents, and the changes of single fields of theirs."""

from collections.abc import Callable, Sequence

from pymongo import UpdateOne

from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import FACET_SOURCES, facets_of
from anamnesis_pipeline.store.mongo.passage_docs import spread
from anamnesis_pipeline.store.mongo.space_docs import live_spaces

CHANGED_FIELDS = ("_id", *FACET_SOURCES, "superseded_by", "superseded_at", "retrieval_count")
"""What `change` and `status_fields` look at."""


def change(tables: Tables, documents: Sequence[Document], fields_of: Callable[[Document], Document]) -> None:
    """Set fields of these episodes, which are as `CHANGED_FIELDS` of theirs say, and what follows from them in their
    passages and vectors.
    """
    writes, changed = [], {}
    for document in documents:
        fields = fields_of(document)
        if facets := changed_facets(document, {**document, **fields}):
            changed[document["_id"]] = facets
        writes.append(UpdateOne({"_id": document["_id"]}, {"$set": {**facets, **fields}}))
    tables["episodes"].write(writes)
    if changed:
        spread(tables, live_spaces(tables), changed)


def changed_facets(before: Document, after: Document) -> Document:
    """The facets of an episode that are others in `after`."""
    old = facets_of(before)
    return {name: value for name, value in facets_of(after).items() if value != old[name]}

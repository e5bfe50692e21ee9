"""Episodes and passages as documents. What filters look at is repeated in passages and vectors (`facets.py`)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from pymongo import UpdateOne

from anamnesis_pipeline.model import Passage, StoredPassage
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.index_terms import exact_terms
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import FACET_SOURCES, facets_of
from anamnesis_pipeline.store.mongo.space_docs import SpaceDoc, live_spaces, seq_counter, tokens_name, vectors_name

terms_of = lru_cache(2 * MAX_ROWS_PER_WRITE)(exact_terms)
"""Remembered for as many texts as two transactions write: those of one are worked out before its turn, in which nobody
else can write, and it may run again.
"""
PASSAGE_FIELDS = ("_id", "episode_id", "ordinal", "text", "context", "message_ids")


def read_passage(document: Document) -> StoredPassage:
    """A document with `PASSAGE_FIELDS`."""
    passage = Passage(document["ordinal"], document["text"], document["context"], tuple(document["message_ids"]))
    return StoredPassage(document["_id"], document["episode_id"], passage)


def passages_of(tables: Tables, episode_ids: Collection[str]) -> dict[str, list[StoredPassage]]:
    """Episode id -> its passages by ordinal, for those that have some."""
    found: dict[str, list[StoredPassage]] = {}
    if episode_ids:
        where = {"episode_id": {"$in": list(episode_ids)}}
        for stored in map(read_passage, tables["passages"].each(where, PASSAGE_FIELDS, order=[("ordinal", 1)])):
            found.setdefault(stored.episode_id, []).append(stored)
    return found


def delete_passages(tables: Tables, spaces: Sequence[SpaceDoc], passage_ids: Sequence[int]) -> None:
    """Remove passages with the vectors of every space."""
    if not passage_ids:
        return
    where = {"_id": {"$in": list(passage_ids)}}
    tables["passages"].delete(where)
    for space in spaces:
        tables[vectors_name(space.key)].delete(where)
        if space.token_dims:
            tables[tokens_name(space.key)].delete(where)


def spread_facets(tables: Tables, spaces: Sequence[SpaceDoc], changed: Mapping[str, Document]) -> None:
    """Write changed facets of episodes, by id, into their passages and the vectors of every space. Each gets a `seq` of
    its own, by which a reader knows that a search index has not seen it yet.
    """
    if not changed:
        return
    for name in ("passages", *(vectors_name(space.key) for space in spaces)):
        found = tables[name].find({"episode_id": {"$in": list(changed)}}, ("_id", "episode_id"), order=[("_id", 1)])
        first = tables.next_number(seq_counter(name), len(found)) if found else 0
        tables[name].write(
            [
                UpdateOne({"_id": each["_id"]}, {"$set": {**changed[each["episode_id"]], "seq": seq}})
                for seq, each in enumerate(found, first)
            ]
        )


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
        spread_facets(tables, live_spaces(tables), changed)


def changed_facets(before: Document, after: Document) -> Document:
    """The facets of an episode that are others in `after`."""
    old = facets_of(before)
    return {name: value for name, value in facets_of(after).items() if value != old[name]}

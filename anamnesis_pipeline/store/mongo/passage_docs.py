"""Passages as documents: written by what differs, so that an unchanged passage keeps its key and its vectors."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pymongo import InsertOne, UpdateOne

from anamnesis_pipeline.model import Passage, StoredPassage
from anamnesis_pipeline.store.exact_terms import exact_terms
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import facets_of
from anamnesis_pipeline.store.mongo.pending import Wanted
from anamnesis_pipeline.store.mongo.search_definitions import unspaced_fields
from anamnesis_pipeline.store.mongo.space_docs import SpaceDoc, seq_counter, tokens_name, vectors_name

terms_of = lru_cache(2 * MAX_ROWS_PER_WRITE)(exact_terms)
"""Remembered for as many texts as two transactions write: those of one are worked out before its turn, in which nobody
else can write, and it may run again.
"""
PASSAGE_FIELDS = ("_id", "episode_id", "ordinal", "text", "context", "message_ids")


@dataclass(frozen=True, slots=True)
class Wish:
    """The passages that an episode is to have, told by the fields of its document that `facets_of` and `Wanted` read.

    `was_there`: it may have passages already. `changed`: those of its facets that are others than they have.
    """

    episode: Document
    passages: Sequence[Passage]
    was_there: bool = False
    changed: Document = field(default_factory=dict)


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


def write_passages(tables: Tables, spaces: Sequence[SpaceDoc], wishes: Sequence[Wish]) -> list[Wanted]:
    """Make these the passages of their episodes; those that stay as they are keep their keys. Returns what is to have
    vectors.
    """
    present = passages_of(tables, [wish.episode["_id"] for wish in wishes if wish.was_there])
    kept: dict[str, dict[int, int]] = {}
    for wish in wishes:
        texts = {passage.ordinal: passage for passage in wish.passages}
        kept[wish.episode["_id"]] = {
            stored.passage.ordinal: stored.passage_id
            for stored in present.get(wish.episode["_id"], [])
            if texts.get(stored.passage.ordinal) == stored.passage
        }
    keys = {key for ids in kept.values() for key in ids.values()}
    delete_passages(
        tables, spaces, [s.passage_id for held in present.values() for s in held if s.passage_id not in keys]
    )
    spread(tables, spaces, {wish.episode["_id"]: wish.changed for wish in wishes if wish.changed})
    fresh = [
        (wish, passage)
        for wish in wishes
        for passage in wish.passages
        if passage.ordinal not in kept[wish.episode["_id"]]
    ]
    _insert(tables, fresh)
    return list(_to_embed(wishes, kept))


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


def spread(tables: Tables, spaces: Sequence[SpaceDoc], changed: Mapping[str, Document]) -> None:
    """Write changed facets of episodes, by id, into their passages and the vectors of every space. Each gets a `seq` of
    its own, by which a reader knows that a search index has not seen it yet.
    """
    if not changed:
        return
    for name in ("passages", *(vectors_name(space.key) for space in spaces)):
        found = tables[name].find({"episode_id": {"$in": list(changed)}}, ("_id", "episode_id"), order=[("_id", 1)])
        first = tables.next_number(seq_counter(name), len(found)) if found else 0
        tables[name].write([
            UpdateOne({"_id": each["_id"]}, {"$set": {**changed[each["episode_id"]], "seq": seq}})
            for seq, each in enumerate(found, first)
        ])  # fmt: skip


def _insert(tables: Tables, fresh: Sequence[tuple[Wish, Passage]]) -> None:
    if not fresh:
        return
    first = tables.next_number("passages", len(fresh))
    seq = tables.next_number(seq_counter("passages"), len(fresh))
    facets = {wish.episode["_id"]: facets_of(wish.episode) for wish, _ in fresh}
    tables["passages"].write([
        InsertOne({
            "_id": first + n,
            "ordinal": passage.ordinal,
            "text": passage.text,
            "context": passage.context,
            "message_ids": list(passage.message_ids),
            "terms": terms_of(passage.text),
            **unspaced_fields(passage.text, passage.context),
            "seq": seq + n,
            **facets[wish.episode["_id"]],
        })
        for n, (wish, passage) in enumerate(fresh)
    ])  # fmt: skip


def _to_embed(wishes: Sequence[Wish], kept: Mapping[str, Mapping[int, int]]) -> Iterator[Wanted]:
    for wish in wishes:
        old = list(kept[wish.episode["_id"]].values())
        yield Wanted(wish.episode, old, len(wish.passages) - len(old))

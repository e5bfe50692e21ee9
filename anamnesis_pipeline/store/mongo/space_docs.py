"""Embedding spaces as documents, the collections of each, and which episodes lack vectors of theirs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pymongo import DeleteMany, InsertOne

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.contracts import Lacking
from anamnesis_pipeline.store.mongo.client import Collections
from anamnesis_pipeline.store.mongo.collections import Document, Write
from anamnesis_pipeline.store.records.spaces import ADDING, DROPPED, STORED_FIELDS, StoredSpace, space_not_found
from anamnesis_pipeline.store.vector_values import EXACT_BELOW

_DOC_FIELDS = ("_id", *STORED_FIELDS[1:], "index_recall")


@dataclass(frozen=True, slots=True)
class SpaceDoc(StoredSpace):
    """A stored space, with what is known of its search index."""

    index_recall: float | None = None
    """Share of the ten nearest that its search index found when that was last measured, in [0, 1]."""

    @property
    def is_exact(self) -> bool:
        """Whether its search index finds so little that it is asked to compare every vector."""
        return self.index_recall is not None and self.index_recall < EXACT_BELOW


def vectors_name(space_key: str) -> str:
    """The collection of a space's vectors."""
    return f"vectors_{space_key}"


def tokens_name(space_key: str) -> str:
    """The collection of a space's token vectors."""
    return f"tokens_{space_key}"


def seq_counter(collection: str) -> str:
    """The counter that `seq` of a collection is taken from: `passages`, or one of vectors."""
    return f"{collection}_seq"


def read_doc(document: Document) -> SpaceDoc:
    """What the vectors of a stored space are found by."""
    return SpaceDoc(
        space_id=document["_id"],
        key=document["key"],
        dim=document["dim"],
        status=document["status"],
        token_dims=document["token_dims"],
        variants=tuple(map(Variant, document["variants"])),
        index_recall=document.get("index_recall"),
    )


def live_spaces(tables: Collections) -> list[SpaceDoc]:
    """Spaces that vectors may be expected of, those that are being added included."""
    found = tables["spaces"].find({"status": {"$ne": DROPPED}}, _DOC_FIELDS, order=[("_id", 1)])
    return list(map(read_doc, found))


def find_space(tables: Collections, key: str) -> SpaceDoc:
    """Return the space of this key.

    :raises SpaceNotFound: there is none.
    """
    shown = [space for space in live_spaces(tables) if space.status != ADDING]
    for space in shown:
        if space.key == key:
            return space
    raise space_not_found(key, [space.key for space in shown])


# --- what lacks vectors, as documents per space and episode, in the transaction that changes it ----------

PLACE = ("_id", "source", "timestamp", "number")
"""The fields of an episode's document that its entries are ordered by."""


def count_lacking(tables: Collections, episode_ids: Iterable[str], space_id: int | None = None) -> None:
    """Count again what these episodes lack, in one space or (None) in all."""
    ids = sorted(set(episode_ids))
    spaces = [space for space in live_spaces(tables) if space_id in (None, space.space_id)]
    if not spaces or not ids:
        return
    passages: dict[str, list[int]] = {}
    for found in tables["passages"].find({"episode_id": {"$in": ids}}, ("_id", "episode_id")):
        passages.setdefault(found["episode_id"], []).append(found["_id"])
    episodes = tables["episodes"].find({"_id": {"$in": ids}}, PLACE)
    lacking = [
        Lacking(each["number"], each["_id"], each["source"], each["timestamp"], passages.get(each["_id"], []), 0)
        for each in episodes
    ]
    note_lacking(tables, spaces, lacking)


def note_lacking(tables: Collections, spaces: Sequence[SpaceDoc], written: Sequence[Lacking]) -> None:
    """Count what these episodes lack in these spaces; a few calls for each space, however many episodes."""
    if not spaces or not written:
        return
    old = [passage_id for each in written for passage_id in each.old]
    ids, space_ids = [each.episode_id for each in written], [space.space_id for space in spaces]
    writes: list[Write] = [DeleteMany({"space_id": {"$in": space_ids}, "episode_id": {"$in": ids}})]
    for space in spaces:
        done = complete_passages(tables, space, old)
        for each in written:
            if missing := each.new + sum(key not in done for key in each.old):
                place = {"_id": each.episode_id, **{name: getattr(each, name) for name in PLACE if name != "_id"}}
                writes.append(InsertOne(_entry(space.space_id, place, missing)))
    tables["pending"].write(writes)


def complete_passages(tables: Collections, space: SpaceDoc, passage_ids: Collection[int]) -> set[int]:
    """Those of these passages that have the vectors of all variants, and the token vectors if the space has some."""
    if not passage_ids:
        return set()
    ids = {"_id": {"$in": list(passage_ids)}}
    has_all = {variant.value: {"$exists": True} for variant in space.variants}
    done = {found["_id"] for found in tables[vectors_name(space.key)].find(ids | has_all, ("_id",))}
    if space.token_dims and done:
        done &= {found["_id"] for found in tables[tokens_name(space.key)].find(ids, ("_id",))}
    return done


def expect_everything(tables: Collections, space_id: int, *, after: str = "", limit: int) -> str | None:
    """In a new space, episodes lack all their vectors: note so of the next `limit` after one, by id.

    Returns the id of the last one; None when there are no more.
    """
    episodes = tables["episodes"].find(
        {"_id": {"$gt": after}, "passages": {"$gt": 0}}, (*PLACE, "passages"), order=[("_id", 1)], limit=limit
    )
    if not episodes:
        return None
    tables["pending"].write(
        [
            DeleteMany({"space_id": space_id, "episode_id": {"$in": [episode["_id"] for episode in episodes]}}),
            *(InsertOne(_entry(space_id, episode, episode["passages"])) for episode in episodes),
        ]
    )
    last: str = episodes[-1]["_id"]
    return last if len(episodes) == limit else None


def newest_lacking(tables: Collections, space_id: int, sources: Iterable[str], episodes: int) -> list[tuple[str, str]]:
    """(episode id, source) of the newest episodes of these sources that lack a vector, newest first."""
    if episodes < 1:
        return []
    found = tables["pending"].find(
        {"space_id": space_id, "source": {"$in": sorted(set(sources))}},
        ("episode_id", "source"),
        order=[("timestamp", -1), ("number", -1)],
        limit=episodes,
    )
    return [(each["episode_id"], each["source"]) for each in found]


def _entry(space_id: int, episode: Document, missing: int) -> Document:
    return {
        "space_id": space_id,
        "episode_id": episode["_id"],
        "source": episode["source"],
        "timestamp": episode["timestamp"],
        "number": episode["number"],
        "missing": missing,
    }

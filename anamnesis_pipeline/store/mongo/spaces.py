"""The embedding spaces in MongoDB, and which episodes lack vectors of theirs.

Collections and search indexes are no part of a transaction. So a space is `ADDING` until all that it has is made, and
`DROPPED` until all of it is gone; the next call that adds or drops a space goes on where a crash left another one.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pymongo import DeleteMany, InsertOne
from typing_extensions import override

from anamnesis_pipeline.errors import SpaceConflict
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.store.contracts import Lacking
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.collections import Document, Write
from anamnesis_pipeline.store.mongo.engine import MongoGateway, MongoTables
from anamnesis_pipeline.store.mongo.schema import INDEXES_OF_SPACES, tokens_name, vectors_name
from anamnesis_pipeline.store.records.spaces import (
    ADDING,
    DROPPED,
    STORED_FIELDS,
    SpaceRecords,
    StoredSpace,
    droppable,
    lacks_vectors,
    refuse_second,
    space_not_found,
    space_row,
)
from anamnesis_pipeline.store.vector_values import EXACT_BELOW

EPISODES_PER_STEP = 2_000
"""Episodes of which one transaction notes that they lack all vectors of a new space."""


@dataclass(frozen=True, slots=True)
class SpaceDoc(StoredSpace):
    """A stored space, with what is known of its search index."""

    index_recall: float | None = None
    """Share of the ten nearest that its search index found when that was last measured, in [0, 1]."""

    @property
    def is_exact(self) -> bool:
        """Whether its search index finds so little that it is asked to compare every vector."""
        return self.index_recall is not None and self.index_recall < EXACT_BELOW


def live_spaces(tables: Collections) -> list[SpaceDoc]:
    """Return the spaces that may have vectors, those that are being added included."""
    fields = ("_id", *STORED_FIELDS[1:], "index_recall")
    return list(map(_read, tables["spaces"].find({"status": {"$ne": DROPPED}}, fields, order=[("_id", 1)])))


def find_space(tables: Collections, key: str) -> SpaceDoc:
    """Return the space of this key.

    :raises SpaceNotFound: there is none.
    """
    shown = [space for space in live_spaces(tables) if space.status != ADDING]
    for space in shown:
        if space.key == key:
            return space
    raise space_not_found(key, [space.key for space in shown])


def _read(document: Document) -> SpaceDoc:
    return SpaceDoc(
        space_id=document["_id"],
        key=document["key"],
        dim=document["dim"],
        status=document["status"],
        token_dims=document["token_dims"],
        variants=tuple(map(Variant, document["variants"])),
        index_recall=document.get("index_recall"),
    )


class SpaceIndexes(Protocol):
    """The search indexes of spaces."""

    def ask(self, space: SpaceDoc) -> None:
        """Ask for the search index of a space that is new."""

    def answers(self, space: SpaceDoc) -> bool:
        """Tell whether a space can be searched by now."""


class MongoSpaces(SpaceRecords):
    """The embedding spaces in MongoDB."""

    def __init__(self, database: Database, indexes: SpaceIndexes) -> None:
        self._engine = MongoGateway(database)
        super().__init__(self._engine)
        self._database = database
        self._indexes = indexes

    @override
    def put(self, space: Space) -> bool:
        self.finish_drops()
        claimed = self._engine.write(lambda tables: self._claim(tables, space))
        if claimed is None:
            return False
        self.make_collections(space.key)
        self._indexes.ask(claimed)
        adding = {"space_id": claimed.space_id, "status": ADDING}
        after = ""

        def expect_more(tables: MongoTables) -> str | bool:
            """Return the last episode that vectors are expected of by now; True when it was the last of all and the
            space is shown; False when another process was faster, or dropped the space.
            """
            if not tables["spaces"].has(adding):
                return False
            last = expect_everything(tables.collections, claimed.space_id, after, EPISODES_PER_STEP)
            if last is not None:
                return last
            refuse_second(tables, space.key, space.status)
            tables["spaces"].update({"space_id": claimed.space_id}, {"status": space.status})
            return True

        try:
            while isinstance(done := self._engine.write(expect_more), str):
                after = done
        except SpaceConflict:  # another one is active, or building, by now: no later call would finish this one
            self._engine.write(lambda tables: tables["spaces"].update(adding, {"status": DROPPED}))
            self.finish_drops()
            raise
        return done

    @override
    def activate(self, key: str, *, only_from: str | None = None) -> bool:
        """Over another space it switches only once the new one's index answers."""
        with self._engine.read() as tables:
            space = find_space(tables.collections, key)
            is_awaited = (
                space.status != "active"
                and only_from in (None, space.status)
                and tables["spaces"].has({"status": "active"})
                and not lacks_vectors(tables, space)
            )
        if is_awaited and not self._indexes.answers(space):
            return False
        return super().activate(key, only_from=only_from)

    @override
    def drop(self, key: str) -> None:
        def work(tables: MongoTables) -> None:
            if (space_id := droppable(tables, key)) is not None:
                tables["spaces"].update({"space_id": space_id}, {"status": DROPPED})

        self._engine.write(work)
        self.finish_drops()

    def finish_drops(self) -> None:
        """Remove what dropped spaces had, of drops that were interrupted too."""
        with self._engine.read() as tables:
            dropped = tables["spaces"].find({"status": DROPPED}, ["space_id", "key"])

        def remove(tables: MongoTables, space_id: int, key: str) -> None:
            if tables["spaces"].delete({"space_id": space_id, "status": DROPPED}):
                self._drop_collections(key)

        for each in dropped:
            with self._database.read() as collections:
                collections["pending"].delete({"space_id": each["space_id"]})
            self._engine.write(partial(remove, **each))

    def make_collections(self, key: str) -> None:
        """Make what a space keeps its vectors in, where it is missing; outside of any transaction."""
        with self._database.read() as collections:
            collections[vectors_name(key)].make(INDEXES_OF_SPACES["vectors_"])
            collections[tokens_name(key)].make(INDEXES_OF_SPACES["tokens_"])

    @override
    def _has_vectors(self, tables: MongoTables, space: StoredSpace) -> bool:
        return tables.collections[vectors_name(space.key)].has({})

    def _claim(self, tables: MongoTables, space: Space) -> SpaceDoc | None:
        """Begin to add a space, or go on where another process did not; None when it is there."""
        found = tables["spaces"].one({"key": space.key}, ["space_id", "status"])
        if found is not None and found["status"] == DROPPED:
            raise SpaceConflict(f"space {space.key} is being dropped; add it again when that is done")
        if found is not None and found["status"] != ADDING:
            return None
        refuse_second(tables, space.key, space.status)
        fields = {**space_row(space), "status": ADDING}
        if found is None:
            self._drop_collections(space.key)
            unset = {"projection": None, "last_episode": None, "written_at": None}
            space_id = tables["spaces"].insert([{**fields, **unset}])
        else:
            space_id = found["space_id"]
            tables["spaces"].update({"space_id": space_id}, fields)
        return _read({**fields, "_id": space_id})

    def _drop_collections(self, key: str) -> None:
        """Called while the write lock is held, so that no other call adds the key, or writes its vectors, before they
        are gone. A drop is outside of the transaction, and waits for none that has not touched the collection.
        """
        with self._database.read() as collections:
            for name in (vectors_name(key), tokens_name(key)):
                collections[name].drop()


# --- what lacks vectors, as documents per space and episode, in the transaction that changes it ----------

PLACE = ("_id", "source", "timestamp", "number")
"""The fields of an episode's document that its entries are ordered by."""


def count_lacking(tables: Collections, episode_ids: Iterable[str], space: SpaceDoc) -> dict[str, int]:
    """Count again what these episodes lack in a space. Return episode -> its number."""
    ids = sorted(set(episode_ids))
    passages: dict[str, list[int]] = {}
    for found in tables["passages"].find({"episode_id": {"$in": ids}}, ("_id", "episode_id")):
        passages.setdefault(found["episode_id"], []).append(found["_id"])
    lacking = [
        Lacking(each["number"], each["_id"], each["source"], each["timestamp"], passages.get(each["_id"], []), 0)
        for each in tables["episodes"].find({"_id": {"$in": ids}}, PLACE)
    ]
    note_lacking(tables, [space], lacking)
    return {each.episode_id: each.number for each in lacking}


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


def expect_everything(tables: Collections, space_id: int, after: str, limit: int) -> str | None:
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

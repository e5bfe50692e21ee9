"""The embedding spaces in MongoDB.

Collections and search indexes are no part of a transaction. So a space is `ADDING` until all that it has is made, and
`DROPPED` until all of it is gone; the next call that adds or drops a space goes on where a crash left another one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from typing_extensions import override

from anamnesis_pipeline.errors import SpaceConflict
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.engine import MongoGateway, MongoTables
from anamnesis_pipeline.store.mongo.schema import INDEXES_OF_SPACES
from anamnesis_pipeline.store.mongo.space_docs import (
    SpaceDoc,
    expect_everything,
    find_space,
    read_doc,
    tokens_name,
    vectors_name,
)
from anamnesis_pipeline.store.records.spaces import (
    ADDING,
    DROPPED,
    SpaceRecords,
    StoredSpace,
    droppable,
    lacks_vectors,
    refuse_second,
    space_row,
)

EPISODES_PER_STEP = 2_000
"""Episodes of which one transaction notes that they lack all vectors of a new space."""


@dataclass(frozen=True, slots=True)
class SpaceIndexes:
    """The search indexes of spaces: `ask` for one where it is missing, and whether one `answers` by now."""

    ask: Callable[[SpaceDoc], None]
    answers: Callable[[SpaceDoc], bool]


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
        self._database.read(partial(make_collections, key=space.key))
        self._indexes.ask(claimed)
        done: str | bool = ""
        try:
            while isinstance(done, str):
                done = self._engine.write(partial(_expect_more, space_id=claimed.space_id, space=space, after=done))
        except SpaceConflict:  # another one is active, or building, by now: no later call would finish this one
            adding = {"space_id": claimed.space_id, "status": ADDING}
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
        for each in dropped:
            self._database.read(partial(_forget_pending, space_id=each["space_id"]))
            self._engine.write(partial(self._remove, space_id=each["space_id"], key=each["key"]))

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
        return read_doc({**fields, "_id": space_id})

    def _remove(self, tables: MongoTables, space_id: int, key: str) -> None:
        if tables["spaces"].delete({"space_id": space_id, "status": DROPPED}):
            self._drop_collections(key)

    def _drop_collections(self, key: str) -> None:
        """Called while the write lock is held, so that no other call adds the key, or writes its vectors, before they
        are gone. A drop is outside of the transaction, and waits for none that has not touched the collection.
        """
        for name in (vectors_name(key), tokens_name(key)):
            self._database.read(partial(_drop, name=name))


def make_collections(collections: Collections, key: str) -> None:
    """Make what a space keeps its vectors in, where it is missing; outside of any transaction."""
    collections[vectors_name(key)].make(INDEXES_OF_SPACES["vectors_"])
    collections[tokens_name(key)].make(INDEXES_OF_SPACES["tokens_"])


def _forget_pending(collections: Collections, space_id: int) -> None:
    collections["pending"].delete({"space_id": space_id})


def _drop(collections: Collections, name: str) -> None:
    collections[name].drop()


def _expect_more(tables: MongoTables, space_id: int, space: Space, after: str) -> str | bool:
    """The id of the last episode that vectors are expected of by now; True when it was the last of all and the space is
    shown; False when another process was faster, or dropped it.
    """
    if not tables["spaces"].has({"space_id": space_id, "status": ADDING}):
        return False
    last = expect_everything(tables.collections, space_id, after=after, limit=EPISODES_PER_STEP)
    if last is not None:
        return last
    refuse_second(tables, space.key, space.status)
    tables["spaces"].update({"space_id": space_id}, {"status": space.status})
    return True

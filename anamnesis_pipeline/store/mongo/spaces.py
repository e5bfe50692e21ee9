"""The embedding spaces in MongoDB.

Collections and search indexes are no part of a transaction. So a space is `ADDING` until all that it has is made, and
`DROPPED` until all of it is gone; who adds or drops a space next goes on where a crash left another one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch, SpaceConflict
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.mongo import pending
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.schema import INDEXES_OF_SPACES
from anamnesis_pipeline.store.mongo.space_docs import (
    ADDING,
    DROPPED,
    SPACE_FIELDS,
    SpaceDoc,
    find_space,
    read_doc,
    read_space,
    space_fields,
    space_with_status,
    tokens_name,
    vectors_name,
)

PROJECTION = np.dtype("<f4")
EPISODES_PER_STEP = 2_000
"""Episodes of which one transaction notes that they lack all vectors of a new space."""


@dataclass(frozen=True, slots=True)
class SpaceIndexes:
    """The search indexes of spaces: `ask` for one where it is missing, and whether one `answers` by now."""

    ask: Callable[[SpaceDoc], None]
    answers: Callable[[SpaceDoc], bool]


class MongoSpaces:
    """See `SpaceRecords`."""

    def __init__(self, database: Database, indexes: SpaceIndexes) -> None:
        self._database = database
        self._indexes = indexes

    def put(self, space: Space) -> bool:
        """See `SpaceRecords.put`."""
        self.finish_drops()
        claimed = self._database.write(lambda tables: self._claim(tables, space))
        if claimed is None:
            return False
        self._database.read(lambda tables: make_collections(tables, space.key))
        self._indexes.ask(claimed)
        try:
            return self._fill(claimed.space_id, space)
        except SpaceConflict:  # another one is active, or building, by now: nobody would go on with this one
            self._give_up(claimed.space_id)
            raise

    def all(self) -> list[Space]:
        """See `SpaceRecords.all`."""
        shown = {"status": {"$nin": [ADDING, DROPPED]}}
        found = self._database.read(lambda tables: tables["spaces"].find(shown, SPACE_FIELDS, order=[("_id", 1)]))
        return list(map(read_space, found))

    def active(self) -> Space | None:
        """See `SpaceRecords.active`."""
        return self._database.read(lambda tables: space_with_status(tables, "active"))

    def start(self, key: str) -> None:
        """See `SpaceRecords.start`."""

        def work(tables: Tables) -> None:
            space = find_space(tables, key)
            if space.status == "building":
                raise SpaceConflict(f"space {key} is being embedded already; wait for it, or stop it first")
            if space.status == "active":
                raise SpaceConflict(f"space {key} is active already; to embed anew, add a new generation of its model")
            _refuse_a_second(tables, key, "building")
            _set(tables, space.space_id, {"status": "building"})

        self._database.write(work)

    def stop(self, key: str, status: str = "added") -> None:
        """See `SpaceRecords.stop`."""
        building = {"key": key, "status": "building"}
        self._database.write(lambda tables: tables["spaces"].update(building, {"$set": {"status": status}}))

    def record_precision(self, key: str, precision: str, fidelity: float | None) -> None:
        """See `SpaceRecords.record_precision`."""

        def work(tables: Tables) -> None:
            space = find_space(tables, key)
            if not tables[vectors_name(key)].has({}):
                _set(tables, space.space_id, {"precision": precision, "fidelity": fidelity})

        self._database.write(work)

    def keep_projection(self, key: str, projection: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `SpaceRecords.keep_projection`."""
        matrix = np.ascontiguousarray(projection, dtype=PROJECTION)

        def work(tables: Tables) -> None:
            space = find_space(tables, key)
            if matrix.ndim != 2 or matrix.shape[1] != space.token_dims:
                raise DimensionMismatch(
                    f"space {key} holds {space.token_dims}-d token vectors and was given a projection of {matrix.shape}"
                )
            unset = {"_id": space.space_id, "projection": None}
            tables["spaces"].update(unset, {"$set": {"projection": matrix.tobytes()}})

        self._database.write(work)
        kept = self.projection(key)
        return matrix.astype(np.float32) if kept is None else kept

    def projection(self, key: str) -> NDArray[np.float32] | None:
        """See `SpaceRecords.projection`."""

        def work(tables: Tables) -> tuple[SpaceDoc, Document | None]:
            space = find_space(tables, key)
            return space, tables["spaces"].one({"_id": space.space_id}, ("projection",))

        space, found = self._database.read(work)
        if found is None or found["projection"] is None:
            return None
        return np.frombuffer(found["projection"], PROJECTION).astype(np.float32).reshape(-1, space.token_dims)

    def activate(self, key: str, *, only_from: str | None = None) -> bool:
        """See `SpaceRecords.activate`. Over another space it switches only once the new one's index answers."""
        space = self._database.read(lambda tables: _to_be_indexed(tables, key, only_from))
        if space is not None and not self._indexes.answers(space):
            return False
        return self._database.write(lambda tables: _switch(tables, key, only_from))

    def drop(self, key: str) -> None:
        """See `SpaceRecords.drop`."""

        def work(tables: Tables) -> None:
            found = tables["spaces"].one({"key": key}, ("_id", "status"))
            if found is not None and found["status"] == "active":
                raise SpaceConflict(f"space {key} is active and answers the searches; activate another one first")
            if found is not None:
                _set(tables, found["_id"], {"status": DROPPED})

        self._database.write(work)
        self.finish_drops()

    def _claim(self, tables: Tables, space: Space) -> SpaceDoc | None:
        """Begin to add a space, or go on where another process did not; None when it is there."""
        found = tables["spaces"].one({"key": space.key}, ("_id", "status"))
        if found is not None and found["status"] == DROPPED:
            raise SpaceConflict(f"space {space.key} is being dropped; add it again when that is done")
        if found is not None and found["status"] != ADDING:
            return None
        _refuse_a_second(tables, space.key, space.status)
        fields = {**space_fields(space), "status": ADDING}
        if found is not None:
            _set(tables, found["_id"], fields)
            return read_doc({**fields, "_id": found["_id"]})
        self._drop_collections(space.key)
        rest = {"_id": tables.next_number("spaces"), "projection": None, "last_episode": None, "written_at": None}
        tables["spaces"].insert([{**fields, **rest}])
        return read_doc({**fields, **rest})

    def _fill(self, space_id: int, space: Space) -> bool:
        """Expect everything that is stored, in steps, and show the space with the last one. False when another process
        was faster, or dropped it.
        """
        done: str | bool = ""
        while isinstance(done, str):
            done = self._database.write(partial(_expect_more, space_id=space_id, space=space, after=done))
        return done

    def _give_up(self, space_id: int) -> None:
        adding = {"_id": space_id, "status": ADDING}
        self._database.write(lambda tables: tables["spaces"].update(adding, {"$set": {"status": DROPPED}}))
        self.finish_drops()

    def finish_drops(self) -> None:
        """Remove what dropped spaces had, of drops that were interrupted too."""
        dropped = self._database.read(lambda tables: tables["spaces"].find({"status": DROPPED}, ("_id", "key")))
        for each in dropped:
            self._database.read(partial(_delete, name="pending", where={"space_id": each["_id"]}))
            self._database.write(partial(self._remove, dropped=each))

    def _remove(self, tables: Tables, dropped: Document) -> None:
        if tables["spaces"].delete({"_id": dropped["_id"], "status": DROPPED}):
            self._drop_collections(dropped["key"])

    def _drop_collections(self, key: str) -> None:
        """Called in the writer's turn, so that nobody adds the key, or writes its vectors, before they are gone. A drop
        is outside of the transaction, and waits for none that has not touched the collection.
        """
        for name in (vectors_name(key), tokens_name(key)):
            self._database.read(partial(_drop, name=name))


def _expect_more(tables: Tables, space_id: int, space: Space, after: str) -> str | bool:
    """The id of the last episode that vectors are expected of by now; True when it was the last of all and the space is
    shown; False when there is nothing to do any more.
    """
    if not tables["spaces"].has({"_id": space_id, "status": ADDING}):
        return False
    last = pending.expect_everything(tables, space_id, after=after, limit=EPISODES_PER_STEP)
    if last is not None:
        return last
    _refuse_a_second(tables, space.key, space.status)
    _set(tables, space_id, {"status": space.status})
    return True


def _drop(tables: Tables, name: str) -> None:
    tables[name].drop()


def _delete(tables: Tables, name: str, where: Filter) -> None:
    tables[name].delete(where)


def make_collections(tables: Tables, key: str) -> None:
    """Make what a space keeps its vectors in, where it is missing; outside of any transaction."""
    tables[vectors_name(key)].make(INDEXES_OF_SPACES["vectors_"])
    tables[tokens_name(key)].make(INDEXES_OF_SPACES["tokens_"])


def _to_be_indexed(tables: Tables, key: str, only_from: str | None) -> SpaceDoc | None:
    """The space, if all that it waits for to take over from another one may be its search index."""
    space = find_space(tables, key)
    if space.status == "active" or (only_from is not None and space.status != only_from):
        return None
    if space_with_status(tables, "active") is None or not pending.is_empty(tables, space.space_id):
        return None
    return space


def _switch(tables: Tables, key: str, only_from: str | None) -> bool:
    space = find_space(tables, key)
    if only_from is not None and space.status != only_from:
        return False
    if space.status == "active":
        return True
    has_active = space_with_status(tables, "active") is not None
    if has_active and not pending.is_empty(tables, space.space_id):
        return False
    tables["spaces"].update({"status": "active"}, {"$set": {"status": "retired"}})
    _set(tables, space.space_id, {"status": "active"})
    return True


def _set(tables: Tables, space_id: int, fields: Document) -> None:
    tables["spaces"].update({"_id": space_id}, {"$set": fields})


def _refuse_a_second(tables: Tables, key: str, status: str) -> None:
    """Only one space at a time is active, and one building."""
    if status not in ("active", "building"):
        return
    if (other := space_with_status(tables, status)) is not None and other.key != key:
        raise SpaceConflict(f"space {key} cannot be {status} while {other.key} is; wait for that one, or stop it first")

"""The embedding spaces, and which one answers searches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch, SpaceConflict, SpaceNotFound
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables
from anamnesis_pipeline.store.values import instant

ADDING, DROPPED = "adding", "dropped"
"""Statuses of a space while an engine makes what it needs, and while it removes that. The space is hidden meanwhile."""
SHOWN: Match = {"$and": [{"status": {"$ne": ADDING}}, {"status": {"$ne": DROPPED}}]}
SPACE_FIELDS = tuple(
    """key model_id dim generation query_prefix passage_prefix pooling precision fidelity variants token_dims
    token_variant status""".split()
)
STORED_FIELDS = ("space_id", "key", "dim", "status", "token_dims", "variants")
PROJECTION = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class StoredSpace:
    """What the vectors of a space are found by."""

    space_id: int
    key: str
    dim: int
    status: str
    token_dims: int
    variants: tuple[Variant, ...]


def read_space(row: Row) -> Space:
    """Return the space of a row with `SPACE_FIELDS`."""
    fields = {name: row[name] for name in SPACE_FIELDS}
    fields["variants"] = tuple(map(Variant, row["variants"]))
    fields["token_variant"] = Variant(row["token_variant"])
    return Space(**fields)


def space_row(space: Space) -> Row:
    """Return the fields of a space as they are stored."""
    variants = list(map(str, space.variants))
    fields = {name: getattr(space, name) for name in SPACE_FIELDS}
    return {**fields, "variants": variants, "token_variant": str(space.token_variant)}


def find_space(tables: Tables, key: str) -> StoredSpace:
    """Return the space of this key.

    :raises SpaceNotFound: there is none.
    """
    row = tables["spaces"].one({"key": key}, STORED_FIELDS)
    if row is None or row["status"] in (ADDING, DROPPED):
        known = tables["spaces"].find(SHOWN, ["key"], order=["space_id"])
        raise space_not_found(key, [each["key"] for each in known])
    return StoredSpace(**{**row, "variants": tuple(map(Variant, row["variants"]))})


def space_not_found(key: str, known: Sequence[str]) -> SpaceNotFound:
    """Return the error for a key that no space has."""
    return SpaceNotFound(
        f"no space {key}, it was never added or was dropped; known are: {', '.join(known) or 'none yet'}"
    )


class SpaceRecords(ABC):
    """The embedding spaces. An engine makes and removes what the vectors of a space are kept in."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @abstractmethod
    def put(self, space: Space) -> bool:
        """Add a space that lacks all vectors. Return False when the key exists; that space is unchanged.

        :raises SpaceConflict: it is to be active or building, and another one is.
        """

    @abstractmethod
    def drop(self, key: str) -> None:
        """Delete a space that is not active, with its vectors and index.

        :raises SpaceConflict: it is active.
        """

    @abstractmethod
    def _has_vectors(self, tables: Any, space: StoredSpace) -> bool:
        """Tell whether the space has any vector."""

    def all(self) -> list[Space]:
        """Return every space, oldest first."""
        with self._gateway.read() as tables:
            return list(map(read_space, tables["spaces"].find(SHOWN, SPACE_FIELDS, order=["space_id"])))

    def active(self) -> Space | None:
        """Return the space that answers searches."""
        with self._gateway.read() as tables:
            row = tables["spaces"].one({"status": "active"}, SPACE_FIELDS)
        return None if row is None else read_space(row)

    def start(self, key: str) -> None:
        """Make an `added` or `retired` space the one that is `building`.

        :raises SpaceConflict: another one is building, or this one is building or active.
        :raises SpaceNotFound: there is no such space.
        """

        def work(tables: Tables) -> None:
            space = find_space(tables, key)
            if space.status == "building":
                raise SpaceConflict(f"space {key} is being embedded already; wait for it, or stop it first")
            if space.status == "active":
                raise SpaceConflict(f"space {key} is active already; to embed again, add a new generation of its model")
            refuse_second(tables, key, "building")
            tables["spaces"].update({"space_id": space.space_id}, {"status": "building"})

        self._gateway.write(work)

    def stop(self, key: str, status: str = "added") -> None:
        """Make a `building` space `added` again, or `retired`; its vectors stay. Leave any other space unchanged."""
        building = {"key": key, "status": "building"}
        self._gateway.write(lambda tables: tables["spaces"].update(building, {"status": status}))

    def record_precision(self, key: str, precision: str, fidelity: float | None) -> None:
        """Note in which arithmetic the space's vectors are made, and how close that is to fp32. Once it has vectors,
        that does not change.
        """

        def work(tables: Tables) -> None:
            space = find_space(tables, key)
            if not self._has_vectors(tables, space):
                change = {"precision": precision, "fidelity": fidelity}
                tables["spaces"].update({"space_id": space.space_id}, change)

        self._gateway.write(work)

    def keep_projection(self, key: str, projection: NDArray[np.float32]) -> NDArray[np.float32]:
        """Store the projection of the space's token vectors, shape (width, token_dims), unless it has one. Return the
        stored one.

        :raises DimensionMismatch: it has another width than the space's token vectors.
        :raises SpaceNotFound: there is no such space.
        """
        matrix = np.ascontiguousarray(projection, dtype=PROJECTION)

        def work(tables: Tables) -> None:
            space = find_space(tables, key)
            if matrix.ndim != 2 or matrix.shape[1] != space.token_dims:
                raise DimensionMismatch(
                    f"space {key} holds {space.token_dims}-d token vectors and was given a projection of {matrix.shape}"
                )
            unset = {"space_id": space.space_id, "projection": None}
            tables["spaces"].update(unset, {"projection": matrix.tobytes()})

        self._gateway.write(work)
        kept = self.projection(key)
        return matrix.astype(np.float32) if kept is None else kept

    def projection(self, key: str) -> NDArray[np.float32] | None:
        """Return what `keep_projection` stored; None before.

        :raises SpaceNotFound: there is no such space.
        """
        with self._gateway.read() as tables:
            space = find_space(tables, key)
            row = tables["spaces"].one({"space_id": space.space_id}, ["projection"])
        if row is None or row["projection"] is None:
            return None
        return np.frombuffer(row["projection"], PROJECTION).astype(np.float32).reshape(-1, space.token_dims)

    def activate(self, key: str, *, only_from: str | None = None) -> bool:
        """Let a space answer searches, if nothing lacks a vector there or no space is active yet. The one active before
        becomes `retired`. Return False when something is still missing.

        :param only_from: the status in which the caller saw the space; False when it has another by now.
        :raises SpaceNotFound: there is no such space.
        """

        def work(tables: Tables) -> bool:
            space = find_space(tables, key)
            if only_from is not None and space.status != only_from:
                return False
            if space.status == "active":
                return True
            if tables["spaces"].has({"status": "active"}) and lacks_vectors(tables, space):
                return False
            tables["spaces"].update({"status": "active"}, {"status": "retired"})
            tables["spaces"].update({"space_id": space.space_id}, {"status": "active"})
            return True

        return self._gateway.write(work)


def note_checkpoint(tables: Tables, space_id: int, numbers: Sequence[int]) -> None:
    """Name the last of these episodes that lacks nothing now; while all lack something, the older one stays named."""
    pending = tables["pending"].among("number", numbers, ["number"], space_id=space_id)
    lacking = {row["number"] for row in pending}
    complete = [number for number in numbers if number not in lacking]
    if complete and (last := tables["episodes"].one({"number": complete[-1]}, ["episode_id"])):
        reached = {"last_episode": last["episode_id"], "written_at": instant(datetime.now(UTC))}
        tables["spaces"].update({"space_id": space_id}, reached)


def lacks_vectors(tables: Tables, space: StoredSpace) -> bool:
    """Tell whether any passage lacks a vector in the space."""
    return tables["pending"].has({"space_id": space.space_id})


def droppable(tables: Tables, key: str) -> int | None:
    """Return the number of a space that may be dropped; None: there is none.

    :raises SpaceConflict: it is active.
    """
    found = tables["spaces"].one({"key": key}, ["space_id", "status"])
    if found is not None and found["status"] == "active":
        raise SpaceConflict(f"space {key} is active and answers the searches; activate another one first")
    return None if found is None else int(found["space_id"])


def refuse_second(tables: Tables, key: str, status: str) -> None:
    """Raise SpaceConflict if another space than `key` has a status that one space at a time may have."""
    if status not in ("active", "building"):
        return
    other = tables["spaces"].one({"status": status}, ["key"])
    if other is not None and other["key"] != key:
        raise SpaceConflict(
            f"space {key} cannot be {status} while {other['key']} is; wait for that one, or stop it first"
        )

"""Ordinary indexes: which are there, which are wanted, and how the one becomes the other."""

import time
from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.collection import Collection as DriverCollection
from pymongo.errors import OperationFailure

_NOT_FOUND, _OTHER_OPTIONS, _OTHER_KEYS, _BUILD_ABORTED = 27, 85, 86, 276
_MEANWHILE = {_NOT_FOUND, _OTHER_OPTIONS, _OTHER_KEYS, _BUILD_ABORTED}
"""What another process that starts at the same time causes (https://www.mongodb.com/docs/manual/reference/error-codes/)."""
ATTEMPTS, PAUSE_S = 10, 0.5


@dataclass(frozen=True, slots=True)
class Index:
    """An index over some fields; `-` before a name means descending. Its name is made of theirs, as the driver does.

    `where`: of a partial one; see https://www.mongodb.com/docs/manual/core/index-partial/ for what may stand there.
    """

    fields: tuple[str, ...]
    unique: bool = False
    where: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """E.g. `source_1_ended_at_-1`."""
        return "_".join(f"{name}_{direction}" for name, direction in self.keys())

    def keys(self) -> list[tuple[str, int]]:
        """As the driver takes them."""
        return [(name.removeprefix("-"), DESCENDING if name.startswith("-") else ASCENDING) for name in self.fields]

    def model(self) -> IndexModel:
        """As the driver makes it."""
        partial = {"partialFilterExpression": self.where} if self.where else {}
        return IndexModel(self.keys(), name=self.name, unique=self.unique, **partial)

    def is_like(self, found: Mapping[str, Any]) -> bool:
        """Whether one that `listIndexes` tells of does the same, whatever its name."""
        told = (list(found["key"].items()), bool(found.get("unique")), found.get("partialFilterExpression", {}))
        return told == (self.keys(), self.unique, self.where) and not found.get("sparse")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, the drops first, since a name can only stand for one index."""

    drop: list[str]
    make: list[Index]


def plan(found: Sequence[Mapping[str, Any]], wanted: Sequence[Index], former: Some[str]) -> Plan:
    """What makes the indexes of a collection those that are wanted. Pure.

    :param found: as `listIndexes` tells of them.
    :param former: names of those that an earlier version made; other unwanted ones are somebody else's, and stay.
    """
    make = [index for index in wanted if not any(index.is_like(each) for each in found)]
    there = [each["name"] for each in found]
    in_the_way = {index.name for index in make}
    gone = set(former) - {index.name for index in wanted}
    return Plan([name for name in there if name in in_the_way | gone], make)


def bring_about(collection: DriverCollection[dict[str, Any]], wanted: Sequence[Index], former: Some[str]) -> None:
    """Let a collection have the indexes that are wanted, and none of the former ones that are not."""
    for left in reversed(range(ATTEMPTS)):
        todo = plan(list(collection.list_indexes()), wanted, former)
        try:
            for name in todo.drop:
                collection.drop_index(name)
            if todo.make:
                collection.create_indexes([index.model() for index in todo.make])
        except OperationFailure as exc:
            if exc.code not in _MEANWHILE or not left:
                raise
            time.sleep(PAUSE_S)
        else:
            return

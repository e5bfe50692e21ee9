"""The collections: their fields, the validator that the server checks documents with on every write, and their indexes.

A collection has the name and the fields of its table in `store/tables.py`. What differs stands here: `_id` is the id of
episodes and the number of passages and spaces, `EXTRA` are fields kept beside those, and `OWN` the collections of this
engine alone. `vectors_<space>` and `tokens_<space>` hold the vectors of a space by passage. Fields beyond these are let
through, so that a newer version may write more (https://www.mongodb.com/docs/manual/core/schema-validation/).
"""

import time
from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.collection import Collection as DriverCollection
from pymongo.errors import OperationFailure

from anamnesis_pipeline.store import tables
from anamnesis_pipeline.store.tables import BY_NAME, TEXT, Table, by, table

# --- fields ----------------------------------------------------------------------------------------------

IDS = {"episodes": "episode_id", "passages": "passage_id", "spaces": "space_id"}
"""Fields of `tables.py` that are the `_id` of their documents."""

_FACETS = "source, instance, project, kind, status, session_id, layer, tags texts, at int, read_often flag"
EXTRA = {
    "episodes": table("episodes", "number int", _FACETS),
    "passages": table("passages", "passage_id int", f"seq int, terms, text_unspaced, context_unspaced, {_FACETS}"),
    "pending": table("pending", "space_id int, number int", "episode_id"),
    "spaces": table("spaces", "space_id int", "index_recall real"),
}
"""Fields that only this engine keeps, made from others: what filters read (`facets.py`)."""
OWN = {
    "counters": table("counters", "_id", "next int, at date"),
    "writer": table("writer", "_id", "turn int"),
    "store": table("store", "_id", "version int"),
}
"""Collections of this engine alone (`client.py`)."""
OF_SPACES = {
    "vectors_": table(
        "vectors_",
        "_id int",
        f"seq int, episode_id, text bytes, context bytes, {_FACETS}",
        [by("seq"), by("episode_id")],
    ),
    "tokens_": table("tokens_", "_id int", "tokens int, data bytes", [by("tokens")]),
}
"""Collections of a space, by the beginning of their names (`spaces.py`). A passage has a vector of each variant
written so far.
"""
_MAY_BE_MISSING = {
    "passages": {"text_unspaced", "context_unspaced"},
    "spaces": {"index_recall"},
    "counters": {"at"},
    "vectors_": {"text", "context"},
}

_WHOLE = ["int", "long"]  # the driver writes a number as the shorter one that holds it
_TYPES: Mapping[str, list[str]] = {
    "text": ["string"],
    "texts": ["array"],
    "int": _WHOLE,
    "flag": _WHOLE,
    "real": [*_WHOLE, "double"],
    "bytes": ["binData"],
    "date": ["date"],
}


def vectors_name(space_key: str) -> str:
    """Return the collection of a space's vectors."""
    return f"vectors_{space_key}"


def tokens_name(space_key: str) -> str:
    """Return the collection of a space's token vectors."""
    return f"tokens_{space_key}"


def seq_counter(collection: str) -> str:
    """Return the counter that `seq` of a collection is taken from: `passages`, or one of vectors."""
    return f"{collection}_seq"


def declared(name: str) -> Table:
    """Return the fields and indexes that `tables.py` or `OWN` declare for a collection.

    :raises KeyError: there is no such collection of ours.
    """
    beginning = next((each for each in OF_SPACES if name.startswith(each)), "")
    return OF_SPACES[beginning] if beginning else BY_NAME.get(name) or OWN[name]


def validator_of(name: str) -> dict[str, Any]:
    """Return the validator of a collection, as `create` and `collMod` take it.

    :raises KeyError: there is no such collection of ours.
    """
    table = declared(name)
    flags = dict.fromkeys(table.flags, "flag")
    kinds = {**table.kinds, **flags, **(EXTRA[name].kinds if name in EXTRA else {})}
    named = {"_id" if field == IDS.get(name) else field: kind for field, kind in kinds.items()}
    required = sorted(named.keys() - _MAY_BE_MISSING.get(table.name, set()))
    properties: dict[str, Any] = {}
    for field, kind in named.items():
        types = [*_TYPES[kind.rstrip("?")], *(["null"] if kind.endswith("?") else [])]
        limits = {"minimum": 0, "maximum": 1} if kind == "flag" else {}
        properties[field] = {"bsonType": types[0] if len(types) == 1 else types, **limits}
        if kind == "texts":
            properties[field]["items"] = {"bsonType": "string"}
    return {"$jsonSchema": {"bsonType": "object", "required": required, "properties": properties}}


# --- indexes ---------------------------------------------------------------------------------------------

_NOT_FOUND, _OTHER_OPTIONS, _OTHER_KEYS, _BUILD_ABORTED = 27, 85, 86, 276
_MEANWHILE = {_NOT_FOUND, _OTHER_OPTIONS, _OTHER_KEYS, _BUILD_ABORTED}
"""What another process that starts at the same time causes (https://www.mongodb.com/docs/manual/reference/error-codes/)."""
ATTEMPTS, PAUSE_S = 10, 0.5
IS_TEXT = {"$type": "string"}
"""`tables.TEXT` as queries of this engine have it: a partial index serves those with its very terms."""


_OWN_INDEXES = {
    "files": [by("incomplete source path", {"incomplete": 1}), by("source", {"to_parse": 1})],
    "passages": [by("seq")],
    "pending": [
        by("space_id episode_id", unique=True),
        by("space_id number"),
        by("episode_id"),
    ],
}
"""Indexes over the fields that only this engine keeps."""
_WITHOUT_KEY = {*IDS, "pending", "store_secret", *OWN, *OF_SPACES}
"""Collections whose key in `tables.py` needs no unique index here: `_id` or another one is."""


@dataclass(frozen=True, slots=True)
class Index(tables.Index):
    """An index with the field names of documents. Its name is made of theirs, as the driver does.

    `where`: see https://www.mongodb.com/docs/manual/core/index-partial/ for what may stand there.
    """

    @property
    def name(self) -> str:
        """E.g. `source_1_ended_at_-1`."""
        return "_".join(f"{name}_{direction}" for name, direction in self.keys())

    def keys(self) -> list[tuple[str, int]]:
        """As the driver takes them."""
        return [(name.removeprefix("-"), DESCENDING if name.startswith("-") else ASCENDING) for name in self.fields]

    def model(self) -> IndexModel:
        """As the driver makes it."""
        partial = {"partialFilterExpression": dict(self.where)} if self.where else {}
        return IndexModel(self.keys(), name=self.name, unique=self.unique, **partial)

    def is_like(self, found: Mapping[str, Any]) -> bool:
        """Whether one that `listIndexes` tells of does the same under another name."""
        told = (list(found["key"].items()), bool(found.get("unique")), found.get("partialFilterExpression", {}))
        return told == (self.keys(), self.unique, self.where) and not found.get("sparse")


def indexes_of(name: str) -> list[Index]:
    """Return the indexes of a collection, with the field names of its documents."""
    table, own = declared(name), IDS.get(name)
    key = [] if name in _WITHOUT_KEY else [by(" ".join(table.key), unique=True)]
    number = [by("number")] if name == "episodes" else []
    found = []
    for index in (*key, *number, *_OWN_INDEXES.get(name, ()), *table.indexes):
        fields = tuple("-_id" if field == f"-{own}" else "_id" if field == own else field for field in index.fields)
        where = {field: IS_TEXT if wanted == TEXT else wanted for field, wanted in index.where.items()}
        found.append(Index(fields, index.unique, where))
    return found


COLLECTIONS: dict[str, Sequence[Index]] = {name: indexes_of(name) for name in (*BY_NAME, *OWN)}

INDEXES_OF_SPACES: dict[str, Sequence[Index]] = {name: indexes_of(name) for name in OF_SPACES}
"""By the beginning of the names of a space's collections (`spaces.py`)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, the drops first, since a name can only stand for one index."""

    drop: list[str]
    make: list[Index]


def plan(found: Sequence[Mapping[str, Any]], wanted: Sequence[Index], former: Some[str]) -> Plan:
    """What makes the indexes of a collection those that are wanted. Pure.

    :param found: as `listIndexes` tells of them.
    :param former: names of those that an earlier version made; other unwanted ones are not ours, and stay.
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

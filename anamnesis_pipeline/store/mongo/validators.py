"""The fields of each collection, and the validator that the server checks documents with on every write. Pure.

Fields beyond these are let through, so that a newer version may write more.
https://www.mongodb.com/docs/manual/core/schema-validation/
"""

from collections.abc import Mapping
from typing import Any

from anamnesis_pipeline.store.tables import BY_NAME, Table, table

IDS = {"episodes": "episode_id", "passages": "passage_id", "spaces": "space_id"}
"""Fields of `tables.py` that are the `_id` of their documents."""

_FACETS = "source, instance, project, kind, status, session_id, layer, tags texts, at int, read_often flag"
EXTRA = {
    "episodes": table("episodes", "number int", _FACETS),
    "passages": table("passages", "passage_id int", f"seq int, terms, text_unspaced, context_unspaced, {_FACETS}"),
    "pending": table("pending", "space_id int, number int", "episode_id"),
    "spaces": table("spaces", "space_id int", "index_recall real"),
}
"""Fields that only this engine keeps, made from others: what filters read (`facets.py`).
"""
OWN = {
    "counters": table("counters", "_id", "next int, at date"),
    "writer": table("writer", "_id", "turn int"),
    "store": table("store", "_id", "version int"),
}
"""Collections of this engine alone (`client.py`)."""
OF_SPACES = {
    "vectors_": table("vectors_", "_id int", f"seq int, episode_id, text bytes, context bytes, {_FACETS}"),
    "tokens_": table("tokens_", "_id int", "tokens int, data bytes"),
}
"""Collections of a space, by the beginning of their names (`space_docs.py`). A passage has a vector of each variant
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
    "int": _WHOLE,
    "flag": _WHOLE,
    "real": [*_WHOLE, "double"],
    "bytes": ["binData"],
    "date": ["date"],
}


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
    properties = {field: _type(kind) for field, kind in named.items()}
    return {"$jsonSchema": {"bsonType": "object", "required": required, "properties": properties}}


def _type(kind: str) -> dict[str, Any]:
    """Return the schema of a field of this type (`tables.KINDS`)."""
    if kind == "texts":
        return {"bsonType": "array", "items": {"bsonType": "string"}}
    types = [*_TYPES[kind.rstrip("?")], *(["null"] if kind.endswith("?") else [])]
    limits = {"minimum": 0, "maximum": 1} if kind == "flag" else {}
    return {"bsonType": types[0] if len(types) == 1 else types, **limits}

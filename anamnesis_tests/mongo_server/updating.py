"""Updates: replacements, operators and pipelines, compiled once and applied to copies.

https://www.mongodb.com/docs/manual/reference/operator/update/
"""

from collections.abc import Callable, Mapping
from typing import Any

from bson import ObjectId

from anamnesis_tests.mongo_server.matching import is_operators
from anamnesis_tests.mongo_server.paths import changed, exact, set_value, split
from anamnesis_tests.mongo_server.projection import compile_add, compile_projection, compile_unset, replaced
from anamnesis_tests.mongo_server.refusals import Refusal, failed_to_parse, not_supported
from anamnesis_tests.mongo_server.update_operators import OPERATORS
from anamnesis_tests.mongo_server.values import MISSING, Document, key_of, type_name

Change = Callable[[Document, bool], Document]
"""A document, and whether it is being inserted by an upsert, to what becomes of it."""

_STAGES: dict[str, Callable[[Any], Any]] = {
    "$set": compile_add,
    "$addFields": compile_add,
    "$unset": compile_unset,
    "$project": compile_projection,
    "$replaceRoot": lambda given: replaced(given["newRoot"], "$replaceRoot"),
    "$replaceWith": lambda given: replaced(given, "$replaceWith"),
}


def compile_update(update: Any, *, multi: bool = False) -> Change:
    """What an update makes of a document.

    :raises Refusal: an operator is unknown or misused, or two of them change one path.
    """
    if isinstance(update, list):
        return _pipeline(update)
    if not isinstance(update, Mapping):
        raise failed_to_parse("Update argument must be either an object or an array")
    if not update or not next(iter(update)).startswith("$"):
        if multi:
            raise failed_to_parse("multi update is not supported for replacement-style update")
        return _replacement(update)
    return _operators(update)


def is_replacement(update: Any) -> bool:
    """Whether an update gives the new document itself."""
    return isinstance(update, Mapping) and not is_operators(update)


def _replacement(update: Mapping[str, Any]) -> Change:
    new = dict(update)
    for name in new:
        if name.startswith("$"):
            raise Refusal(
                52, f"The dollar ($) prefixed field '{name}' in '{name}' is not allowed in an update replacement"
            )

    def change(document: Document, _: bool) -> Document:
        if "_id" in document and "_id" not in new:
            return {"_id": document["_id"], **new}
        return _same_id(document, new)

    return change


def _same_id(old: Document, new: Document) -> Document:
    if "_id" in old and ("_id" not in new or key_of(old["_id"]) != key_of(new["_id"])):
        raise Refusal(66, "Performing an update on the path '_id' would modify the immutable field '_id'")
    return new


def _pipeline(stages: list[Any]) -> Change:
    shapes = []
    for stage in stages:
        if not isinstance(stage, Mapping) or len(stage) != 1:
            raise Refusal(40323, "A pipeline stage specification object must contain exactly one field.")
        name, given = next(iter(stage.items()))
        if name not in _STAGES:
            raise Refusal(72, f"{name} is not allowed to be used within an update")
        shapes.append(_STAGES[name](given))

    def change(document: Document, _: bool) -> Document:
        new = document
        for shape in shapes:
            new = shape(new, {})
        if "_id" in document and "_id" not in new:
            new = {"_id": document["_id"], **new}
        return _same_id(document, new)

    return change


def _operators(update: Mapping[str, Any]) -> Change:
    renames = list(_fields(update.get("$rename", {})).items())
    changes = [
        (_parts(path), _maker(operator)(operand, path), operator == "$setOnInsert", path)
        for operator, fields in update.items()
        if operator != "$rename"
        for path, operand in _fields(fields).items()
    ]
    _refuse_conflicts([path for *_, path in changes] + [path for pair in renames for path in pair])

    def change(document: Document, inserting: bool) -> Document:
        new = document
        for parts, make, only_inserting, _ in changes:
            if inserting or not only_inserting:
                new = changed(new, parts, make)
        for pair in renames:
            new = _renamed(new, *pair)
        return _same_id(document, new)

    return change


def _maker(operator: str) -> Callable[[Any, str], Callable[[Any], Any]]:
    if operator == "$setOnInsert":
        return OPERATORS["$set"]
    if operator not in OPERATORS:
        raise failed_to_parse(
            f"Unknown modifier: {operator}. Expected a valid update modifier or pipeline-style update"
        )
    return OPERATORS[operator]


def _fields(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise failed_to_parse(f"Modifiers operate on fields but we found type {type_name(given)} instead.")
    return given


def _renamed(document: Document, old: str, new: str) -> Document:
    value = exact(document, old.split("."))
    if value is MISSING:
        return document
    return set_value(changed(document, old.split("."), lambda _: MISSING), new, value)


def _parts(path: str) -> list[str]:
    parts = split(path)
    if any(part.startswith("$") for part in parts):
        raise not_supported(f"the positional operator in {path!r}")
    return parts


def _refuse_conflicts(paths: list[str]) -> None:
    seen: set[str] = set()
    for path in sorted(paths):
        if path in seen or any(path.startswith(f"{other}.") for other in seen):
            raise Refusal(40, f"Updating the path '{path}' would create a conflict at '{path}'")
        seen.add(path)


def seed(where: Mapping[str, Any]) -> Document:
    """What an upsert begins with: the values that its filter demands.

    :raises Refusal: it demands two values of one field.
    """
    found: Document = {}
    for name, condition in where.items():
        if name == "$and":
            for clause in condition:
                for path, value in seed(clause).items():
                    found = _put(found, path, value)
        elif name.startswith("$"):
            continue
        elif not is_operators(condition):
            found = _put(found, name, condition)
        elif "$eq" in condition:
            found = _put(found, name, condition["$eq"])
        elif "$in" in condition and len(condition["$in"]) == 1:
            found = _put(found, name, condition["$in"][0])
    return found


def _put(document: Document, path: str, value: Any) -> Document:
    if exact(document, path.split(".")) is not MISSING:
        raise Refusal(54, f"cannot infer query fields to set, path '{path}' is matched twice")
    return set_value(document, path, value)


def upserted(where: Mapping[str, Any], change: Change, replacement: bool) -> Document:
    """The document that an upsert inserts, `_id` first."""
    start = seed(where)
    if replacement:
        start = {"_id": start["_id"]} if "_id" in start else {}
    new = change(start, True)
    return with_id(new)


def with_id(document: Document) -> Document:
    """A document with an `_id`, which comes first."""
    if "_id" not in document:
        return {"_id": ObjectId(), **document}
    if next(iter(document)) == "_id":
        return document
    return {"_id": document["_id"], **{name: value for name, value in document.items() if name != "_id"}}

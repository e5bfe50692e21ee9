"""The grammar of updates: https://www.mongodb.com/docs/v8.0/reference/operator/update/."""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.grammar_queries import predicate
from anamnesis_tests.mongo_server.grammar_shapes import (
    MANUAL,
    Problems,
    Shape,
    a_document,
    an_array,
    anything,
    number,
    on_page,
    one_of,
)
from anamnesis_tests.mongo_server.grammar_stages import Place, pipeline

UPDATE_PAGE = f"{MANUAL}reference/operator/update/"
_MODIFIERS = frozenset({"$each", "$position", "$slice", "$sort"})


def _date(value: Any, where: str) -> Problems:
    if value is not True and value not in ({"$type": "date"}, {"$type": "timestamp"}):
        yield f"{where} must be true or a type, date or timestamp"


def _pushed(value: Any, where: str) -> Problems:
    modifiers = [name for name in value if name.startswith("$")] if isinstance(value, Mapping) else []
    if not modifiers:
        return
    if "$each" not in modifiers or len(modifiers) != len(value) or set(modifiers) - _MODIFIERS:
        yield f"{where} must have $each, and only modifiers beside it"
        return
    yield from an_array(value["$each"], f"{where}.$each")


def _added_to_set(value: Any, where: str) -> Problems:
    if isinstance(value, Mapping) and any(name.startswith("$") for name in value):
        if value.keys() != {"$each"}:
            yield f"{where} must have $each alone"
        else:
            yield from an_array(value["$each"], f"{where}.$each")


def _pulled(value: Any, where: str) -> Problems:
    if isinstance(value, Mapping):
        operators = any(name.startswith("$") for name in value)
        yield from predicate({"element": value} if operators else value, where)


_OPERATORS: dict[str, Shape] = {
    "$set": anything,
    "$setOnInsert": anything,
    "$unset": anything,
    "$inc": number,
    "$mul": number,
    "$min": anything,
    "$max": anything,
    "$rename": lambda value, where: iter([] if isinstance(value, str) and value else [f"{where} must be a path"]),
    "$currentDate": _date,
    "$addToSet": _added_to_set,
    "$push": _pushed,
    "$pop": one_of(1, -1),
    "$pull": _pulled,
    "$pullAll": an_array,
    "$bit": a_document,
}


def update(value: Any, where: str, *, multi: bool = False) -> Problems:
    """An update by operators, a replacement, or a pipeline."""
    if isinstance(value, list | tuple):
        yield from pipeline(value, where, Place(within="an update"))
        if not value:
            yield f"{where} must not be an empty pipeline ({MANUAL}reference/command/update/)"
        return
    if not isinstance(value, Mapping):
        yield f"{where} must be a document or pipeline, not {value!r:.60} ({UPDATE_PAGE})"
        return
    operators = [name for name in value if name.startswith("$")]
    if not operators:
        if multi:
            yield f"{where}: a replacement cannot go with multi ({MANUAL}reference/command/update/)"
        return
    if len(operators) != len(value):
        yield f"{where} must not mix operators and fields: {', '.join(value)} ({UPDATE_PAGE})"
    for name in operators:
        yield from on_page(f"{UPDATE_PAGE}{name[1:]}/", _operator(name, value[name], f"{where}.{name}"))
    yield from _conflicts(value, where)


def _operator(name: str, value: Any, where: str) -> Problems:
    if name not in _OPERATORS:
        yield f"{where} is no operator of updates"
        return
    if not isinstance(value, Mapping):
        yield f"{where} must be a document of fields, not {value!r:.60}"
        return
    for path, each in value.items():
        parts = path.split(".")
        if not all(parts) or (path.startswith("$") and parts[0] not in ("$", "$[]")):
            yield f"{where}: {path!r} is no path of a field"
        if path == "_id" and name not in ("$set", "$setOnInsert"):
            yield f"{where}: _id cannot change"
        yield from _OPERATORS[name](each, f"{where}.{path}")


def _conflicts(value: Mapping[str, Any], where: str) -> Problems:
    """Two operators must not change one field, or a field and one within it."""
    paths = [path for each in value.values() if isinstance(each, Mapping) for path in each]
    for path in set(paths):
        above = [other for other in set(paths) if path.startswith(f"{other}.")]
        if above or paths.count(path) > 1:
            yield f"{where}: updating {path!r} conflicts with {(above or [path])[0]!r} ({UPDATE_PAGE})"

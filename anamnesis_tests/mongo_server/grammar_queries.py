"""The grammar of query predicates, and of what may stand in the filter of a partial index.

https://www.mongodb.com/docs/v8.0/reference/operator/query/
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from bson import Regex

from anamnesis_tests.mongo_server.grammar_expressions import expression
from anamnesis_tests.mongo_server.grammar_shapes import (
    MANUAL,
    Problems,
    Shape,
    a_document,
    anything,
    array_of,
    flag,
    integer,
    number,
    on_page,
    one_or_array_of,
)

QUERY_PAGE = f"{MANUAL}reference/operator/query/"
PARTIAL_PAGE = f"{MANUAL}core/index-partial/"

_ALIASES = frozenset(
    {
        "double", "string", "object", "array", "binData", "objectId", "bool", "date", "null", "regex", "javascript",
        "int", "timestamp", "long", "decimal", "minKey", "maxKey", "number",
    }
)  # fmt: skip


def _a_type(value: Any, where: str) -> Problems:
    if value not in _ALIASES and not (isinstance(value, int) and (value in range(1, 20) or value in (-1, 127))):
        yield f"{where} must be the name or number of a BSON type, not {value!r}"


def _plain_values(value: Any, where: str) -> Problems:
    """An array of values; no operator may stand among them."""
    yield from array_of(anything)(value, where)
    for each in value if isinstance(value, list | tuple) else ():
        if isinstance(each, Mapping) and any(name.startswith("$") for name in each):
            yield f"{where} must not have operators among its values"


def _comparable(value: Any, where: str) -> Problems:
    if isinstance(value, Regex | re.Pattern):
        yield f"{where} must not be a regular expression"


def _negated(value: Any, where: str) -> Problems:
    if isinstance(value, Regex | re.Pattern):
        return
    if not isinstance(value, Mapping) or not value:
        yield f"{where} needs a document of operators, or a regular expression"
        return
    yield from _conditions(value, where)


def _element(value: Any, where: str) -> Problems:
    if not isinstance(value, Mapping):
        yield f"{where} must be a document, not {value!r:.60}"
        return
    of_values = bool(value) and all(name in _OPERATORS for name in value)
    yield from (_conditions if of_values else predicate)(value, where)


_OPERATORS: dict[str, Shape] = {
    "$eq": anything,
    "$ne": _comparable,
    "$gt": _comparable,
    "$gte": _comparable,
    "$lt": _comparable,
    "$lte": _comparable,
    "$in": _plain_values,
    "$nin": _plain_values,
    "$not": _negated,
    "$exists": flag,
    "$type": one_or_array_of(_a_type),
    "$mod": array_of(number, least=2, most=2),
    "$regex": anything,
    "$options": anything,
    "$all": array_of(anything),
    "$elemMatch": _element,
    "$size": integer(0),
    "$bitsAllClear": anything,
    "$bitsAllSet": anything,
    "$bitsAnyClear": anything,
    "$bitsAnySet": anything,
    "$geoIntersects": a_document,
    "$geoWithin": a_document,
}


def _conditions(value: Mapping[str, Any], where: str) -> Problems:
    for name, each in value.items():
        if name not in _OPERATORS:
            yield f"{where} has no operator {name!r} ({QUERY_PAGE})"
        else:
            yield from on_page(f"{QUERY_PAGE}{name[1:]}/", _OPERATORS[name](each, f"{where}.{name}"))
    if "$options" in value and "$regex" not in value:
        yield f"{where}.$options needs $regex ({QUERY_PAGE}regex/)"


def predicate(value: Any, where: str, names: frozenset[str] = frozenset()) -> Problems:
    """A query predicate, as in `find`, `$match`, `update` and `delete`."""
    if not isinstance(value, Mapping):
        yield f"{where} must be a document, not {value!r:.60} ({QUERY_PAGE})"
        return
    for name, each in value.items():
        if name in ("$and", "$or", "$nor"):
            parts = array_of(lambda part, place: predicate(part, place, names), least=1)
            yield from on_page(f"{QUERY_PAGE}{name[1:]}/", parts(each, f"{where}.{name}"))
        elif name == "$expr":
            yield from expression(each, f"{where}.$expr", names)
        elif name in ("$comment", "$jsonSchema", "$text", "$where", "$sampleRate"):
            continue
        elif name.startswith("$"):
            yield f"{where} has no operator {name!r} at its top ({QUERY_PAGE})"
        else:
            yield from _of_field(each, f"{where}.{name}", _conditions)


def _of_field(value: Any, where: str, conditions: Callable[[Mapping[str, Any], str], Problems]) -> Problems:
    """A value, or operators; a document with both is refused."""
    if not isinstance(value, Mapping):
        return
    operators = [name for name in value if name.startswith("$") and name not in ("$ref", "$id", "$db")]
    if not operators:
        return
    if len(operators) != len(value):
        yield f"{where} must not mix operators and fields: {', '.join(value)} ({QUERY_PAGE})"
        return
    yield from conditions(value, where)


_IN_PARTIAL = frozenset({"$eq", "$exists", "$gt", "$gte", "$in", "$lt", "$lte", "$type"})
"""Also `$and` and `$or`; `$exists` only as true."""


def partial_filter(value: Any, where: str) -> Problems:
    """The filter of a partial index."""
    if not isinstance(value, Mapping):
        yield f"{where} must be a document, not {value!r:.60} ({PARTIAL_PAGE})"
        return
    for name, each in value.items():
        if name in ("$and", "$or"):
            yield from on_page(PARTIAL_PAGE, array_of(partial_filter, least=1)(each, f"{where}.{name}"))
        elif name.startswith("$"):
            yield f"{where}: {name!r} must not stand in the filter of a partial index ({PARTIAL_PAGE})"
        elif isinstance(each, Regex | re.Pattern):
            yield f"{where}.{name}: no regular expression in the filter of a partial index ({PARTIAL_PAGE})"
        else:
            yield from _of_field(each, f"{where}.{name}", _partial_conditions)


def _partial_conditions(value: Mapping[str, Any], where: str) -> Problems:
    for name, each in value.items():
        if name not in _IN_PARTIAL:
            yield f"{where}: {name!r} must not stand in the filter of a partial index ({PARTIAL_PAGE})"
        elif name == "$exists" and not each:
            yield f"{where}.$exists must be true in the filter of a partial index ({PARTIAL_PAGE})"
    yield from _conditions({name: each for name, each in value.items() if name in _IN_PARTIAL}, where)

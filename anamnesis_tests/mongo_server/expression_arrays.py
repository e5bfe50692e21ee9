"""Operators of expressions on arrays, sets and objects, as functions of their values."""

from collections.abc import Callable
from typing import Any

from anamnesis_tests.mongo_server.expression_functions import MANY, Function, nothing
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.values import MISSING, is_number, is_true, key_of, plain, type_name


def array(name: str, value: Any, code: int) -> list[Any]:
    """The value, when it is an array."""
    if not isinstance(value, list):
        raise Refusal(code, f"{name} needs an array, but was given {type_name(value)}")
    return value


def _size(value: Any) -> int:
    return len(array("The argument to $size", value, 17124))


def _within(value: Any, values: Any) -> bool:
    wanted = key_of(value)
    return any(key_of(each) == wanted for each in array("$in", values, 40081))


def _element(values: Any, place: Any) -> Any:
    if nothing(values) or nothing(place):
        return None
    place = int(plain(place))
    elements = array("$arrayElemAt", values, 28689)
    return elements[place] if -len(elements) <= place < len(elements) else MISSING


def _slice(values: Any, start: Any, count: Any = None) -> Any:
    if nothing(values) or nothing(start):
        return None
    elements = array("$slice", values, 28724)
    if count is None:
        return elements[:start] if start >= 0 else elements[start:]
    if count <= 0:
        raise Refusal(28729, f"Third argument to $slice must be positive: {count}")
    first = max(len(elements) + start, 0) if start < 0 else start
    return elements[first : first + count]


def _concat(*values: Any) -> Any:
    if any(nothing(value) for value in values):
        return None
    return [element for value in values for element in array("$concatArrays", value, 28664)]


def _distinct(elements: list[Any]) -> list[Any]:
    return list({key_of(element): element for element in elements}.values())


def _union(*values: Any) -> Any:
    if any(nothing(value) for value in values):
        return None
    return _distinct([element for value in values for element in array("$setUnion", value, 17043)])


def _difference(one: Any, other: Any) -> Any:
    if nothing(one) or nothing(other):
        return None
    without = {key_of(element) for element in array("$setDifference", other, 17049)}
    return [each for each in _distinct(array("$setDifference", one, 17048)) if key_of(each) not in without]


def _intersection(*values: Any) -> Any:
    if any(nothing(value) for value in values):
        return None
    sets = [{key_of(each) for each in array("$setIntersection", value, 17047)} for value in values]
    return [each for each in _distinct(values[0]) if all(key_of(each) in held for held in sets)] if values else []


def _keys(name: str, value: Any) -> set[Any]:
    return {key_of(each) for each in array(name, value, 17044)}


def _subset(one: Any, other: Any) -> bool:
    return _keys("$setIsSubset", one) <= _keys("$setIsSubset", other)


def _equal_sets(*values: Any) -> bool:
    return len({frozenset(_keys("$setEquals", value)) for value in values}) == 1


def _merge(*values: Any) -> Any:
    merged: dict[str, Any] = {}
    given = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    for value in given:
        if not nothing(value):
            if not isinstance(value, dict):
                raise Refusal(40400, f"$mergeObjects requires object inputs, but input is of type {type_name(value)}")
            merged.update(value)
    return merged


def _pairs(value: Any) -> Any:
    if nothing(value):
        return None
    if not isinstance(value, dict):
        raise Refusal(40390, f"$objectToArray requires a document input, found: {type_name(value)}")
    return [{"k": name, "v": inner} for name, inner in value.items()]


def _object(value: Any) -> Any:
    if nothing(value):
        return None
    return dict(
        (pair["k"], pair["v"]) if isinstance(pair, dict) else (pair[0], pair[1])
        for pair in array("$arrayToObject", value, 40386)
    )


def _index_of(values: Any, wanted: Any, start: Any = 0, end: Any = None) -> Any:
    if nothing(values):
        return None
    elements = array("$indexOfArray", values, 40090)
    key = key_of(wanted)
    places = range(start, len(elements) if end is None else min(end, len(elements)))
    return next((place for place in places if key_of(elements[place]) == key), -1)


def _range(start: Any, end: Any, step: Any = 1) -> list[int]:
    if step == 0:
        raise Refusal(34449, "$range requires a non-zero step value")
    return list(range(int(plain(start)), int(plain(end)), int(plain(step))))


def _flat(values: tuple[Any, ...]) -> list[Any]:
    """The values that an accumulator sees as an expression: of one array its elements."""
    return values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)


def total(values: list[Any]) -> Any:
    """`$sum`; what is no number counts nothing."""
    return sum(plain(value) for value in values if is_number(value))


def mean(values: list[Any]) -> Any:
    """`$avg`, null of nothing."""
    numbers = [plain(value) for value in values if is_number(value)]
    return sum(numbers) / len(numbers) if numbers else None


def extreme(values: list[Any], pick: Callable[..., Any]) -> Any:
    """`$min` or `$max`, null of nothing."""
    held = [value for value in values if not nothing(value)]
    return pick(held, key=key_of) if held else None


FUNCTIONS: dict[str, Function] = {
    "$size": (1, 1, _size),
    "$in": (2, 2, _within),
    "$arrayElemAt": (2, 2, _element),
    "$first": (1, 1, lambda value: _element(value, 0)),
    "$last": (1, 1, lambda value: _element(value, -1)),
    "$slice": (2, 3, _slice),
    "$concatArrays": (0, MANY, _concat),
    "$reverseArray": (1, 1, lambda value: None if nothing(value) else array("$reverseArray", value, 34435)[::-1]),
    "$isArray": (1, 1, lambda value: isinstance(value, list)),
    "$indexOfArray": (2, 4, _index_of),
    "$range": (2, 3, _range),
    "$setUnion": (0, MANY, _union),
    "$setDifference": (2, 2, _difference),
    "$setIntersection": (0, MANY, _intersection),
    "$setIsSubset": (2, 2, _subset),
    "$setEquals": (2, MANY, _equal_sets),
    "$anyElementTrue": (1, 1, lambda value: any(is_true(each) for each in array("$anyElementTrue", value, 17041))),
    "$allElementsTrue": (1, 1, lambda value: all(is_true(each) for each in array("$allElementsTrue", value, 17040))),
    "$mergeObjects": (0, MANY, _merge),
    "$objectToArray": (1, 1, _pairs),
    "$arrayToObject": (1, 1, _object),
    "$sum": (0, MANY, lambda *values: total(_flat(values))),
    "$avg": (0, MANY, lambda *values: mean(_flat(values))),
    "$min": (0, MANY, lambda *values: extreme(_flat(values), min)),
    "$max": (0, MANY, lambda *values: extreme(_flat(values), max)),
}

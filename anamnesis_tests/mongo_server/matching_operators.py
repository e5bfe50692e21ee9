"""What one operator of a filter asks of one value."""

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from bson import Regex

from anamnesis_tests.mongo_server.refusals import bad_value, failed_to_parse
from anamnesis_tests.mongo_server.values import (
    MISSING,
    NULL,
    NULL_RANK,
    NUMBER_TYPES,
    TEXT_RANK,
    TYPE_CODES,
    TYPE_OF_CODE,
    is_number,
    key_of,
    plain,
    type_name,
)

Test = Callable[[Any], bool]

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": 0}


def equal(wanted: Any) -> Test:
    """Equality; null also matches what is missing."""
    if type(wanted) is str:
        return lambda value: value == wanted
    key = key_of(wanted)
    return lambda value: key_of(value) == key


def within(wanted: Any) -> Test:
    """`$in`: equal to one of some values, or matched by one of some patterns."""
    if not isinstance(wanted, list):
        raise bad_value("$in needs an array")
    patterns = [regex(each) for each in wanted if isinstance(each, Regex)]
    keys = {key_of(each) for each in wanted}
    if not patterns:
        return lambda value: key_of(value) in keys
    return lambda value: key_of(value) in keys or any(matches(value) for matches in patterns)


def _compared(holds: Callable[[Any, Any], bool], with_equal: bool) -> Callable[[Any], Test]:
    """A comparison with values of the operand's own type."""

    def make(operand: Any) -> Test:
        if isinstance(operand, Regex):
            raise bad_value("Can't have RegEx as arg to predicate over field")
        key = key_of(operand)
        rank = key[0]
        if rank == NULL_RANK:
            return (lambda value: key_of(value) == NULL) if with_equal else (lambda _: False)
        if rank == TEXT_RANK:
            return lambda value: type(value) is str and holds(value, operand)

        def compares(value: Any) -> bool:
            if value is MISSING:
                return False
            own = key_of(value)
            return own[0] == rank and holds(own, key)

        return compares

    return make


def regex(pattern: Any, options: Any = None) -> Test:
    """Whether a text has a match.

    :raises Refusal: the pattern or its options are none.
    """
    text, flags = (pattern.pattern, pattern.flags) if isinstance(pattern, Regex) else (pattern, 0)
    if not isinstance(text, str):
        raise bad_value("$regex has to be a string")
    for option in options or "":
        if option not in _FLAGS:
            raise bad_value(f"invalid flag in regex options: {option}")
        flags |= _FLAGS[option]
    try:
        found = re.compile(text, flags & ~re.UNICODE).search
    except re.error as exc:
        raise bad_value(f"Regular expression is invalid: {exc}") from exc
    return lambda value: (isinstance(value, str) and found(value) is not None) or value == pattern


def of_type(wanted: Any) -> Test:
    """`$type`, by names or numbers."""
    names: set[str] = set()
    for each in wanted if isinstance(wanted, list) else [wanted]:
        names |= _type_names(each)
    return lambda value: value is not MISSING and type_name(value) in names


def _type_names(given: Any) -> set[str]:
    if given == "number":
        return set(NUMBER_TYPES)
    if isinstance(given, str) and given in TYPE_CODES:
        return {given}
    if is_number(given) and int(given) in TYPE_OF_CODE:
        return {TYPE_OF_CODE[int(given)]}
    if isinstance(given, str):
        raise bad_value(f"Unknown type name alias: {given}")
    raise bad_value(f"Invalid numerical type code: {given!r}")


def remainder(operand: Any) -> Test:
    """`$mod`."""
    if not isinstance(operand, list) or len(operand) != 2 or not all(is_number(each) for each in operand):
        raise bad_value("malformed mod, needs to be an array of two numbers")
    divisor, rest = (int(plain(each)) for each in operand)
    if divisor == 0:
        raise bad_value("divisor cannot be 0")

    def test(value: Any) -> bool:
        if not is_number(value) or not math.isfinite(plain(value)):
            return False
        whole = int(plain(value))
        return abs(whole) % abs(divisor) * (-1 if whole < 0 else 1) == rest  # the sign is that of the dividend

    return test


def bits(name: str) -> Callable[[Any], Test]:
    """`$bitsAllSet` and its like, by a mask or by positions."""

    def make(operand: Any) -> Test:
        mask = sum(1 << place for place in operand) if isinstance(operand, list) else operand
        if not isinstance(mask, int) or isinstance(mask, bool) or mask < 0:
            raise failed_to_parse(f"{name} takes a mask or an array of positions")

        def test(value: Any) -> bool:
            if not is_number(value):
                return False
            held = int(plain(value)) & mask
            return {"$bitsAllSet": held == mask, "$bitsAnySet": held != 0,
                    "$bitsAllClear": held == 0, "$bitsAnyClear": held != mask}[name]  # fmt: skip

        return test

    return make


TESTS: dict[str, Callable[[Any], Test]] = {
    "$eq": equal,
    "$in": within,
    "$gt": _compared(operator.gt, with_equal=False),
    "$gte": _compared(operator.ge, with_equal=True),
    "$lt": _compared(operator.lt, with_equal=False),
    "$lte": _compared(operator.le, with_equal=True),
    "$type": of_type,
    "$mod": remainder,
} | {name: bits(name) for name in ("$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear")}

"""Operators of expressions that are functions of their values: numbers, comparisons, texts, types and dates."""

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

import bson
from bson import Int64, ObjectId

from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.values import (
    MISSING,
    is_number,
    is_true,
    key_of,
    milliseconds,
    plain,
    type_name,
)

Function = tuple[int, float, Callable[..., Any]]
MANY = float("inf")


def nothing(value: Any) -> bool:
    """Null or missing."""
    return value is None or value is MISSING


def _width(result: Any, values: tuple[Any, ...]) -> Any:
    """A sum of 64-bit numbers is one."""
    return Int64(result) if isinstance(result, int) and any(isinstance(v, Int64) for v in values) else result


def _numbers(name: str, values: tuple[Any, ...], code: int = 16554) -> list[Any]:
    for value in values:
        if not is_number(value):
            raise Refusal(code, f"{name} only supports numeric types, not {type_name(value)}")
    return [plain(value) for value in values]


def add(*values: Any) -> Any:
    if any(nothing(value) for value in values):
        return None
    moments = [value for value in values if isinstance(value, datetime)]
    if moments:
        rest = _numbers("$add", tuple(value for value in values if not isinstance(value, datetime)))
        return moments[0] + timedelta(milliseconds=float(sum(rest)))
    return _width(sum(_numbers("$add", values)), values)


def subtract(one: Any, other: Any) -> Any:
    if nothing(one) or nothing(other):
        return None
    if isinstance(one, datetime) and isinstance(other, datetime):
        return Int64(milliseconds(one) - milliseconds(other))
    first, second = _numbers("$subtract", (one, other), 16556)
    return _width(first - second, (one, other))


def multiply(*values: Any) -> Any:
    if any(nothing(value) for value in values):
        return None
    return _width(reduce(operator.mul, _numbers("$multiply", values, 16555), 1), values)


def divide(one: Any, other: Any) -> Any:
    if nothing(one) or nothing(other):
        return None
    first, second = _numbers("$divide", (one, other), 16609)
    if second == 0:
        raise Refusal(2, "can't $divide by zero")
    return float(first) / float(second)


def modulo(one: Any, other: Any) -> Any:
    if nothing(one) or nothing(other):
        return None
    first, second = _numbers("$mod", (one, other), 16611)
    if second == 0:
        raise Refusal(16610, "can't $mod by zero")
    rest = math.fmod(first, second)
    return _width(int(rest), (one, other)) if isinstance(first, int) and isinstance(second, int) else rest


def _one_number(name: str, of: Callable[[Any], Any]) -> Function:
    def function(value: Any) -> Any:
        return None if nothing(value) else of(_numbers(name, (value,), 28765)[0])

    return 1, 1, function


def _rounded(name: str, of: Callable[[float], int]) -> Function:
    def function(value: Any, places: Any = 0) -> Any:
        if nothing(value) or nothing(places):
            return None
        number = _numbers(name, (value,), 51081)[0]
        if isinstance(number, int) and places >= 0:
            return value
        scale = 10.0**places
        return of(number * scale) / scale

    return 1, 2, function


def _power(base: Any, exponent: Any) -> Any:
    return None if nothing(base) or nothing(exponent) else plain(base) ** plain(exponent)


def _log(value: Any, base: Any) -> Any:
    return None if nothing(value) or nothing(base) else math.log(plain(value), plain(base))


def order_key(value: Any) -> tuple[Any, ...]:
    """As `key_of`, but what is missing comes before null."""
    return (3,) if value is MISSING else key_of(value)


def _compare(holds: Callable[[Any, Any], bool]) -> Function:
    return 2, 2, lambda one, other: holds(order_key(one), order_key(other))


def _three_way(one: Any, other: Any) -> int:
    first, second = order_key(one), order_key(other)
    return (first > second) - (first < second)


def _text(name: str, value: Any, code: int = 16702) -> str:
    if not isinstance(value, str):
        raise Refusal(code, f"{name} only supports strings, not {type_name(value)}")
    return value


def _concat(*values: Any) -> Any:
    return None if any(nothing(value) for value in values) else "".join(_text("$concat", value) for value in values)


def _cased(of: Callable[[str], str]) -> Function:
    return 1, 1, lambda value: "" if nothing(value) else of(as_text(value))


def _substring(value: Any, start: Any, count: Any) -> str:
    text = "" if nothing(value) else as_text(value)
    return text[start:] if count < 0 else text[start : start + count]


def _substring_bytes(value: Any, start: Any, count: Any) -> str:
    raw = ("" if nothing(value) else as_text(value)).encode()
    part = raw[start:] if count < 0 else raw[start : start + count]
    try:
        return part.decode()
    except UnicodeDecodeError as exc:
        raise Refusal(28656, "$substrBytes: Invalid range, ending or starting in the middle of a character") from exc


def _split(value: Any, separator: Any) -> Any:
    if nothing(value) or nothing(separator):
        return None
    return _text("$split", value, 40085).split(_text("$split", separator, 40086))


def _index_of(value: Any, part: Any, start: Any = 0, end: Any = None) -> Any:
    if nothing(value):
        return None
    return _text("$indexOfCP", value, 40091).find(_text("$indexOfCP", part, 40092), start, end)


def as_text(value: Any) -> Any:
    """`$toString`, null as it is.

    :raises Refusal: the type has no text.
    """
    if nothing(value):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    if isinstance(value, str | ObjectId) or is_number(value):
        return str(value)
    raise Refusal(241, f"Unsupported conversion from {type_name(value)} to string in $convert with no onError value")


def as_whole(value: Any, kind: type = int) -> Any:
    """`$toInt` and `$toLong`."""
    if nothing(value):
        return None
    if isinstance(value, datetime):
        return Int64(milliseconds(value))
    try:
        return kind(int(value) if isinstance(value, str) else int(plain(value)))
    except (ValueError, TypeError, OverflowError) as exc:
        raise Refusal(241, f"Failed to parse number {value!r} in $convert with no onError value") from exc


def as_double(value: Any) -> Any:
    """`$toDouble`."""
    if nothing(value):
        return None
    try:
        return float(milliseconds(value)) if isinstance(value, datetime) else float(plain(value))
    except (ValueError, TypeError) as exc:
        raise Refusal(241, f"Failed to parse number {value!r} in $convert with no onError value") from exc


def _as_bool(value: Any) -> Any:
    return None if nothing(value) else is_true(value)


def _size_in_bytes(value: Any) -> Any:
    if nothing(value):
        return None
    if not isinstance(value, str | bytes):
        raise Refusal(51276, f"$binarySize requires a string or BinData argument, found: {type_name(value)}")
    return len(value.encode() if isinstance(value, str) else value)


def _bson_size(value: Any) -> Any:
    return None if nothing(value) else len(bson.encode(value))


FUNCTIONS: dict[str, Function] = {
    "$add": (0, MANY, add),
    "$subtract": (2, 2, subtract),
    "$multiply": (0, MANY, multiply),
    "$divide": (2, 2, divide),
    "$mod": (2, 2, modulo),
    "$abs": _one_number("$abs", abs),
    "$ceil": _one_number("$ceil", math.ceil),
    "$floor": _one_number("$floor", math.floor),
    "$sqrt": _one_number("$sqrt", math.sqrt),
    "$exp": _one_number("$exp", math.exp),
    "$ln": _one_number("$ln", math.log),
    "$log10": _one_number("$log10", math.log10),
    "$log": (2, 2, _log),
    "$pow": (2, 2, _power),
    "$round": _rounded("$round", round),
    "$trunc": _rounded("$trunc", math.trunc),
    "$eq": _compare(operator.eq),
    "$ne": _compare(operator.ne),
    "$gt": _compare(operator.gt),
    "$gte": _compare(operator.ge),
    "$lt": _compare(operator.lt),
    "$lte": _compare(operator.le),
    "$cmp": (2, 2, _three_way),
    "$not": (1, 1, lambda value: not is_true(value)),
    "$concat": (0, MANY, _concat),
    "$toLower": _cased(str.lower),
    "$toUpper": _cased(str.upper),
    "$strLenCP": (1, 1, lambda value: len(_text("$strLenCP", value, 34471))),
    "$strLenBytes": (1, 1, lambda value: len(_text("$strLenBytes", value, 34473).encode())),
    "$substr": (3, 3, _substring_bytes),
    "$substrBytes": (3, 3, _substring_bytes),
    "$substrCP": (3, 3, _substring),
    "$split": (2, 2, _split),
    "$indexOfCP": (2, 4, _index_of),
    "$strcasecmp": (2, 2, lambda one, other: _three_way((as_text(one) or "").upper(), (as_text(other) or "").upper())),
    "$toString": (1, 1, as_text),
    "$toInt": (1, 1, as_whole),
    "$toLong": (1, 1, lambda value: as_whole(value, Int64)),
    "$toDouble": (1, 1, as_double),
    "$toBool": (1, 1, _as_bool),
    "$type": (1, 1, type_name),
    "$isNumber": (1, 1, is_number),
    "$binarySize": (1, 1, _size_in_bytes),
    "$bsonSize": (1, 1, _bson_size),
    "$year": (1, 1, lambda value: None if nothing(value) else value.year),
    "$month": (1, 1, lambda value: None if nothing(value) else value.month),
    "$dayOfMonth": (1, 1, lambda value: None if nothing(value) else value.day),
}

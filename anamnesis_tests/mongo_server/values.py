"""BSON values: their order, their equality, and the names of their types.

`key_of` gives each value a tuple that compares and hashes as MongoDB compares the value
(https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/): 1 and 1.0 are the same, 1 and true are not.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS

Document = dict[str, Any]
Key = tuple[Any, ...]


class _Missing:
    """A field that is not there; falsy."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()

NULL_RANK, NAN_RANK, NUMBER_RANK, TEXT_RANK, OBJECT_RANK, ARRAY_RANK, BINARY_RANK = 5, 9, 10, 15, 20, 25, 30
NULL: Key = (NULL_RANK,)
EMPTY_ARRAY: Key = (4,)
"""What an index holds for an array without elements."""
LOWEST: Key = (-1,)
HIGHEST: Key = (128,)
_NAN: Key = (NAN_RANK,)
_EPOCH = datetime(1970, 1, 1)


def _number(value: Any) -> Key:
    return (NUMBER_RANK, value) if value == value else _NAN


def _decimal(value: Decimal128) -> Key:
    exact: Decimal = value.to_decimal()
    return _NAN if exact.is_nan() else (NUMBER_RANK, exact)


def _object(value: Document) -> Key:
    return (OBJECT_RANK, tuple((key_of(inner)[0], name, key_of(inner)) for name, inner in value.items()))


def _array(value: list[Any]) -> Key:
    return (ARRAY_RANK, tuple(key_of(inner) for inner in value))


def milliseconds(value: datetime) -> int:
    """Since 1970, of a moment in UTC."""
    moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return round((moment - _EPOCH).total_seconds() * 1000)


_KEYS: dict[type, Callable[[Any], Key]] = {
    type(None): lambda _: NULL,
    type(MISSING): lambda _: NULL,
    int: _number,
    float: _number,
    Int64: lambda value: (NUMBER_RANK, int(value)),
    Decimal128: _decimal,
    str: lambda value: (TEXT_RANK, value),
    dict: _object,
    list: _array,
    tuple: lambda value: _array(list(value)),
    bytes: lambda value: (BINARY_RANK, len(value), 0, value),
    Binary: lambda value: (BINARY_RANK, len(value), value.subtype, bytes(value)),
    ObjectId: lambda value: (35, value.binary),
    bool: lambda value: (40, value),
    datetime: lambda value: (45, milliseconds(value)),
    DatetimeMS: lambda value: (45, int(value)),
    Timestamp: lambda value: (47, value.time, value.inc),
    Regex: lambda value: (50, value.pattern, value.flags),
    MinKey: lambda _: (0,),
    MaxKey: lambda _: (127,),
}


def key_of(value: Any) -> Key:
    """What to compare and hash instead of the value; a missing field counts as null."""
    maker = _KEYS.get(type(value))
    if maker is None:
        maker = next((made for kind, made in _KEYS.items() if isinstance(value, kind)), None)
        if maker is None:
            raise TypeError(f"no order is known for {type(value).__name__}")
    return maker(value)


def is_number(value: Any) -> bool:
    """Also Decimal128; true and false are none."""
    return isinstance(value, int | float | Decimal128) and not isinstance(value, bool)


def is_true(value: Any) -> bool:
    """As expressions see it: all but false, zero, null and missing."""
    if value is None or value is MISSING or value is False:
        return False
    return not (is_number(value) and plain(value) == 0)


def plain(value: Any) -> Any:
    """A number to calculate with."""
    return value.to_decimal() if isinstance(value, Decimal128) else value


def same(one: Any, other: Any) -> bool:
    """Equal as MongoDB compares; a missing field is not null here."""
    if one is MISSING or other is MISSING:
        return one is other
    return key_of(one) == key_of(other)


TYPE_CODES = {
    "double": 1, "string": 2, "object": 3, "array": 4, "binData": 5, "objectId": 7, "bool": 8, "date": 9, "null": 10,
    "regex": 11, "int": 16, "timestamp": 17, "long": 18, "decimal": 19, "minKey": -1, "maxKey": 127,
}  # fmt: skip
TYPE_OF_CODE = {code: name for name, code in TYPE_CODES.items()}
NUMBER_TYPES = frozenset({"double", "int", "long", "decimal"})

_TYPE_NAMES: dict[type, str] = {
    bool: "bool", float: "double", Int64: "long", str: "string", dict: "object", list: "array", bytes: "binData",
    Binary: "binData", ObjectId: "objectId", datetime: "date", DatetimeMS: "date", type(None): "null", Regex: "regex",
    Timestamp: "timestamp", Decimal128: "decimal", MinKey: "minKey", MaxKey: "maxKey", type(MISSING): "missing",
}  # fmt: skip


def type_name(value: Any) -> str:
    """As `$type` names it; "missing" where there is nothing."""
    kind = type(value)
    if kind is int:  # the decoder gives Int64 for what was sent as 64 bits; what was calculated here is by its size
        return "int" if -(2**31) <= value < 2**31 else "long"
    return _TYPE_NAMES.get(kind) or next(name for known, name in _TYPE_NAMES.items() if isinstance(value, known))

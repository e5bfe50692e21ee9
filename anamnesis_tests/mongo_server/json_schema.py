"""`$jsonSchema`, as validators and filters use it.

https://www.mongodb.com/docs/manual/reference/operator/query/jsonSchema/
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from bson import Int64

from anamnesis_tests.mongo_server.refusals import Refusal, failed_to_parse, type_mismatch
from anamnesis_tests.mongo_server.values import NUMBER_TYPES, TYPE_CODES, is_number, key_of, plain, type_name

Accepts = Callable[[Any], bool]

_JSON_TYPES = {
    "object": {"object"}, "array": {"array"}, "number": set(NUMBER_TYPES), "boolean": {"bool"}, "string": {"string"},
    "null": {"null"},
}  # fmt: skip
_WORDS = frozenset({"title", "description"})


def compile_schema(schema: Any) -> Accepts:
    """Whether a value keeps to a schema.

    :raises Refusal: a keyword is unknown or has a wrong argument.
    """
    if not isinstance(schema, Mapping):
        raise type_mismatch("$jsonSchema must be an object")
    checks = [_check(keyword, given, schema) for keyword, given in schema.items() if keyword not in _WORDS]
    if len(checks) == 1:
        return checks[0]
    return lambda value: all(accepts(value) for accepts in checks)


def _check(keyword: str, given: Any, schema: Mapping[str, Any]) -> Accepts:
    maker = _KEYWORDS.get(keyword)
    if maker is None:
        raise failed_to_parse(f"Unknown $jsonSchema keyword: {keyword}")
    return maker(given, schema)


def _bson_type(given: Any, _: Mapping[str, Any]) -> Accepts:
    names: set[str] = set()
    for name in given if isinstance(given, list) else [given]:
        if name != "number" and name not in TYPE_CODES:
            raise Refusal(2, f"Unknown type name alias: {name}")
        names |= NUMBER_TYPES if name == "number" else {name}
    known = {kind for kind in (str, dict, list, bool, float, bytes, type(None), Int64) if type_name(kind()) in names}
    return lambda value: type(value) in known or type_name(value) in names


def _json_type(given: Any, _: Mapping[str, Any]) -> Accepts:
    names: set[str] = set()
    for name in given if isinstance(given, list) else [given]:
        if name not in _JSON_TYPES:
            raise failed_to_parse(f"$jsonSchema type {name!r} is not supported")
        names |= _JSON_TYPES[name]
    return lambda value: type_name(value) in names


def _required(given: Any, _: Mapping[str, Any]) -> Accepts:
    if not isinstance(given, list) or not given:
        raise failed_to_parse("$jsonSchema keyword 'required' must be a non-empty array")
    names = list(given)
    return lambda value: not isinstance(value, dict) or all(name in value for name in names)


def _properties(given: Any, _: Mapping[str, Any]) -> Accepts:
    checks = [(name, compile_schema(schema)) for name, schema in given.items()]

    def check(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for name, accepts in checks:  # noqa: SIM110 - a plain loop is faster, and every document that is written is asked
            if name in value and not accepts(value[name]):
                return False
        return True

    return check


def _pattern_properties(given: Any, _: Mapping[str, Any]) -> Accepts:
    checks = [(re.compile(pattern), compile_schema(schema)) for pattern, schema in given.items()]
    return lambda value: (
        not isinstance(value, dict)
        or all(accepts(inner) for name, inner in value.items() for found, accepts in checks if found.search(name))
    )


def _additional(given: Any, schema: Mapping[str, Any]) -> Accepts:
    known = set(schema.get("properties", {}))
    patterns = [re.compile(pattern) for pattern in schema.get("patternProperties", {})]
    accepts: Accepts = compile_schema(given) if isinstance(given, Mapping) else (lambda _: bool(given))

    def check(value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        others = (n for n in value if n not in known and not any(pattern.search(n) for pattern in patterns))
        return all(accepts(value[name]) for name in others)

    return check


def _items(given: Any, _: Mapping[str, Any]) -> Accepts:
    if isinstance(given, list):
        places = [compile_schema(schema) for schema in given]
        return lambda value: (
            not isinstance(value, list) or all(accepts(each) for accepts, each in zip(places, value, strict=False))
        )
    accepts = compile_schema(given)
    return lambda value: not isinstance(value, list) or all(accepts(each) for each in value)


def _enum(given: Any, _: Mapping[str, Any]) -> Accepts:
    keys = {key_of(each) for each in given}
    return lambda value: key_of(value) in keys


def _bound(keyword: str) -> Callable[[Any, Mapping[str, Any]], Accepts]:
    lower = keyword == "minimum"

    def make(given: Any, schema: Mapping[str, Any]) -> Accepts:
        strict = schema.get("exclusiveMinimum" if lower else "exclusiveMaximum", False)

        def check(value: Any) -> bool:
            if not is_number(value):
                return True
            distance = plain(value) - plain(given) if lower else plain(given) - plain(value)
            return bool(distance > 0 or (distance == 0 and not strict))

        return check

    return make


def _length(kind: type, longest: bool) -> Callable[[Any, Mapping[str, Any]], Accepts]:
    def make(given: Any, _: Mapping[str, Any]) -> Accepts:
        if longest:
            return lambda value: not isinstance(value, kind) or len(value) <= given
        return lambda value: not isinstance(value, kind) or len(value) >= given

    return make


def _pattern(given: Any, _: Mapping[str, Any]) -> Accepts:
    found = re.compile(given).search
    return lambda value: not isinstance(value, str) or found(value) is not None


def _unique(given: Any, _: Mapping[str, Any]) -> Accepts:
    return lambda value: not (given and isinstance(value, list)) or len({key_of(e) for e in value}) == len(value)


def _multiple(given: Any, _: Mapping[str, Any]) -> Accepts:
    return lambda value: not is_number(value) or plain(value) % plain(given) == 0


def _several(keyword: str) -> Callable[[Any, Mapping[str, Any]], Accepts]:
    def make(given: Any, _: Mapping[str, Any]) -> Accepts:
        checks = [compile_schema(schema) for schema in (given if isinstance(given, list) else [given])]
        holds = {"allOf": lambda n: n == len(checks), "anyOf": lambda n: n > 0, "oneOf": lambda n: n == 1,
                 "not": lambda n: n == 0}[keyword]  # fmt: skip
        return lambda value: holds(sum(1 for accepts in checks if accepts(value)))

    return make


def _beside(_: Any, __: Mapping[str, Any]) -> Accepts:
    return lambda _: True


_KEYWORDS: dict[str, Callable[[Any, Mapping[str, Any]], Accepts]] = {
    "bsonType": _bson_type,
    "type": _json_type,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "items": _items,
    "enum": _enum,
    "minimum": _bound("minimum"),
    "maximum": _bound("maximum"),
    "exclusiveMinimum": _beside,  # read by `minimum`
    "exclusiveMaximum": _beside,
    "minLength": _length(str, longest=False),
    "maxLength": _length(str, longest=True),
    "minItems": _length(list, longest=False),
    "maxItems": _length(list, longest=True),
    "minProperties": _length(dict, longest=False),
    "maxProperties": _length(dict, longest=True),
    "pattern": _pattern,
    "uniqueItems": _unique,
    "multipleOf": _multiple,
} | {keyword: _several(keyword) for keyword in ("allOf", "anyOf", "oneOf", "not")}

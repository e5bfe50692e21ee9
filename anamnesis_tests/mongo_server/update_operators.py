"""What one operator of an update makes of one value."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from bson import Int64, Timestamp

from anamnesis_tests.mongo_server.matching import compile_filter, is_operators
from anamnesis_tests.mongo_server.ordering import sort_key
from anamnesis_tests.mongo_server.refusals import (
    Refusal,
    bad_value,
    failed_to_parse,
    refuse_unknown,
    type_mismatch,
)
from anamnesis_tests.mongo_server.values import MISSING, is_number, key_of, plain, type_name

Make = Callable[[Any], Any]


def _set(operand: Any, _: str) -> Make:
    return lambda _: operand


def _unset(_: Any, __: str) -> Make:
    return lambda _: MISSING


def _wide(result: Any, *values: Any) -> Any:
    return Int64(result) if isinstance(result, int) and any(isinstance(value, Int64) for value in values) else result


def _calculated(name: str, of: Callable[[Any, Any], Any], start: Callable[[Any], Any]) -> Callable[[Any, str], Make]:
    def make(operand: Any, path: str) -> Make:
        if not is_number(operand):
            raise type_mismatch(f"Cannot {name} with non-numeric argument: {{{path}: {operand!r}}}")

        def change(value: Any) -> Any:
            if value is MISSING:
                return start(operand)
            if not is_number(value):
                raise type_mismatch(
                    f"Cannot apply ${name} to a value of non-numeric type. "
                    f"The field '{path}' is of type {type_name(value)}"
                )
            return _wide(of(plain(value), plain(operand)), value, operand)

        return change

    return make


def _extreme(better: Callable[[Any, Any], bool]) -> Callable[[Any, str], Make]:
    def make(operand: Any, _: str) -> Make:
        key = key_of(operand)
        return lambda value: operand if value is MISSING or better(key, key_of(value)) else value

    return make


def _now(operand: Any, _: str) -> Make:
    moment = datetime.now(UTC).replace(tzinfo=None)
    if operand in (True, {"$type": "date"}):
        return lambda _: moment
    if operand == {"$type": "timestamp"}:
        return lambda _: Timestamp(int(datetime.now(UTC).timestamp()), 1)
    raise bad_value("The '$type' string field is required to be 'date' or 'timestamp'")


def _array(value: Any, operator: str, path: str) -> list[Any]:
    if value is MISSING:
        return []
    if not isinstance(value, list):
        raise bad_value(f"The field '{path}' must be an array but is of type {type_name(value)} ({operator})")
    return value


def _each(operand: Any, operator: str, known: set[str]) -> tuple[list[Any], Mapping[str, Any]]:
    if not (isinstance(operand, Mapping) and "$each" in operand):
        return [operand], {}
    refuse_unknown(operand, known, operator, 2)
    if not isinstance(operand["$each"], list):
        raise type_mismatch(f"The argument to $each in {operator} must be an array")
    return operand["$each"], operand


def _push(operand: Any, path: str) -> Make:
    values, options = _each(operand, "$push", {"$each", "$slice", "$sort", "$position"})

    def change(value: Any) -> Any:
        held = _array(value, "$push", path)
        place = options.get("$position", len(held))
        new = held[:place] + values + held[place:]
        if "$sort" in options:
            new = _sorted(new, options["$sort"])
        if "$slice" in options:
            count = options["$slice"]
            new = new[:count] if count >= 0 else new[count:]
        return new

    return change


def _sorted(values: list[Any], order: Any) -> list[Any]:
    if isinstance(order, Mapping):
        return sorted(values, key=sort_key(list(order.items())))
    return sorted(values, key=key_of, reverse=order == -1)


def _add_to_set(operand: Any, path: str) -> Make:
    values, _ = _each(operand, "$addToSet", {"$each"})

    def change(value: Any) -> Any:
        held = _array(value, "$addToSet", path)
        keys = {key_of(each) for each in held}
        new = list(held)
        for each in values:
            if key_of(each) not in keys:
                keys.add(key_of(each))
                new.append(each)
        return held if len(new) == len(held) and value is not MISSING else new

    return change


def _pull(operand: Any, path: str) -> Make:
    if is_operators(operand):
        matches = compile_filter({"element": operand})
        unwanted = lambda each: matches({"element": each})  # noqa: E731
    elif isinstance(operand, Mapping):
        of_document = compile_filter(operand)
        unwanted = lambda each: isinstance(each, dict) and of_document(each)  # noqa: E731
    else:
        key = key_of(operand)
        unwanted = lambda each: key_of(each) == key  # noqa: E731
    return _without(unwanted, "$pull", path)


def _pull_all(operand: Any, path: str) -> Make:
    if not isinstance(operand, list):
        raise bad_value("$pullAll requires an array argument")
    keys = {key_of(each) for each in operand}
    return _without(lambda each: key_of(each) in keys, "$pullAll", path)


def _without(unwanted: Callable[[Any], bool], operator: str, path: str) -> Make:
    def change(value: Any) -> Any:
        if value is MISSING:
            return MISSING
        held = _array(value, operator, path)
        kept = [each for each in held if not unwanted(each)]
        return held if len(kept) == len(held) else kept

    return change


def _pop(operand: Any, path: str) -> Make:
    if operand not in (1, -1):
        raise failed_to_parse(f"$pop expects 1 or -1, found: {operand!r}")

    def change(value: Any) -> Any:
        if value is MISSING:
            return MISSING
        held = _array(value, "$pop", path)
        return held[:-1] if operand == 1 else held[1:]

    return change


def _bit(operand: Any, path: str) -> Make:
    if not isinstance(operand, Mapping) or not operand or not set(operand) <= {"and", "or", "xor"}:
        raise bad_value("The $bit modifier only supports 'and', 'or', and 'xor'")

    def change(value: Any) -> Any:
        result = 0 if value is MISSING else value
        if not isinstance(result, int) or isinstance(result, bool):
            raise Refusal(2, f"Cannot apply $bit to a value of non-integral type: {path}")
        for name, number in operand.items():
            result = {"and": result & number, "or": result | number, "xor": result ^ number}[name]
        return _wide(result, value)

    return change


OPERATORS: dict[str, Callable[[Any, str], Make]] = {
    "$set": _set,
    "$unset": _unset,
    "$inc": _calculated("inc", lambda one, other: one + other, lambda operand: operand),
    "$mul": _calculated("mul", lambda one, other: one * other, lambda operand: type(operand)(0)),
    "$min": _extreme(lambda new, old: new < old),
    "$max": _extreme(lambda new, old: new > old),
    "$currentDate": _now,
    "$push": _push,
    "$addToSet": _add_to_set,
    "$pull": _pull,
    "$pullAll": _pull_all,
    "$pop": _pop,
    "$bit": _bit,
}

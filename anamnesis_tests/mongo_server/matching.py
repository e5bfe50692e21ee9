"""Filters: compiled once, then asked of each document.

https://www.mongodb.com/docs/manual/reference/operator/query/
"""

from collections.abc import Callable, Mapping
from typing import Any

from bson import Regex

from anamnesis_tests.mongo_server import matching_operators
from anamnesis_tests.mongo_server.expressions import compile_expression
from anamnesis_tests.mongo_server.json_schema import compile_schema
from anamnesis_tests.mongo_server.matching_operators import Test
from anamnesis_tests.mongo_server.paths import leaves
from anamnesis_tests.mongo_server.refusals import bad_value, not_supported
from anamnesis_tests.mongo_server.values import MISSING, Document, is_true

Matcher = Callable[[Document], bool]

_ELSEWHERE = frozenset({"$text", "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere", "$sampleRate"})


_NO_VARIABLES: Mapping[str, Any] = {}


def compile_filter(where: Mapping[str, Any], variables: Mapping[str, Any] = _NO_VARIABLES) -> Matcher:
    """Whether a document matches; `variables` are those that an `$expr` may name.

    :raises Refusal: an operator is unknown or has a wrong argument.
    """
    if not isinstance(where, Mapping):
        raise bad_value("the match filter must be an expression in an object")
    matchers = [_clause(name, condition, variables) for name, condition in where.items() if name != "$comment"]
    if not matchers:
        return lambda _: True
    if len(matchers) == 1:
        return matchers[0]
    return lambda document: all(matches(document) for matches in matchers)


def _clause(name: str, condition: Any, variables: Mapping[str, Any]) -> Matcher:
    if not name.startswith("$"):
        return _field(name, condition)
    if name in ("$and", "$or", "$nor"):
        return _combined(name, condition, variables)
    if name == "$expr":
        evaluate = compile_expression(condition)
        return lambda document: is_true(evaluate(document, variables))
    if name == "$jsonSchema":
        return compile_schema(condition)
    if name in _ELSEWHERE:
        raise not_supported(name)
    raise bad_value(
        f"unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using "
        f"$getField or $setField."
    )


def _combined(name: str, clauses: Any, variables: Mapping[str, Any]) -> Matcher:
    if not isinstance(clauses, list) or not clauses:
        raise bad_value(f"{name} argument must be a non-empty array")
    if not all(isinstance(clause, Mapping) for clause in clauses):
        raise bad_value(f"{name} entries need to be full objects")
    matchers = [compile_filter(clause, variables) for clause in clauses]
    if name == "$and":
        return lambda document: all(matches(document) for matches in matchers)
    if name == "$or":
        return lambda document: any(matches(document) for matches in matchers)
    return lambda document: not any(matches(document) for matches in matchers)


def is_operators(condition: Any) -> bool:
    """Whether a condition is made of operators, and not a value to be equal to."""
    return isinstance(condition, Mapping) and bool(condition) and next(iter(condition)).startswith("$")


def _field(path: str, condition: Any) -> Matcher:
    if isinstance(condition, Regex):
        return _any(path, matching_operators.regex(condition))
    if not is_operators(condition):
        return _any(path, matching_operators.equal(condition))
    return _all_of(path, condition)


def _all_of(path: str, operators: Mapping[str, Any]) -> Matcher:
    matchers = [_operator(path, name, operand, operators) for name, operand in operators.items() if name != "$options"]
    if "$options" in operators and "$regex" not in operators:
        raise bad_value("$options needs a $regex")
    if len(matchers) == 1:
        return matchers[0]
    return lambda document: all(matches(document) for matches in matchers)


def _operator(path: str, name: str, operand: Any, beside: Mapping[str, Any]) -> Matcher:
    if name == "$not":
        return _negated(path, operand)
    if name in ("$ne", "$nin"):
        positive = _any(path, matching_operators.TESTS["$eq" if name == "$ne" else "$in"](operand))
        return lambda document: not positive(document)
    if name == "$exists":
        return _exists(path, operand)
    if name == "$all":
        return _all(path, operand)
    if name in ("$size", "$elemMatch"):
        return _whole(path, _size(operand) if name == "$size" else _element(operand))
    if name == "$regex":
        return _any(path, matching_operators.regex(operand, beside.get("$options")))
    if name not in matching_operators.TESTS:
        raise bad_value(f"unknown operator: {name}")
    return _any(path, matching_operators.TESTS[name](operand))


def _any(path: str, test: Test) -> Matcher:
    """Any of the values at a path, or an element of one that is an array."""
    if "." in path:
        parts = path.split(".")
        return lambda document: any(_value_or_element(value, test) for value in leaves(document, parts))

    def simple(document: Document) -> bool:
        value = document.get(path, MISSING)
        if type(value) is list:
            return _value_or_element(value, test)
        return test(value)

    return simple


def _value_or_element(value: Any, test: Test) -> bool:
    return test(value) or (isinstance(value, list) and any(test(element) for element in value))


def _whole(path: str, test: Test) -> Matcher:
    parts = path.split(".")
    return lambda document: any(test(value) for value in leaves(document, parts))


def _exists(path: str, wanted: Any) -> Matcher:
    parts, wanted = path.split("."), is_true(wanted)
    return lambda document: any(value is not MISSING for value in leaves(document, parts)) == wanted


def _negated(path: str, operand: Any) -> Matcher:
    if isinstance(operand, Regex):
        positive = _any(path, matching_operators.regex(operand))
    elif is_operators(operand):
        positive = _all_of(path, operand)
    else:
        raise bad_value("$not needs a regex or a document")
    return lambda document: not positive(document)


def _all(path: str, wanted: Any) -> Matcher:
    if not isinstance(wanted, list):
        raise bad_value("$all needs an array")
    matchers = [_field(path, each) for each in wanted]
    return lambda document: bool(matchers) and all(matches(document) for matches in matchers)


def _size(wanted: Any) -> Test:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or wanted != int(wanted):
        raise bad_value(f"Failed to parse $size. Expected an integer in: $size: {wanted!r}")
    if wanted < 0:
        raise bad_value(f"Failed to parse $size. Expected a non-negative number in: $size: {wanted!r}")
    return lambda value: isinstance(value, list) and len(value) == wanted


def _element(operand: Any) -> Test:
    """$elemMatch, of documents by a filter or of values by operators."""
    if not isinstance(operand, Mapping):
        raise bad_value("$elemMatch needs an Object")
    if is_operators(operand) and next(iter(operand)) not in ("$and", "$or", "$nor", "$expr"):
        of_value = _all_of("element", operand)
        return lambda value: isinstance(value, list) and any(of_value({"element": each}) for each in value)
    matches = compile_filter(operand)
    return lambda value: isinstance(value, list) and any(isinstance(each, dict) and matches(each) for each in value)

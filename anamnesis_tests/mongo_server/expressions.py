"""Aggregation expressions: compiled once, then evaluated on each document.

https://www.mongodb.com/docs/manual/reference/operator/aggregation/
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from anamnesis_tests.mongo_server.paths import fetch
from anamnesis_tests.mongo_server.refusals import Refusal, failed_to_parse
from anamnesis_tests.mongo_server.scored import metadata
from anamnesis_tests.mongo_server.values import MISSING, Document

Variables = Mapping[str, Any]
Expression = Callable[[Document, Variables], Any]
"""Of the document and the variables in sight; MISSING where the result is no value at all."""


def compile_expression(expression: Any) -> Expression:
    """What an expression means.

    :raises Refusal: an operator is unknown or has a wrong argument.
    """
    if isinstance(expression, str) and expression.startswith("$"):
        return _variable(expression[2:]) if expression.startswith("$$") else _field(expression[1:])
    if isinstance(expression, list):
        return _array(expression)
    if isinstance(expression, Mapping):
        return _object(expression)
    return constant(expression)


def constant(value: Any) -> Expression:
    """The same value for every document."""
    return lambda _document, _variables: value


def _field(path: str) -> Expression:
    if not path:
        raise Refusal(16872, "'$' by itself is not a valid FieldPath")
    parts = path.split(".")
    if not all(parts):
        raise Refusal(15998, "FieldPath field names may not be empty strings.")
    if len(parts) == 1:
        return lambda document, _: document.get(path, MISSING) if isinstance(document, dict) else MISSING
    return lambda document, _: fetch(document, parts)


def _variable(path: str) -> Expression:
    name, *parts = path.split(".")
    if name in ("ROOT", "CURRENT"):
        return lambda document, _: fetch(document, parts)
    if name == "REMOVE":
        return constant(MISSING)
    if name == "NOW":
        now = datetime.now(UTC).replace(tzinfo=None)
        return constant(now)
    if name[:1].isupper():
        raise Refusal(17276, f"Use of undefined variable: {name}")

    def bound(_document: Document, variables: Variables) -> Any:
        if name not in variables:
            raise Refusal(17276, f"Use of undefined variable: {name}")
        return fetch(variables[name], parts)

    return bound


def _array(elements: list[Any]) -> Expression:
    parts = [compile_expression(element) for element in elements]

    def evaluate(document: Document, variables: Variables) -> Any:
        found = (part(document, variables) for part in parts)
        return [None if value is MISSING else value for value in found]

    return evaluate


def _object(expression: Mapping[str, Any]) -> Expression:
    operators = [name for name in expression if name.startswith("$")]
    if operators and len(expression) > 1:
        raise Refusal(15983, "an object representing an expression must have exactly one field")
    if operators:
        return _operator(operators[0], expression[operators[0]])
    fields = {name: compile_expression(inner) for name, inner in expression.items()}

    def evaluate(document: Document, variables: Variables) -> Any:
        found = ((name, field(document, variables)) for name, field in fields.items())
        return {name: value for name, value in found if value is not MISSING}

    return evaluate


def _operator(name: str, argument: Any) -> Expression:
    if name in ("$literal", "$const"):
        return constant(argument)
    if name == "$meta":
        return _meta(argument)
    from anamnesis_tests.mongo_server.expression_table import FORMS, FUNCTIONS

    if name in FORMS:
        return FORMS[name](argument)
    if name not in FUNCTIONS:
        raise Refusal(168, f"Unrecognized expression '{name}'")
    least, most, function = FUNCTIONS[name]
    given = argument if isinstance(argument, list) else [argument]
    if not least <= len(given) <= most:
        raise Refusal(16020, f"Expression {name} takes {_count(least, most)} arguments. {len(given)} were passed in.")
    parts = [compile_expression(each) for each in given]
    if len(parts) == 1:
        only = parts[0]
        return lambda document, variables: function(only(document, variables))
    return lambda document, variables: function(*(part(document, variables) for part in parts))


def _count(least: int, most: float) -> str:
    if least == most:
        return f"exactly {least}"
    return f"at least {least}" if most == float("inf") else f"at least {least} and at most {most}"


def _meta(argument: Any) -> Expression:
    """What a search stage knows of a document beside its fields."""
    if argument not in ("searchScore", "vectorSearchScore", "score", "searchHighlights", "textScore", "scoreDetails"):
        raise Refusal(17308, f"Unsupported argument to $meta: {argument}")
    return lambda document, _: metadata(document).get(argument, MISSING)


def arguments(given: Any, operator: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The named arguments of an operator.

    :raises Refusal: one is missing or unknown.
    """
    if not isinstance(given, Mapping):
        raise failed_to_parse(f"{operator} only supports an object as its argument")
    for name in given:
        if name not in required and name not in optional:
            raise failed_to_parse(f"{operator} found an unknown argument: {name}")
    for name in required:
        if name not in given:
            raise failed_to_parse(f"Missing '{name}' parameter to {operator}")
    return dict(given)

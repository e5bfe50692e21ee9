"""`$group` and its accumulators."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis_tests.mongo_server.expression_arrays import extreme, mean, total
from anamnesis_tests.mongo_server.expressions import Expression, arguments, compile_expression
from anamnesis_tests.mongo_server.ordering import sort_key
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.values import MISSING, Document, key_of

if TYPE_CHECKING:
    from anamnesis_tests.mongo_server.pipeline import Context

Accumulator = Callable[[list[Document], Mapping[str, Any]], Any]


def group(context: "Context", given: Any) -> Callable[[Iterable[Document]], Iterable[Document]]:
    """Documents with one key become one."""
    if not isinstance(given, Mapping):
        raise Refusal(15947, "a group's fields must be specified in an object")
    if "_id" not in given:
        raise Refusal(15955, "a group specification must include an _id")
    key = compile_expression(given["_id"])
    fields = {name: accumulator(spec, name) for name, spec in given.items() if name != "_id"}

    def step(documents: Iterable[Document]) -> Iterator[Document]:
        groups: dict[Any, tuple[Any, list[Document]]] = {}
        for document in documents:
            value = key(document, context.variables)
            value = None if value is MISSING else value
            groups.setdefault(key_of(value), (value, []))[1].append(document)
        for value, members in groups.values():
            yield {"_id": value} | {name: make(members, context.variables) for name, make in fields.items()}

    return step


def accumulator(spec: Any, name: str) -> Accumulator:
    """What becomes of a group.

    :raises Refusal: the accumulator is unknown.
    """
    if not isinstance(spec, Mapping) or len(spec) != 1:
        raise Refusal(40234 if not isinstance(spec, Mapping) else 40238,
                      f"The field '{name}' must be an accumulator object")  # fmt: skip
    operator, argument = next(iter(spec.items()))
    if operator == "$count":
        return lambda members, _: len(members)
    if operator in _SORTED:
        return _of_sorted(operator, argument)
    if operator in _SEVERAL:
        return _several(operator, argument)
    if operator not in _SIMPLE:
        raise Refusal(15952, f"unknown group operator '{operator}'")
    evaluate, make = compile_expression(argument), _SIMPLE[operator]
    return lambda members, variables: make([evaluate(member, variables) for member in members])


def _distinct(values: list[Any]) -> list[Any]:
    return list({key_of(value): value for value in values if value is not MISSING}.values())


def _first(values: list[Any]) -> Any:
    return None if values[0] is MISSING else values[0]


def _merged(values: list[Any]) -> Document:
    merged: Document = {}
    for value in values:
        merged |= value or {}
    return merged


def _joined(values: list[Any]) -> list[Any]:
    return [element for value in values if value is not MISSING for element in value]


_SIMPLE: dict[str, Callable[[list[Any]], Any]] = {
    "$sum": total,
    "$avg": mean,
    "$min": lambda values: extreme(values, min),
    "$max": lambda values: extreme(values, max),
    "$first": _first,
    "$last": lambda values: _first(values[::-1]),
    "$push": lambda values: [value for value in values if value is not MISSING],
    "$addToSet": _distinct,
    "$mergeObjects": _merged,
    "$concatArrays": _joined,
    "$setUnion": lambda values: _distinct(_joined(values)),
}
_SORTED = frozenset({"$top", "$bottom", "$topN", "$bottomN"})
_SEVERAL = frozenset({"$firstN", "$lastN", "$minN", "$maxN"})


def _listed(values: Iterable[Any]) -> list[Any]:
    return [None if value is MISSING else value for value in values]


def _of_sorted(operator: str, argument: Any) -> Accumulator:
    several = operator.endswith("N")
    given = arguments(argument, operator, ("sortBy", "output", "n") if several else ("sortBy", "output"))
    key, output = sort_key(list(given["sortBy"].items())), compile_expression(given["output"])
    count: Expression = compile_expression(given.get("n", 1))

    def make(members: list[Document], variables: Mapping[str, Any]) -> Any:
        wanted = int(count({}, variables))
        ordered = sorted(members, key=key)
        taken = ordered[:wanted] if operator.startswith("$top") else ordered[-wanted:]
        values = _listed(output(member, variables) for member in taken)
        return values if several else values[0]

    return make


def _several(operator: str, argument: Any) -> Accumulator:
    given = arguments(argument, operator, ("input", "n"))
    evaluate, count = compile_expression(given["input"]), compile_expression(given["n"])

    def make(members: list[Document], variables: Mapping[str, Any]) -> Any:
        wanted = int(count({}, variables))
        values = _listed(evaluate(member, variables) for member in members)
        if operator in ("$minN", "$maxN"):
            held = [value for value in values if value is not None]
            return sorted(held, key=key_of, reverse=operator == "$maxN")[:wanted]
        return values[:wanted] if operator == "$firstN" else values[-wanted:]

    return make

"""A filter of `find` as clauses of `$search`, so that `facets.py` alone knows what a `Where` means. Pure.

https://www.mongodb.com/docs/atlas/atlas-search/compound/ and the pages on `equals`, `in` and `range`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anamnesis_pipeline.store.mongo.collections import Document, Filter

_BOUNDS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


def any_of(operators: Sequence[Document]) -> Document:
    """What at least one of these operators finds, with the sum of their scores."""
    return operators[0] if len(operators) == 1 else {"compound": {"should": list(operators), "minimumShouldMatch": 1}}


def filtered(must: Sequence[Document], where: Filter) -> Document:
    """What every one of `must` finds that passes the filter, with the sum of their scores. Without both: everything."""
    required, hidden = _clauses(where)
    clauses: Document = {"must": list(must)} if must else {}
    if required:
        clauses["filter"] = required
    if hidden:
        clauses["mustNot"] = hidden
    return {"compound": clauses} if clauses else {"exists": {"path": "seq"}}


def _clauses(where: Filter) -> tuple[list[Document], list[Document]]:
    """What must be met, and what must not."""
    required: list[Document] = []
    hidden: list[Document] = []
    for name, value in _terms(where):
        if name == "$nor":
            hidden += [filtered([], part) for part in value]
        elif isinstance(value, Mapping) and (values := value.get("$nin")) is not None:
            hidden.append({"in": {"path": name, "value": values}})
        else:
            required.append(_operator(name, value))
    return required, hidden


def _terms(where: Filter) -> Iterable[tuple[str, Any]]:
    for name, value in where.items():
        if name == "$and":
            for part in value:
                yield from _terms(part)
        else:
            yield name, value


def _operator(name: str, value: Any) -> Document:
    if name == "$or":
        return any_of([filtered([], part) for part in value])
    if not isinstance(value, Mapping):
        return {"equals": {"path": name, "value": value}}
    if (values := value.get("$in")) is not None:
        return {"in": {"path": name, "value": values}}
    return {"range": {"path": name, **{_BOUNDS[bound]: limit for bound, limit in value.items()}}}

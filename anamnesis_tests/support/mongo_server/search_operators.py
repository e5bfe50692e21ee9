"""The operators of `$search` that the store uses, each a mapping of the rows that it finds to their scores.

https://www.mongodb.com/docs/atlas/atlas-search/operators-and-collectors/. Their form is checked by `search_shapes.py`.
What compares values scores 1; `filter` and `mustNot` score nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anamnesis_tests.support.mongo_server.search_errors import NotEmulated, query_refused
from anamnesis_tests.support.mongo_server.search_terms import Matches, TermField
from anamnesis_tests.support.mongo_server.search_values import ValuePostings, typed

NAMES = ("compound", "phrase", "equals", "in", "range", "exists")
_TYPE_OF_FIELD = {"string": "token"}
_BOUNDS = ("gt", "gte", "lt", "lte")


class Index(Protocol):
    """What operators look at (`search_text_index.py`)."""

    terms: dict[str, TermField]
    values: dict[str, tuple[str, ValuePostings]]
    paths: dict[str, set[int]]
    rows: set[int]


class Operators:
    """A query over an index."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def matches(self, body: Mapping[str, Any]) -> Matches:
        """The rows that an operator finds, where `body` holds it by its name.

        :raises SearchRefused: it asks for a path that is not mapped as it needs.
        """
        for name in NAMES:
            if name in body:
                found: Matches = getattr(self, f"_{name}")(body[name])
                return found
        raise NotEmulated(f"operators among {', '.join(body)}")

    def _compound(self, body: Mapping[str, Any]) -> Matches:
        must, should, left_out, required = (
            [self.matches(clause) for clause in _listed(body.get(name, ()))]
            for name in ("must", "should", "mustNot", "filter")
        )
        rows = set(self._index.rows) if not must + required + should else None
        for clause in must + required:
            rows = set(clause) if rows is None else rows & set(clause)
        at_least = body.get("minimumShouldMatch", 0) or int(not (must or required) and bool(should))
        if at_least or rows is None:
            within = set().union(*should) if rows is None else rows
            rows = {row for row in within if sum(row in clause for clause in should) >= at_least}
        rows = rows.difference(*left_out)
        return {row: sum(clause.get(row, 0.0) for clause in must + should) for row in rows}

    def _phrase(self, body: Mapping[str, Any]) -> Matches:
        return _sum([field.with_phrase(query) for field, query in self._asked(body)])

    def _asked(self, body: Mapping[str, Any]) -> list[tuple[TermField, str]]:
        """Every query at every path; a path that is not mapped finds nothing."""
        fields = [self._index.terms[path] for path in _listed(body["path"]) if path in self._index.terms]
        return [(field, query) for query in _listed(body["query"]) for field in fields]

    def _equals(self, body: Mapping[str, Any]) -> Matches:
        return _constant(self._field(body["path"], body["value"]).equal(body["value"]))

    def _in(self, body: Mapping[str, Any]) -> Matches:
        values = _listed(body["value"])
        fields = [self._field(path, values[0]) for path in _listed(body["path"])]
        return _constant(set().union(*(field.among(values) for field in fields)))

    def _range(self, body: Mapping[str, Any]) -> Matches:
        bounds = {name: body[name] for name in _BOUNDS if name in body}
        fields = [self._field(path, next(iter(bounds.values()))) for path in _listed(body["path"])]
        return _constant(set().union(*(field.between(bounds) for field in fields)))

    def _exists(self, body: Mapping[str, Any]) -> Matches:
        return _constant(self._index.paths.get(body["path"], set()))

    def _field(self, path: str, value: Any) -> ValuePostings:
        kind = (typed(value) or ("", None))[0]
        known, field = self._index.values.get(path, ("", None))
        if field is None or known != kind:
            raise query_refused(f"Path '{path}' needs to be indexed as {_TYPE_OF_FIELD.get(kind, kind)}")
        return field


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _constant(rows: set[int]) -> Matches:
    return dict.fromkeys(rows, 1.0)


def _sum(parts: Sequence[Matches]) -> Matches:
    found: Matches = {}
    for part in parts:
        for row, score in part.items():
            found[row] = found.get(row, 0.0) + score
    return found

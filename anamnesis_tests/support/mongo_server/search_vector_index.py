"""An index of type `vectorSearch`: vector fields and the fields that its queries filter by.

Operators of `filter`: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/ (pre-filter). Their
form is checked by `search_shapes.py`; here they are answered.
"""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.support.mongo_server.search_errors import query_refused
from anamnesis_tests.support.mongo_server.search_values import ValuePostings, values_at
from anamnesis_tests.support.mongo_server.search_vectors import VectorMatrix, read_vector

Hits = list[tuple[int, dict[str, Any]]]
Taken = dict[str, list[Any] | None]
"""What an index reads of a document: the values at its paths."""

_RANGES = {"$gt", "$gte", "$lt", "$lte"}


class VectorIndex:
    """What such an index holds of the documents of a collection, by row."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        fields = definition["fields"]
        self._vectors = {
            field["path"]: VectorMatrix(field["numDimensions"], field.get("quantization", "none"))
            for field in fields
            if field["type"] == "vector"
        }
        self._filters = {field["path"]: ValuePostings() for field in fields if field["type"] == "filter"}
        self._rows: set[int] = set()

    def take(self, document: Mapping[str, Any]) -> Taken:
        """What there is to index of a document, apart from it, since it may change before that happens."""
        return {path: values_at(document, path) for path in (*self._vectors, *self._filters)}

    def put(self, row: int, taken: Taken) -> None:
        """Index a row, in place of what it had."""
        self._rows.add(row)
        for path, vectors in self._vectors.items():
            vectors.remove(row)
            for value in taken[path] or ():
                if (vector := read_vector(value)) is not None:
                    vectors.put(row, vector)
        for path, values in self._filters.items():
            values.put(row, taken[path])

    def remove(self, row: int) -> None:
        """Forget a row."""
        self._rows.discard(row)
        for vectors in self._vectors.values():
            vectors.remove(row)
        for values in self._filters.values():
            values.remove(row)

    def query(self, stage: str, body: Mapping[str, Any]) -> Hits:
        """What `$vectorSearch` finds, best first.

        :raises SearchRefused: the query does not fit the index.
        """
        if stage != "$vectorSearch":
            raise query_refused(f"Cannot execute {stage} over vectorSearch index '{body.get('index', 'default')}'")
        if (vectors := self._vectors.get(body["path"])) is None:
            raise query_refused(f"{body['path']} is not indexed as vector")
        vector = read_vector(body["queryVector"])
        if vector is None or len(vector) != vectors.dimensions:
            raise query_refused(
                f"vector field is indexed with {vectors.dimensions} dimensions but queried with {vector!r:.60}"
            )
        rows = passing(body["filter"], self._filters, self._rows) if body.get("filter") else None
        if body.get("exact"):
            found = vectors.exact(vector, rows, body["limit"])
        else:
            found = vectors.approximate(vector, rows, body["numCandidates"], body["limit"])
        return [(row, {"vectorSearchScore": score}) for row, score in found]


def passing(where: Mapping[str, Any], fields: Mapping[str, ValuePostings], everything: set[int]) -> set[int]:
    """The rows of `everything` that pass.

    :raises SearchRefused: a field is not declared as one to filter by.
    """
    found = everything
    for name, value in where.items():
        found = found & _clause(name, value, fields, everything)
    return found


def _clause(name: str, value: Any, fields: Mapping[str, ValuePostings], everything: set[int]) -> set[int]:
    match name:
        case "$and":
            return set.intersection(*(passing(part, fields, everything) for part in value))
        case "$or":
            return set().union(*(passing(part, fields, everything) for part in value))
        case "$nor":
            return everything.difference(*(passing(part, fields, everything) for part in value))
    if name not in fields:
        raise query_refused(f"Path '{name}' needs to be indexed as filter")
    if not isinstance(value, Mapping):
        return fields[name].equal(value)
    found = everything
    for operator, asked in value.items():
        found = found & _condition(operator, asked, fields[name], everything)
    return found


def _condition(operator: str, value: Any, field: ValuePostings, everything: set[int]) -> set[int]:
    if operator in _RANGES:
        return field.between({operator.removeprefix("$"): value})
    if operator == "$in":
        return field.among(value)
    if operator == "$nin":
        return everything - field.among(value)
    raise query_refused(f'"filter.{operator}" unrecognized field')

"""An index of type `vectorSearch`: vector fields and the fields that its queries filter by."""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.search_errors import query_refused
from anamnesis_tests.mongo_server.search_filters import passing
from anamnesis_tests.mongo_server.search_values import ValuePostings, values_at
from anamnesis_tests.mongo_server.search_vectors import VectorField, VectorSpec, read_vector

Hits = list[tuple[int, dict[str, Any]]]
Taken = dict[str, list[Any] | None]
"""What an index reads of a document: the values at its paths."""


class VectorIndex:
    """What such an index holds of the documents of a collection, by row."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        fields = definition["fields"]
        self._vectors = {
            field["path"]: VectorField(VectorSpec.of(field)) for field in fields if field["type"] == "vector"
        }
        self._filters = {field["path"]: ValuePostings() for field in fields if field["type"] == "filter"}
        self._rows: set[int] = set()

    def take(self, document: Mapping[str, Any]) -> Taken:
        """What there is to index of a document, apart from it, since it may change before that happens."""
        return {path: values_at(document, path) for path in (*self._vectors, *self._filters)}

    def put(self, row: int, taken: Taken) -> None:
        """Index a row, in place of what it had."""
        self._rows.add(row)
        for path, vector in self._vectors.items():
            vector.put(row, taken[path])
        for path, values in self._filters.items():
            values.put(row, taken[path])

    def remove(self, row: int) -> None:
        """Forget a row."""
        self._rows.discard(row)
        for vector in self._vectors.values():
            vector.remove(row)
        for values in self._filters.values():
            values.remove(row)

    def query(self, stage: str, body: Mapping[str, Any]) -> Hits:
        """What `$vectorSearch` finds, best first.

        :raises SearchRefused: the query does not fit the index.
        """
        if stage != "$vectorSearch":
            raise query_refused(f"Cannot execute {stage} over vectorSearch index '{body.get('index', 'default')}'")
        kind, vector = self._asked(body)
        rows = passing(body["filter"], self._filters, self._rows) if body.get("filter") else None
        matrix = self._vectors[body["path"]].of(kind)
        if body.get("exact"):
            found = matrix.exact(vector, rows, body["limit"])
        else:
            found = matrix.approximate(vector, rows, body["numCandidates"], body["limit"])
        return [(row, {"vectorSearchScore": score}) for row, score in found]

    def _asked(self, body: Mapping[str, Any]) -> Any:
        path = body["path"]
        if path not in self._vectors:
            raise query_refused(f"{path} is not indexed as vector")
        spec = self._vectors[path].spec
        if (asked := read_vector(body["queryVector"])) is None:
            raise query_refused('"queryVector" must be a vector of float32 or int8')
        if len(asked[1]) != spec.dimensions:
            raise query_refused(
                f"vector field is indexed with {spec.dimensions} dimensions but queried with {len(asked[1])}"
            )
        if spec.similarity == "cosine" and not asked[1].any():
            raise query_refused("Cosine similarity cannot be calculated against a zero vector.")
        return asked

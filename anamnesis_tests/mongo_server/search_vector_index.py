"""An index of type `vectorSearch`: vector fields and the fields that its queries filter by."""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.search_errors import query_refused
from anamnesis_tests.mongo_server.search_filters import passing
from anamnesis_tests.mongo_server.search_values import ValuePostings, values_at
from anamnesis_tests.mongo_server.search_vectors import VectorMatrix, VectorSpec, read_vector

Hits = list[tuple[int, dict[str, Any]]]
Taken = dict[str, list[Any] | None]
"""What an index reads of a document: the values at its paths."""


class VectorIndex:
    """What such an index holds of the documents of a collection, by row."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        fields = definition["fields"]
        self._vectors = {
            field["path"]: VectorMatrix(VectorSpec(field["numDimensions"], field.get("quantization", "none")))
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
            values = taken[path] or []  # an array of numbers came apart
            vector = read_vector(values[0] if len(values) == 1 else values)
            vectors.remove(row)
            if vector is not None:
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

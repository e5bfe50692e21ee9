"""One vector field of a search index: its numbers as a matrix, and scores as Atlas gives them.

Scores: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-type/ (similarity functions); what
`quantization` changes: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-quantization/.
"""

from typing import Any

import numpy as np
from bson.binary import VECTOR_SUBTYPE, Binary, BinaryVectorDtype
from numpy.typing import NDArray

Numbers = NDArray[Any]
Scored = list[tuple[int, float]]
"""Rows and scores, best first."""

_COARSE_LEVELS = 7
"""What the walk through the graph is emulated by: numbers of so many steps on either side of zero."""


def read_vector(value: Any) -> Numbers | None:
    """The numbers of a vector in a document or query, shape (dim,); None for what is none that is known here."""
    if isinstance(value, Binary) and value.subtype == VECTOR_SUBTYPE:
        vector = value.as_vector()
        return np.asarray(vector.data, np.float32) if vector.dtype is BinaryVectorDtype.FLOAT32 else None
    return None


class VectorMatrix:
    """The vectors of one field, by row in the order in which they came. Rows without a vector are not here."""

    def __init__(self, dimensions: int, quantization: str) -> None:
        self.dimensions = dimensions
        self._quantization = quantization
        self._vectors: dict[int, Numbers] = {}
        self._all: tuple[NDArray[np.int64], Numbers] | None = None

    def put(self, row: int, vector: Numbers) -> None:
        """Keep a row's vector, shape (dim,). One of another width or not finite is not indexed."""
        self.remove(row)
        if len(vector) == self.dimensions and np.isfinite(vector).all():
            self._vectors[row] = vector

    def remove(self, row: int) -> None:
        """Forget a row."""
        self._vectors.pop(row, None)
        self._all = None

    def exact(self, query: Numbers, rows: set[int] | None, limit: int) -> Scored:
        """The `limit` best of `rows` (None: of all), by the numbers as they were written."""
        found, numbers = self._of(rows)
        return _best(found, _scores(numbers, query), limit)

    def approximate(self, query: Numbers, rows: set[int] | None, candidates: int, limit: int) -> Scored:
        """The `limit` best of so many `candidates`, which are found by coarse numbers: some of the best may be missing.

        A scalar index scores what it holds, which is quantized; a binary one finds candidates by signs and scores
        these with the numbers as they were written.
        """
        found, numbers = self._of(rows)
        _, every = self._of(None)
        if len(found) > candidates:
            step = (3 * float(every.std()) or 1.0) / _COARSE_LEVELS
            coarse = _scores(self._coarsened(numbers, step), self._coarsened(query, step))
            chosen = np.sort(np.argsort(-coarse, kind="stable")[:candidates])
            found, numbers = found[chosen], numbers[chosen]
        if self._quantization == "scalar":
            step = (float(np.abs(every).max(initial=0.0)) or 1.0) / 127
            numbers = np.rint(numbers / step) * step
        return _best(found, _scores(numbers, query), limit)

    def _of(self, rows: set[int] | None) -> tuple[NDArray[np.int64], Numbers]:
        """The rows that have a vector, and these, shape (rows, dim)."""
        if self._all is None:
            every = np.array(list(self._vectors.values()), np.float32).reshape(-1, self.dimensions)
            self._all = np.array(list(self._vectors), np.int64), every
        found, numbers = self._all
        if rows is None:
            return found, numbers
        chosen = np.isin(found, list(rows))
        return found[chosen], numbers[chosen]

    def _coarsened(self, numbers: Numbers, step: float) -> Numbers:
        """Signs for a binary index, else numbers of a few steps."""
        if self._quantization == "binary":
            return np.where(numbers > 0, 1, -1)
        return np.clip(np.rint(numbers / step), -_COARSE_LEVELS, _COARSE_LEVELS) * step


def _scores(numbers: Numbers, query: Numbers) -> Numbers:
    """Between 0 and 1, shape (len(numbers),); higher is nearer."""
    return np.asarray(np.maximum((1 + numbers.astype(np.float64) @ query.astype(np.float64)) / 2, 0))


def _best(rows: NDArray[np.int64], scores: Numbers, limit: int) -> Scored:
    order = np.argsort(-scores, kind="stable")[:limit]
    return [(int(rows[i]), float(np.float32(scores[i]))) for i in order]

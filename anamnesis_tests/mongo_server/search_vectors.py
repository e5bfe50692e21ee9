"""One vector field of a search index: its numbers as a matrix, and scores as Atlas gives them.

Scores: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-type/ (similarity functions); what
`quantization` changes: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-quantization/.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from bson.binary import VECTOR_SUBTYPE, Binary, BinaryVectorDtype
from numpy.typing import NDArray

Numbers = NDArray[Any]
Rows = NDArray[np.int64]

_FIRST_ROOM = 256
_COARSE_LEVELS = 7
"""What the walk through the graph is emulated by: numbers of so many steps on either side of zero."""


@dataclass(frozen=True, slots=True)
class VectorSpec:
    """A field of type `vector` in the definition of an index."""

    dimensions: int
    quantization: str


def read_vector(value: Any) -> Numbers | None:
    """The numbers of a vector in a document or query, shape (dim,); None for what is none that is known here."""
    if isinstance(value, Binary) and value.subtype == VECTOR_SUBTYPE:
        vector = value.as_vector()
        return np.asarray(vector.data, np.float32) if vector.dtype is BinaryVectorDtype.FLOAT32 else None
    if isinstance(value, list) and value and all(type(number) in (int, float) for number in value):
        return np.asarray(value, np.float32)
    return None


class VectorMatrix:
    """The vectors of one field. Rows are numbered by the index; those without a vector are not here."""

    def __init__(self, spec: VectorSpec) -> None:
        self._spec = spec
        self._numbers: Numbers = np.zeros((_FIRST_ROOM, spec.dimensions), dtype=np.float32)
        self._place_of: dict[int, int] = {}
        self._row_at: Rows = np.full(_FIRST_ROOM, -1, dtype=np.int64)
        self._free: list[int] = []
        self._used = 0
        self._changed: set[int] = set()
        self._measured = 0
        self._spread = self._bound = 1.0
        self._coarse: Numbers = np.zeros((0, spec.dimensions), dtype=np.float32)
        self._quantized: Numbers = self._coarse

    def put(self, row: int, vector: Numbers) -> None:
        """Keep a row's vector, shape (dim,). One of another width or not finite is not indexed."""
        self.remove(row)
        if len(vector) != self._spec.dimensions or not np.isfinite(vector).all():
            return
        place = self._free.pop() if self._free else self._next_place()
        self._numbers[place] = vector
        self._row_at[place] = row
        self._place_of[row] = place
        self._changed.add(place)

    def remove(self, row: int) -> None:
        """Forget a row."""
        if (place := self._place_of.pop(row, None)) is not None:
            self._row_at[place] = -1
            self._free.append(place)

    def exact(self, query: Numbers, rows: set[int] | None, limit: int) -> list[tuple[int, float]]:
        """The `limit` best of `rows` (None: of all), by the numbers as they were written."""
        places = self._places(rows)
        return self._best(places, self._scores(self._numbers[places], query), limit)

    def approximate(
        self, query: Numbers, rows: set[int] | None, candidates: int, limit: int
    ) -> list[tuple[int, float]]:
        """The `limit` best of so many `candidates`, which are found by coarse numbers: some of the best may be missing.

        A scalar index scores what it holds, which is quantized; a binary one finds candidates by signs and scores
        these with the numbers as they were written.
        """
        self._refresh()
        places = self._places(rows)
        if len(places) > candidates:
            coarse = self._scores(self._coarse[places], self._coarsened(query), np.float32)
            places = places[np.sort(np.argsort(-coarse, kind="stable")[:candidates])]
        held = self._quantized if self._is_scalar else self._numbers
        return self._best(places, self._scores(held[places], query), limit)

    @property
    def dimensions(self) -> int:
        """Of each vector."""
        return self._spec.dimensions

    @property
    def _is_scalar(self) -> bool:
        return self._spec.quantization == "scalar"

    def _places(self, rows: set[int] | None) -> Rows:
        """Where the rows are, in the order in which they came."""
        if rows is None:
            return np.flatnonzero(self._row_at[: self._used] >= 0)
        return np.sort(np.array([self._place_of[row] for row in rows if row in self._place_of], dtype=np.int64))

    def _best(self, places: Rows, scores: Numbers, limit: int) -> list[tuple[int, float]]:
        order = np.argsort(-scores, kind="stable")[:limit]
        return [(int(self._row_at[places[i]]), float(np.float32(scores[i]))) for i in order]

    def _scores(self, numbers: Numbers, query: Numbers, precision: type[np.floating[Any]] = np.float64) -> Numbers:
        """Between 0 and 1, shape (len(numbers),); higher is nearer."""
        held, asked = numbers.astype(precision, copy=False), query.astype(precision, copy=False)
        dots = held @ asked
        return np.asarray(np.maximum((1 + dots) / 2, 0))

    def _refresh(self) -> None:
        """Make the coarse and quantized numbers of what changed; of all of them when there is twice as much as when
        their range was measured.
        """
        if not self._changed:
            return
        if self._used >= 2 * self._measured:
            self._measured = self._used
            self._changed = set(range(self._used))
            self._spread = 3 * float(self._numbers[: self._used].std()) or 1.0
            self._bound = float(np.abs(self._numbers[: self._used]).max()) or 1.0
        if len(self._coarse) < len(self._numbers):
            self._coarse, self._quantized = (
                _with_room(held, len(self._numbers)) for held in (self._coarse, self._quantized)
            )
        places = np.fromiter(self._changed, dtype=np.int64, count=len(self._changed))
        self._coarse[places] = self._coarsened(self._numbers[places])
        if self._is_scalar:
            steps = np.rint(self._numbers[places] / self._bound * 127)
            self._quantized[places] = steps * (self._bound / 127)
        self._changed = set()

    def _coarsened(self, numbers: Numbers) -> Numbers:
        """Signs for a binary index, else numbers of a few steps; the width of a step is that of the field's numbers."""
        if self._spec.quantization == "binary":
            return np.where(numbers > 0, 1, -1).astype(np.float32)
        steps = np.clip(np.rint(numbers / self._spread * _COARSE_LEVELS), -_COARSE_LEVELS, _COARSE_LEVELS)
        return (steps * (self._spread / _COARSE_LEVELS)).astype(np.float32)

    def _next_place(self) -> int:
        if self._used == len(self._numbers):
            self._numbers = _with_room(self._numbers, 2 * self._used)
            self._row_at = np.concatenate([self._row_at, np.full_like(self._row_at, -1)])
        self._used += 1
        return self._used - 1


def _with_room(numbers: Numbers, room: int) -> Numbers:
    """The same numbers with zeros after them, shape (room, dim)."""
    more = np.zeros((room - len(numbers), numbers.shape[1]), dtype=numbers.dtype)
    return np.concatenate([numbers, more])

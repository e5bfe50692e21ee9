"""Values of documents as a search index keeps them: by type, with the documents that have them."""

from collections.abc import Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any

Typed = tuple[str, Any]
"""Type and value. Values of one type compare with each other; those of two never match."""

_BOUNDS = {"gt": gt, "gte": ge, "lt": lt, "lte": le}


def typed(value: Any) -> Typed | None:
    """A value with its type as search indexes tell them apart, None for what the store does not have them index."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return "number", value
    return ("string", value) if isinstance(value, str) else None


def values_at(document: Mapping[str, Any], name: str) -> list[Any] | None:
    """Each value of a field, of which an array has several; None where there is no such field."""
    if name not in document:
        return None
    value = document[name]
    return list(value) if isinstance(value, list | tuple) else [value]


class ValuePostings:
    """Which rows have which values in one field. An array is each of its elements."""

    def __init__(self) -> None:
        self._rows: dict[Typed, set[int]] = {}
        self._values: dict[int, Sequence[Typed]] = {}

    def put(self, row: int, values: Iterable[Any] | None) -> None:
        """Keep what a row has now; None: it has no such field."""
        self.remove(row)
        if values is None:
            return
        self._values[row] = [known for value in values if (known := typed(value)) is not None]
        for known in self._values[row]:
            self._rows.setdefault(known, set()).add(row)

    def remove(self, row: int) -> None:
        """Forget a row."""
        for known in set(self._values.pop(row, ())):
            self._rows[known].discard(row)
            if not self._rows[known]:
                del self._rows[known]

    def equal(self, value: Any) -> set[int]:
        """Rows with a value. A number equals whatever its type is."""
        known = typed(value)
        return set(self._rows.get(known, ())) if known else set()

    def among(self, values: Iterable[Any]) -> set[int]:
        """Rows with any of the values."""
        return set().union(*(self.equal(value) for value in values))

    def between(self, bounds: Mapping[str, Any]) -> set[int]:
        """Rows with a value, of the bounds' type, that keeps all of `bounds`: gt, gte, lt, lte."""
        limits = [(_BOUNDS[name], typed(limit) or ("", None)) for name, limit in bounds.items()]
        return set().union(
            *(
                rows
                for (kind, value), rows in self._rows.items()
                if all(kind == limit[0] and keeps(value, limit[1]) for keeps, limit in limits)
            )
        )

"""Values of documents as a search index keeps them: by type, with the documents that have them."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from bson.binary import UUID_SUBTYPE, Binary

Typed = tuple[str, Any]
"""Type and value. Values of one type compare with each other; those of two never match."""


def typed(value: Any) -> Typed | None:
    """A value with its type as search indexes tell them apart, None for what they do not index.

    Decimal128 is none of theirs (https://www.mongodb.com/docs/atlas/atlas-search/define-field-mappings/).
    """
    if value is None:
        return "null", None
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int | float):
        return "number", value
    if isinstance(value, str):
        return "string", value
    if isinstance(value, datetime):
        return "date", value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, ObjectId):
        return "objectId", value
    if isinstance(value, uuid.UUID):
        return "uuid", value.bytes
    if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE:
        return "uuid", bytes(value)
    return None


def values_at(document: Any, path: str) -> list[Any] | None:
    """Everything at a dotted path, arrays opened, in order; None where the path does not exist."""
    name, _, rest = path.partition(".")
    if isinstance(document, list | tuple):
        found = [values_at(item, path) for item in document]
        known = [values for values in found if values is not None]
        return [value for values in known for value in values] if known else None
    if not isinstance(document, Mapping) or name not in document:
        return None
    value = document[name]
    if rest:
        return values_at(value, rest)
    return list(value) if isinstance(value, list | tuple) else [value]


class ValuePostings:
    """Which rows have which values at one path. An array is each of its elements."""

    def __init__(self) -> None:
        self._rows: dict[Typed, set[int]] = {}
        self._values: dict[int, Sequence[Typed]] = {}

    def put(self, row: int, values: Iterable[Any] | None) -> None:
        """Keep what a row has now; None: the path does not exist in it."""
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
        """Rows with a value. A number equals whatever its type is; a boolean is no number."""
        known = typed(value)
        return set(self._rows.get(known, ())) if known else set()

    def among(self, values: Iterable[Any]) -> set[int]:
        """Rows with any of the values."""
        return set().union(*(self.equal(value) for value in values))

    def between(self, bounds: Mapping[str, Any]) -> set[int]:
        """Rows with a value, of the bounds' type, that keeps all of `bounds`: gt, gte, lt, lte."""
        limits = [(name, typed(limit)) for name, limit in bounds.items()]
        kinds = {known[0] for _, known in limits if known}
        return set().union(
            *(
                rows
                for (kind, value), rows in self._rows.items()
                if {kind} == kinds and all(_keeps(name, value, known) for name, known in limits)
            )
        )

    def existing(self) -> set[int]:
        """Rows where the path exists, with null, too."""
        return set(self._values)

    def of_row(self, row: int) -> Sequence[Typed]:
        """What a row has."""
        return self._values.get(row, ())


def _keeps(name: str, value: Any, limit: Typed | None) -> bool:
    if limit is None:
        return False
    match name:
        case "gt":
            return bool(value > limit[1])
        case "gte":
            return bool(value >= limit[1])
        case "lt":
            return bool(value < limit[1])
        case _:
            return bool(value <= limit[1])

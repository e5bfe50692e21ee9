"""The order of hits: by score, or as `sort` says (https://www.mongodb.com/docs/atlas/atlas-search/sort/)."""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.search_terms import Matches
from anamnesis_tests.mongo_server.search_values import Typed, ValuePostings

_TYPES = ("null", "number", "string", "uuid", "objectId", "boolean", "date")
"""From low to high, as BSON orders types; a document without the field counts as null."""

Values = Mapping[str, Mapping[str, ValuePostings]]


def ordered(matches: Matches, sort: Mapping[str, Any] | None, values: Values) -> list[int]:
    """The rows in order; of equals the one that was indexed first."""
    rows = sorted(matches)
    for path, direction in reversed(list((sort or {"score": {"$meta": "searchScore"}}).items())):
        if isinstance(direction, Mapping) and "$meta" in direction:
            rising = direction.get("order", -1) == 1
            rows.sort(key=lambda row: matches[row], reverse=not rising)
            continue
        rising = (direction["order"] if isinstance(direction, Mapping) else direction) == 1
        rows.sort(key=lambda row: _key(row, path, rising, values), reverse=not rising)
    return rows


def _key(row: int, path: str, rising: bool, values: Values) -> tuple[int, Any]:
    """An array counts as its lowest value where order rises, else as its highest."""
    keys = [_comparable(value) for field in values.get(path, {}).values() for value in field.of_row(row)]
    return (min(keys) if rising else max(keys)) if keys else (0, 0)


def _comparable(value: Typed) -> tuple[int, Any]:
    kind, known = value
    return _TYPES.index(kind), 0 if known is None else known

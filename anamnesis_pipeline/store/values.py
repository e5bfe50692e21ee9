"""How values are stored, the same for every backend: texts, instants and lists. Pure."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.file_names import composed

LAST_CHARACTER = "\U0010ffff"
"""Behind every text that begins with some others, and before what follows those."""


def clean(text: str) -> str:
    """`text` without lone surrogates, which no store can hold; each becomes U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def indexed(text: str) -> str:
    """`text` as words and names are stored and looked for: `clean`, in the composed form of Unicode."""
    return composed(clean(text))


def spellings(names: Iterable[str]) -> list[str]:
    """Names as they may be stored: as they are given, and in the composed form of Unicode."""
    return sorted({spelling for name in names for spelling in (name, composed(name))})


def sought(text: str) -> str:
    """`text` as it may be looked for. What has a lone surrogate is stored nowhere, so that this finds nothing."""
    known = clean(text)
    return text if known == text else f"{known}\0"


def instant(when: datetime) -> str:
    """ISO-8601 in UTC with microseconds, so that the order of texts is the order of times.

    :raises ValueError: `when` has no time zone.
    """
    if when.tzinfo is None:
        raise ValueError(f"{when.isoformat()} has no time zone; times in a store are UTC")
    return when.astimezone(UTC).isoformat(timespec="microseconds")


def moment(text: str) -> datetime:
    """The inverse of `instant`."""
    return datetime.fromisoformat(text)


def as_json(value: Any) -> str:
    """Compact JSON, ASCII only: it survives any text a log may hold."""
    return json.dumps(value, separators=(",", ":"))


def json_list(values: Iterable[Any]) -> str:
    """A JSON array, e.g. the argument of `json_each`."""
    return as_json(list(values))

"""How values are stored, the same for every backend: texts, instants, lists, and cursors of pages. Pure."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.text.file_names import composed

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


as_json = json.JSONEncoder(separators=(",", ":")).encode
"""Compact JSON, ASCII only: it survives any text a log may hold."""


def json_list(values: Iterable[Any]) -> str:
    """A JSON array, e.g. the argument of `json_each`."""
    return as_json(list(values))


# --- where a page ends: a cursor -------------------------------------------------------------------------

CURSOR_PATTERN = r"^-?[0-9]{1,16}-([0-9a-f]{2}){0,800}$"
"""`<microseconds since 1970>-<id in hex>`: safe in a URL, and every text of this form is a place in the list."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def cursor_after(last: Episode) -> str:
    """The cursor of the page that follows `last`, newest first."""
    return cursor_at(last.timestamp, last.episode_id)


def cursor_at(when: datetime, name: str) -> str:
    """The cursor of what follows, in a list by (time, id), newest first."""
    return f"{(when - _EPOCH) // timedelta(microseconds=1)}-{name.encode().hex()}"


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """(timestamp, episode id) that the page follows.

    :raises InvalidEpisode: it is not one of ours.
    """
    microseconds, _, episode_id = cursor.rpartition("-")
    try:
        when = _EPOCH + timedelta(microseconds=int(microseconds))
        return when, bytes.fromhex(episode_id).decode(errors="replace")
    except (ValueError, OverflowError) as exc:
        raise InvalidEpisode("cursor", f"{cursor[:80]!r} is none of ours; take it from `next_cursor`") from exc

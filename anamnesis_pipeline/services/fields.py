"""Field types of requests: each has one pattern, used by both the check and the OpenAPI document.

The patterns are valid for ECMA-262, Rust and Python alike, so that a client that generates data from the document is
never refused.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema
from typing_extensions import TypedDict

RESERVED_SEGMENTS = ("search", "bulk", "reembed", "recent", "upload", "ingest-url", "rolling")
"""First path segments that routes use; no id may begin with them."""
RESERVED_END = "exclude"
"""Last path segment that a route uses; no id may end with it."""

MAX_METADATA_BYTES = 64 * 1024
MAX_METADATA_DEPTH = 16

_BLANKS = r"\x00-\x20\x7f-\xa0\xad\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
"""Spaces, line ends, control and invisible formatting characters; the body of a regular expression's class."""

_UNPRINTABLE = _BLANKS.replace(r"\x00-\x20", r"\x00-\x1f") + r"\ue000-\uf8ff\ufff0-\uffff"

TEXT_PATTERN = r"^[^\x00]*$"
WORDED_PATTERN = rf"^[^\x00]*[^{_BLANKS}][^\x00]*$"
"""At least one visible character."""

ID_PATTERN = (
    rf"^(?!(?:{'|'.join(RESERVED_SEGMENTS)})(?:/|$))"
    rf"(?!.*/{RESERVED_END}$)"
    r"(?!\.{1,2}(?:/|$))(?!.*/\.{1,2}(?:/|$))"  # clients resolve dot segments before sending
    rf"[^{_UNPRINTABLE}]{{1,200}}$"
)

_YEAR = "(?:19[7-9][0-9]|2[01][0-9]{2}|2200)"
_LEAP_YEAR = "(?:19(?:7[26]|8[048]|9[26])|20(?:[02468][048]|[13579][26])|21(?:0[48]|[2468][048]|[13579][26]))"
_MONTH_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
TIME_PATTERN = f"^(?:{_YEAR}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)(?:[T ]{_CLOCK}{_ZONE}?)?$"

_TIME = re.compile(TIME_PATTERN)
_ID = re.compile(ID_PATTERN)


def parse_time(value: object) -> datetime:
    """Parse an ISO 8601 date or date-time of the years 1970 to 2200 as UTC; without a zone it is UTC.

    :raises ValueError: anything else.
    """
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("should be an ISO 8601 date or date-time of the years 1970 to 2200, e.g. 2026-03-14T09:26:53Z")
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def whole_number(value: object) -> object:
    """Return a whole float as int: JSON has one kind of number, 5.0 is 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_id(value: str) -> str:
    """Return the id.

    :raises ValueError: it is empty, too long, not printable, or shadowed by a fixed route.
    """
    if not _ID.fullmatch(value):
        raise ValueError(
            "an id has 1 to 200 printable characters, no '.' or '..' segment, and does not begin with one of the "
            f"segments {', '.join(RESERVED_SEGMENTS)}, nor ends with /{RESERVED_END}"
        )
    return value


def check_metadata(value: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata, if it is JSON that every store accepts.

    :raises ValueError: it is too large or too deep, or contains NUL, half a surrogate pair, NaN or an infinity.
    """
    _check_json(value, MAX_METADATA_DEPTH)
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"has {size} bytes as JSON; at most {MAX_METADATA_BYTES} are kept")
    return value


def _check_json(value: Any, depth: int) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number that JSON does not know")
    elif isinstance(value, dict | list):
        if depth == 0:
            raise ValueError(f"is nested more than {MAX_METADATA_DEPTH} levels deep")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_json(item, depth - 1)


def _check_text(text: str) -> None:
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("holds a NUL character or half of a surrogate pair")


WHOLE = BeforeValidator(whole_number)
Text = Annotated[str, Field(pattern=TEXT_PATTERN)]
Name = Annotated[str, Field(max_length=200, pattern=WORDED_PATTERN)]
Kind = Annotated[str, Field(max_length=50, pattern=WORDED_PATTERN)]
Tag = Annotated[str, Field(max_length=100, pattern=WORDED_PATTERN)]
Tags = Annotated[list[Tag], Field(max_length=50)]
SummaryText = Annotated[str, Field(max_length=50_000, pattern=WORDED_PATTERN)]
QueryText = Annotated[str, Field(max_length=10_000, pattern=WORDED_PATTERN)]
Time = Annotated[
    datetime,
    PlainValidator(parse_time),
    WithJsonSchema({"type": "string", "pattern": TIME_PATTERN, "examples": ["2026-03-14T09:26:53Z", "2026-03-14"]}),
]
EpisodeId = Annotated[
    str,
    AfterValidator(check_id),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 200, "pattern": ID_PATTERN}),
]
Metadata = Annotated[
    dict[str, Any],
    AfterValidator(check_metadata),
    WithJsonSchema(
        {
            "type": "object",
            "description": f"Any JSON, at most {MAX_METADATA_BYTES} bytes and {MAX_METADATA_DEPTH} levels deep",
            "propertyNames": {"pattern": TEXT_PATTERN},
            "additionalProperties": {"$ref": "#/components/schemas/JsonValue"},
        }
    ),
]

JSON_VALUE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": ["null", "boolean", "number"]},
        {"type": "string", "pattern": TEXT_PATTERN},
        {"type": "array", "items": {"$ref": "#/components/schemas/JsonValue"}},
        {
            "type": "object",
            "propertyNames": {"pattern": TEXT_PATTERN},
            "additionalProperties": {"$ref": "#/components/schemas/JsonValue"},
        },
    ]
}


MAX_ERRORS = 100
_PLAIN_MESSAGES = {
    "string_pattern_mismatch": "is blank, or holds a character that is not allowed here",
    "string_unicode": "holds half of a surrogate pair",
    "extra_forbidden": "is not a known field",
    "model_type": "should be a JSON object",
    "model_attributes_type": "should be a JSON object",
    "dict_type": "should be a JSON object",
}


class FieldError(TypedDict):
    """What is wrong with one field; an empty path means the whole body."""

    path: str
    message: str


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Convert pydantic's errors to paths and messages, without the values sent."""
    listed = islice(errors, MAX_ERRORS)
    return [{"path": _path(error["loc"]), "message": _message(error)} for error in listed]


def _path(location: Sequence[Any]) -> str:
    # repr, since a field name comes from the caller and may contain anything
    pieces = (piece if isinstance(piece, str) and piece.isprintable() else repr(piece) for piece in location)
    return ".".join(pieces)[:MAX_PATH_CHARS]


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    return _PLAIN_MESSAGES.get(error["type"]) or str(error["msg"])


MAX_PATH_CHARS = 200

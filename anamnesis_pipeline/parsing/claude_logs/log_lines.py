"""Convert one log line to records: whole, torn, joined, or damaged."""

import json
from typing import Any

from pydantic_core import from_json

from anamnesis_pipeline.model import BEGINS_LONG
from anamnesis_pipeline.parsing.claude_logs.wide_text import holds_more_values

Record = dict[str, Any]

MAX_RESTARTS = 500
"""Positions of a damaged line that are tried as the beginning of a record."""

RESTART_WORK = 8
"""Characters that may be read again meanwhile, as a multiple of the line's length."""

LONG_LINE = 16 << 20
MAX_VALUES = 1_000_000
"""Limit of values on a decoded line longer than `LONG_LINE`: one with its name takes about 200 bytes of memory."""

_DECODER = json.JSONDecoder(strict=False)
_ENVELOPE = frozenset({"uuid", "parentUuid", "sessionId", "timestamp", "message", "messageId", "leafUuid"})


def read_records(line: str) -> tuple[list[Record], bool]:
    """Return the records on one line, and whether some of the line could not be read.

    A record torn off by a crash may be followed by the next on the same line: the later, complete one is recovered.
    """
    if line.startswith(BEGINS_LONG) or has_too_many_values(line):
        return [], True
    try:
        value = _decoded(line)
    except (ValueError, RecursionError):
        records, damaged = _recover(line.replace("\x00", "").replace("\ufeff", "").strip())
    else:
        records, damaged = ([value], False) if isinstance(value, dict) else ([], True)
    if ("\\u" in line and ("\\ud" in line or "\\uD" in line)) or not _is_encodable(line):
        records = [_mended(record) for record in records]
    return records, damaged


def _decoded(line: str) -> Any:
    """Return the JSON value of a line.

    :raises ValueError: it is none.
    :raises RecursionError: it is nested too deeply.
    """
    if len(line) <= LONG_LINE:  # the fast decoder would keep a copy of a longer one
        try:
            return from_json(line)
        except (ValueError, TypeError):  # or it has a lone surrogate, or goes deeper than this one
            pass
    return json.loads(line)


def has_too_many_values(line: str) -> bool:
    """Return whether decoding a huge line would take too much memory."""
    return len(line) > LONG_LINE and holds_more_values(line, MAX_VALUES)


def _recover(line: str) -> tuple[list[Record], bool]:
    """Return complete records on a damaged line: each must end where the line or the next record does."""
    records: list[Record] = []
    position, lost, work = 0, False, RESTART_WORK * len(line)
    for _ in range(MAX_RESTARTS):
        if position >= len(line) or work < 0:
            break
        value, end = _decode_at(line, position)
        work -= end - position
        is_whole = isinstance(value, dict) and (end == len(line) or line.startswith('{"', end))
        if is_whole and (position == 0 or _is_enveloped(value)):
            records.append(value)
            position = end
            continue
        lost = True
        position = line.find('{"', position + 1)
        if position < 0:
            break
    return records, lost or 0 <= position < len(line)


def _is_enveloped(value: Record) -> bool:
    """Return whether an object found inside a line is a record, and not a piece of a torn one."""
    return isinstance(value.get("type"), str) and not _ENVELOPE.isdisjoint(value)


def _decode_at(line: str, position: int) -> tuple[Any, int]:
    """Return the JSON value at `position` (None if there is none) and the end position, behind trailing spaces."""
    try:
        value, end = _DECODER.raw_decode(line, position)
    except json.JSONDecodeError as exc:
        return None, max(exc.pos, position)
    except RecursionError:
        return None, len(line)
    while end < len(line) and line[end].isspace():
        end += 1
    return value, end


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mended(value: Any) -> Any:
    """Return `value` with lone surrogates, which no store can encode, replaced by U+FFFD."""
    if isinstance(value, str):
        return (
            value if _is_encodable(value) else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        )
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value

"""Hold huge texts in less memory: one emoji in a `str` makes each of its characters take 4 bytes. Pure."""

import json
import re
import sys
from collections.abc import Iterator, Sequence

HUGE_BYTES = 32 << 20
"""Texts that take less memory stay unchanged."""
SLICE = 1 << 12
"""Characters checked together: those of a slice without an emoji take 1 or 2 bytes each."""
_MARKS = (",", "{", "[")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Also an unterminated one."""
_WIDE = re.compile("[\U00010000-\U0010ffff]+")


def slices(text: str, start: int, end: int) -> Iterator[str]:
    """Yield `text[start:end]` in pieces, which take less memory than the whole if most of them are narrow."""
    return (text[at : min(at + SLICE, end)] for at in range(start, end, SLICE))


def narrowed(line: str) -> str:
    """Return an equivalent line that takes less memory, if it saves much.

    Each character beyond 16 bits becomes an escape of JSON: it is inside a string.
    """
    if not _is_wide(line) or len(line.encode("utf-8", "replace")) > 1.5 * len(line):
        return line
    return "".join(_WIDE.sub(lambda wide: json.dumps(wide[0])[1:-1], piece) for piece in slices(line, 0, len(line)))


def holds_more_values(line: str, most: int) -> bool:
    """Return whether a line of JSON has more than `most` commas, objects and lists outside of its strings.

    Takes no memory. Quotes inside strings are escaped, so one behind a comma or a brace begins a string, or ends one;
    there are at most two strings for each value.
    """
    if sum(map(line.count, _MARKS)) <= most:
        return False
    if sum(map(line.count, (',"', ', "', '{"'))) > 3 * most + 1:
        return True
    values = at = 0
    for string in _STRING.finditer(line):
        values += _marks(line, at, string.start())
        if values > most:
            return True
        at = string.end()
    return values + _marks(line, at, len(line)) > most


def _marks(line: str, start: int, end: int) -> int:
    return sum(line.count(mark, start, end) for mark in _MARKS) if end - start > 1 else line[start:end] in _MARKS


def flattened(pieces: Sequence[str], whole: str) -> str:
    """Return joined `pieces`; if `whole` is huge because of them, each character beyond 16 bits is replaced."""
    if not _is_wide(whole):
        return "".join(pieces)
    return "".join(_WIDE.sub(lambda wide: "\xbf" * len(wide[0]), piece) for piece in pieces)


def _is_wide(text: str) -> bool:
    return sys.getsizeof(text) >= max(HUGE_BYTES, 4 * len(text))

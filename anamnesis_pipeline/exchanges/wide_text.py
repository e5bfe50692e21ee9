"""Huge texts in less memory: one emoji in a `str` makes each of its characters take 4 bytes. Pure."""

import json
import re
import sys
from collections.abc import Iterator, Sequence

HUGE_BYTES = 32 << 20
"""Texts that take less memory stay as they are."""
SLICE = 1 << 12
"""Characters that are looked at together: those of a slice without an emoji take 1 or 2 bytes each."""
_MARKS = (",", "{", "[")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Also one that does not end."""
_WIDE = re.compile("[\U00010000-\U0010ffff]+")


def slices(text: str, start: int, end: int) -> Iterator[str]:
    """`text[start:end]` in pieces, which together take less memory than the whole where most of them are narrow."""
    return (text[at : min(at + SLICE, end)] for at in range(start, end, SLICE))


def narrowed(line: str) -> str:
    """A line that says the same in less memory, where that is much less.

    What is beyond 16 bits becomes an escape of JSON: it stands inside strings only.
    """
    if not _is_wide(line) or len(line.encode("utf-8", "replace")) > 1.5 * len(line):
        return line
    return "".join(_WIDE.sub(_escaped, piece) for piece in slices(line, 0, len(line)))


def holds_more_values(line: str, most: int) -> bool:
    """Whether there are more than so many commas, objects and lists on a line of JSON, those inside its strings aside.

    Takes no memory. Quotes inside strings are escaped, so that one behind a comma or a brace begins a string, or ends
    one; there are at most two strings for each value.
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
    """`pieces` joined, with another character for each that is beyond 16 bits if `whole` is huge for their sake."""
    if not _is_wide(whole):
        return "".join(pieces)
    return "".join(_WIDE.sub(lambda wide: "\xbf" * len(wide[0]), piece) for piece in pieces)


def _is_wide(text: str) -> bool:
    return sys.getsizeof(text) >= max(HUGE_BYTES, 4 * len(text))


def _escaped(wide: re.Match[str]) -> str:
    return json.dumps(wide[0])[1:-1]

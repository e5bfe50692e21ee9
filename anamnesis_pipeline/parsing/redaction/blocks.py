"""Private keys between their frame lines, and secrets wrapped over lines. Pure, and linear in the text.

Positions are those of the raw text: a line may end in an escape of JSON, at any depth, instead of a line break.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any

_BEGINS = (
    r"-----BEGIN (?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----"
    r"|---- BEGIN SSH2 ENCRYPTED[ ]PRIVATE KEY ----|PuTTY-User-Key-File-[23]:"
)
_ENDS = (
    r"-----END (?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V1)-----"
    r"|---- END SSH2 ENCRYPTED PRIVATE KEY ----|Private-MAC: ?[0-9a-f]{40,64}"
)
_FRAMES = re.compile(f"(?P<begins>{_BEGINS})|{_ENDS}")
_RUNS = re.compile(r"[A-Za-z0-9+/=]{16,}")
_FEWEST_CHARS = 24
"""A shorter run of base64 between the frames is no key."""
_TORN = re.compile(
    r"(?>[\s\",+\-\\]{0,40}+(?:(?:[nrt]|u2192)?[0-9]{1,6}(?:[\s:→\-]|\\+(?:t|u2192)){1,3})?"
    r"(?:n?[A-Za-z\-]{3,16}: ?[^\n\"\\]{1,90}+|[A-Za-z0-9+/=]{16,}+))++"
)
"""Lines of a key whose end is missing: numbered, in a diff, or below headers."""


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of private keys: each from its first frame line to its last, or to the end of its lines.

    A frame line ends the previous key, so that no character is read twice.
    """
    if "PRIVATE KEY" not in text and "PuTTY-User-Key" not in text and "Static key" not in text:
        return
    frames = list(_FRAMES.finditer(text))
    for number, frame in enumerate(frames):
        if not frame["begins"]:
            continue
        following = frames[number + 1] if number + 1 < len(frames) else None
        low, high = frame.end(), following.start() if following else len(text)
        fewest = max(_FEWEST_CHARS, (high - low) // 3)
        if following and not following["begins"] and _runs(text, low, high) >= fewest:
            yield frame.start(), following.end()
        elif (torn := _TORN.match(text, low, high)) and _runs(text, low, torn.end()) >= _FEWEST_CHARS:
            yield frame.start(), torn.end()


def _runs(text: str, low: int, high: int) -> int:
    return sum(len(run[0]) for run in _RUNS.finditer(text, low, high))


_LINE = re.compile(
    r"\\*(?:\r?\n|(?<=\\)(?:r\\+)?n)(?:[ \t]|\\+t)*+([A-Za-z0-9+/_\-]{4,}+={0,2})(?=[\"'`\s,;)\]}\\]|\Z)"
)
_WRAPPED_AT = 40
"""Minimum length of a line filled by a wrapped value."""
_FULL_LINE = re.compile(rf"[A-Za-z0-9+/=_\-]{{{_WRAPPED_AT}}}")
_MIXED = re.compile(r"(?=.*\d).*[A-Za-z]")


def end_of_wrapped(text: str, start: int, end: int) -> int:
    """Return the end of a value from `start` that fills its line up to `end`, if the next lines continue it."""
    last = end
    while last > start and text[last - 1] == "\\":
        last -= 1
    if not _FULL_LINE.match(text, max(start, last - _WRAPPED_AT), last):
        return end
    width = _WRAPPED_AT
    while width >= _WRAPPED_AT and (line := _LINE.match(text, end)) and _MIXED.match(line[1][:200]):
        end, width = line.end(1), len(line[1])
    return end


# --- windows ---------------------------------------------------------------------------------------------

# Select the text ranges to check: windows of bounded size around the hits of linear scans. Pure.

LARGEST_WINDOW = 32_000
_INSIDE_A_CHARACTER = bytes(range(0x80, 0xC0))
"""Continuation bytes of UTF-8."""
_BLOCK = 1 << 16
_NONE_LONGER: Mapping[bytes, int] = {}


def windows(
    text: str, hints: Sequence[Any], left: int, right: int, longer: Mapping[bytes, int] = _NONE_LONGER
) -> Iterator[tuple[int, int]]:
    """Yield character ranges around the hits of the hints in the bytes of a text, joined where they overlap.

    :param longer: more characters behind hits with these beginnings. The hit of a key may end inside that of a value.
    """
    data = text.encode("utf-8", "replace")
    wide = len(data) != len(text)
    byte_at = char_at = 0
    start = end = -1
    for low, high in merge(*(map(_span, hint.finditer(data)) for hint in hints)):
        seen = data[low : high + 3] if longer else b""
        behind = max((length for mark, length in longer.items() if mark in seen), default=right)
        if wide:
            char_at += _characters(data, byte_at, low)
            byte_at = low
            low, high = char_at, char_at + high - low
        if start >= 0 and low - left <= end and high + behind - start <= LARGEST_WINDOW:
            end = max(end, high + behind)
            continue
        if start >= 0:
            yield start, min(end, len(text))
        start, end = max(0, low - left), high + behind
    if start >= 0:
        yield start, min(end, len(text))


def _span(match: Any) -> tuple[int, int]:
    return int(match.start()), int(match.end())


def _characters(data: bytes, start: int, end: int) -> int:
    """Return the number of characters that begin in a run of UTF-8; counted by blocks, without a copy of the run."""
    blocks = (data[at : min(at + _BLOCK, end)] for at in range(start, end, _BLOCK))
    return sum(len(block.translate(None, _INSIDE_A_CHARACTER)) for block in blocks)

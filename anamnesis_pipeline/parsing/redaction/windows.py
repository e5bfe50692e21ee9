"""Select the text ranges to check: windows of bounded size around the hits of linear scans. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Any

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

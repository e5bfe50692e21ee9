"""Split long texts without headings. A boundary depends only on the lines around it, so that an insertion moves the few
boundaries behind it and no others.
"""

import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

SHORT = 12_000
"""A text up to this many characters is not split."""
LEAST, MOST = 1_500, 6_000
"""Minimum and maximum length of a piece of a longer text."""
GAP = "\x1f"
"""Marks a forgotten piece of a longer text: the text before and the text behind it stay separate."""
_TINY = 200
"""A shorter text is joined to a neighbour, so a piece may be longer by this much."""
_BETWEEN_GAPS = re.compile(f"[^{GAP}]+|{GAP}+|\\A\\Z")
"""The parts of a line; an empty line is one part."""
_ONE_IN = 8
"""About one in this many paragraphs is a boundary, chosen by a hash of its text."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a text, verbatim: `first` and `last` count from 0. Pieces of one overlong line have its number and begin
    or end inside it: `start` and `end` are character offsets in the first and the last line.
    """

    text: str
    first: int
    last: int
    start: int = 0
    end: int = 0


def blocks(lines: list[str], offset: int = 0) -> list[Block]:
    """Split `lines` (without line ends) into blocks of at most about 6,000 characters, at blank lines where possible.

    The first line has the number `offset`. Blank lines belong to the preceding block.
    """
    found: list[Block] = []
    held: list[Block] = []
    size = 0
    for paragraph in _paragraphs(lines, offset):
        chars = len(paragraph.text.rstrip())
        too_long = size >= _TINY and size + chars > MOST
        if held and (GAP in held[-1].text or too_long or (size >= LEAST and _is_seam(paragraph.text))):
            found.append(_joined(held))
            held, size = [], 0
        held.append(paragraph)
        size += chars + 1
    if size < _TINY and found and GAP not in found[-1].text:
        held.insert(0, found.pop())
    return [*found, _joined(held)] if held else found


def _is_seam(text: str) -> bool:
    return zlib.crc32(text.strip().encode("utf-8", "surrogatepass")) % _ONE_IN == 0


def _joined(held: list[Block]) -> Block:
    text = held[0].text
    for before, block in itertools.pairwise(held):
        text += block.text if block.first == before.last else f"\n{block.text}"
    return Block(text, held[0].first, held[-1].last, held[0].start, held[-1].end)


def _paragraphs(lines: list[str], offset: int) -> Iterator[Block]:
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or (lines[end].strip() and not lines[end - 1].strip()):
            yield from _small(lines[start:end], offset + start)
            start = end


def _small(lines: list[str], first: int) -> Iterator[Block]:
    """Yield a paragraph; split a long one into lines, and a long line into pieces, at spaces where possible."""
    text = "\n".join(lines)
    if len(text.rstrip()) <= MOST:
        yield Block(text, first, first + len(lines) - 1, 0, len(lines[-1]))
        return
    for number, line in enumerate(lines, first):
        for found in _BETWEEN_GAPS.finditer(line):
            yield from _pieces(line, number, found.start(), found.end())


def _pieces(line: str, number: int, start: int, end: int) -> Iterator[Block]:
    while end - start > MOST:
        cut = line.rfind(" ", start + LEAST, start + MOST) + 1 or start + MOST
        yield Block(line[start:cut], number, number, start, cut)
        start = cut
    yield Block(line[start:end], number, number, start, end)

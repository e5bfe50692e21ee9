"""Where a long text without headings is cut. A cut depends on the lines around it only, so that an insertion moves the
few cuts behind it and no others.
"""

import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

SHORT = 12_000
"""A text up to this many characters stays in one piece."""
LEAST, MOST = 1_500, 6_000
"""Characters of a piece of a longer one: it is cut from the first on, and at the second at the latest."""
GAP = "\x1f"
"""Stands where a piece of a longer text was forgotten: what is before it and behind it are told apart."""
_TINY = 200
"""Fewer characters stay with what follows or precedes them, so a piece may have so many more."""
_BETWEEN_GAPS = re.compile(f"[^{GAP}]+|{GAP}+|\\A\\Z")
"""The parts of a line; an empty one is one."""
_ONE_IN = 8
"""How many paragraphs are a seam: about one in so many, chosen by their own text."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a text, verbatim: `first` and `last` count from 0. Pieces of one overlong line have its number, and
    begin or end inside of it: `start` and `end` are characters of the first and the last line.
    """

    text: str
    first: int
    last: int
    start: int = 0
    end: int = 0


def blocks(lines: list[str], offset: int = 0) -> list[Block]:
    """`lines` (without their ends) in pieces of some 6,000 characters at most, cut at blank lines where there are any.

    The first one has the number `offset`. Blank lines belong to what precedes them.
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
    """A paragraph; one that is too long line by line; a line that is too long cut at spaces where it has any."""
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

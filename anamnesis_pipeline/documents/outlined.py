"""A text and its headings -> sections."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from anamnesis_pipeline.document_model import Section, SectionPiece
from anamnesis_pipeline.documents.anchors import anchor_of, plain_title, told_apart
from anamnesis_pipeline.documents.blocks import SHORT, Block, blocks
from anamnesis_pipeline.documents.headings import DEEPEST, Heading
from anamnesis_pipeline.model import SegmentKind

SECTION_LEVELS = 3
"""Headings down to this level begin a section; deeper ones only where a section is too long."""
SMALL = 50
"""A section with fewer characters is not found alone: `## Port` and `3010` say little. It joins its parent or neighbour
instead of being dropped, so that nothing that was written down is lost.
"""


@dataclass(frozen=True, slots=True)
class _Span:
    """Lines [start, end) under the headings `titles`."""

    titles: tuple[str, ...]
    start: int
    end: int
    chars: int


def sections_under(headings: Sequence[Heading], name: str, text: str, *, merge: bool = True) -> list[Section]:
    """A section per heading of levels 1 to 3, titled with the headings around it; what precedes the first is one too.

    A section of fewer than 50 characters joins another one if `merge`; one of more than 12,000 is cut at its deeper
    headings, else at blank lines.
    """
    lines = text.split("\n")
    spans = _spans([found for found in headings if found.level <= SECTION_LEVELS], 0, len(lines), (), lines)
    joined = _merged(spans) if merge else spans
    deeper = [found for found in headings if found.level > SECTION_LEVELS]
    found = [section for span in joined for section in _sections_of_span(span, deeper, name, lines)]
    return _with_anchors(found)


def untitled(name: str, text: str) -> list[Section]:
    """A text without headings: one section, or if it is long several, each named by its first line."""
    lines = text.split("\n")
    return _with_anchors(_cut(_Span((), 0, len(lines), len(text)), name, lines))


def _spans(headings: Iterable[Heading], start: int, end: int, above: tuple[str, ...], lines: list[str]) -> list[_Span]:
    """The lines [start, end), which are under the titles `above`, in spans that begin at `headings`."""
    found = []
    path: list[Heading] = []
    titles = above
    for heading in headings:
        if heading.line > start:
            found.append(_span(titles, start, heading.line, lines))
        path = [*(outer for outer in path if outer.level < heading.level), heading]
        titles = (*above, *(part.title for part in path))
        start = heading.line
    found.append(_span(titles, start, end, lines))
    return [span for span in found if span.chars]


def _span(titles: tuple[str, ...], start: int, end: int, lines: list[str]) -> _Span:
    return _Span(titles, start, end, len("\n".join(lines[start:end]).strip()))


# --- sections that say too little alone -------------------------------------------------------------------


def _merged(spans: list[_Span]) -> list[_Span]:
    """The spans, the small ones joined to others until none is left; the titles of the large ones stay."""
    while len(spans) > 1 and any(span.chars < SMALL for span in spans):
        spans = _joined_once(spans)
    return spans


def _joined_once(spans: list[_Span]) -> list[_Span]:
    """The spans, each small one joined to the one it belongs to most."""
    owner = {number: _home(spans, number) for number, span in enumerate(spans) if span.chars < SMALL}
    found: list[_Span] = []
    forward = False
    for number, span in enumerate(spans):
        backward = number > 0 and owner.get(number, number) < number
        found = [*found[:-1], _union(found[-1], span)] if forward or backward else [*found, span]
        forward = owner.get(number, number) > number
    return found


def _home(spans: list[_Span], number: int) -> int:
    """The number of the span next to a small one that it joins: its child before its kin, the one above before the one
    below; its own where it is alone.
    """
    here = spans[number].titles
    above, below = number - 1, number + 1
    if below < len(spans) and here and spans[below].titles[: len(here)] == here and spans[below].titles != here:
        return below
    for other in (above, below):
        if 0 <= other < len(spans) and _kin(here, spans[other].titles):
            return other
    if above >= 0:
        return above
    return below if below < len(spans) else number


def _kin(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether they have the same parent, or one is inside the other."""
    short = min(len(one), len(other))
    return one[:-1] == other[:-1] or one[:short] == other[:short]


def _union(one: _Span, other: _Span) -> _Span:
    titles = other.titles if one.chars < SMALL <= other.chars else one.titles
    return replace(one, titles=titles, end=other.end, chars=one.chars + other.chars)


# --- sections that are too long ---------------------------------------------------------------------------


def _sections_of_span(span: _Span, deeper: list[Heading], name: str, lines: list[str]) -> list[Section]:
    if span.chars <= SHORT:
        return [_section(name, span.titles, Block("\n".join(lines[span.start : span.end]), span.start, span.end - 1))]
    inside = [found for found in deeper if span.start <= found.line < span.end]
    if not inside:
        return _cut(span, name, lines)
    level = min(found.level for found in inside)
    parts = _spans([f for f in inside if f.level == level], span.start, span.end, span.titles, lines)
    left = [found for found in inside if level < found.level <= DEEPEST]
    return [section for part in _merged(parts) for section in _sections_of_span(part, left, name, lines)]


def _cut(span: _Span, name: str, lines: list[str]) -> list[Section]:
    if span.chars <= SHORT:
        return [_section(name, span.titles, Block("\n".join(lines[span.start : span.end]), span.start, span.end - 1))]
    return [
        _section(name, (*span.titles, *(_first_words(block.text) if number else ())), block)
        for number, block in enumerate(blocks(lines[span.start : span.end], span.start))
    ]


def _first_words(text: str) -> tuple[str, ...]:
    """The first line as a title for a piece that begins inside a section."""
    line = next((line for line in text.split("\n") if line.strip()), "")
    return (plain_title(line[:200]),)


# --- sections ---------------------------------------------------------------------------------------------


def _section(name: str, titles: tuple[str, ...], block: Block) -> Section:
    piece = SectionPiece(SegmentKind.DOCUMENT, block.text.rstrip())
    return Section("", (name, *titles), (piece,), block.first + 1, block.last + 1)


def _with_anchors(found: list[Section]) -> list[Section]:
    """The sections with anchors from their titles; the file's name is no part of them, so a renamed file keeps them."""
    anchors = told_apart(anchor_of(section.title[1:]) for section in found)
    return [replace(section, anchor=anchor) for section, anchor in zip(found, anchors, strict=True)]

"""Split a text into sections by its headings."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from anamnesis_pipeline.model import Section, SectionPiece, SegmentKind
from anamnesis_pipeline.parsing.documents.anchors import anchor_of, plain_title, told_apart
from anamnesis_pipeline.parsing.documents.blocks import GAP, SHORT, Block, blocks
from anamnesis_pipeline.parsing.documents.headings import DEEPEST, Heading

SECTION_LEVELS = 3
"""Headings down to this level begin a section; deeper ones only where a section is too long."""
_UNDERLINE = re.compile(r"\s*([=\-~^\"'`#*+.:_])\1*\s*")
"""The underline of a two-line heading, in Markdown or reStructuredText."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Lines [start, end) under the headings `titles`. `is_bare`: they contain only the innermost heading."""

    titles: tuple[str, ...]
    start: int
    end: int
    chars: int
    is_bare: bool = False


def sections_under(headings: Sequence[Heading], name: str, text: str) -> list[Section]:
    """Return a section per heading of levels 1 to 3, titled with the headings around it, and one for the text before.

    A short section stays separate: joined to another one, it would change that section's text when it comes or goes. A
    heading with only other headings below it is found in their titles. A section of more than 12,000 characters is
    split at its deeper headings, else at blank lines.
    """
    lines = text.split("\n")
    spans = _spans([found for found in headings if found.level <= SECTION_LEVELS], 0, len(lines), (), lines)
    deeper = [found for found in headings if found.level > SECTION_LEVELS]
    found = [section for span in spans for section in _sections_of_span(span, deeper, name, lines)]
    return _with_anchors(found)


def untitled(name: str, text: str) -> list[Section]:
    """Split a text without headings: one section, or several of a long text, each named by its first line."""
    lines = text.split("\n")
    return _with_anchors(_cut(_Span((), 0, len(lines), len(text)), name, lines))


def _spans(headings: Iterable[Heading], start: int, end: int, above: tuple[str, ...], lines: list[str]) -> list[_Span]:
    """Split the lines [start, end) below the titles `above` into spans that begin at `headings`."""
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
    following = [*(span.titles for span in found[1:]), ()]
    return [
        s for s, after in zip(found, following, strict=True) if s.chars and not (s.is_bare and _is_in(after, s.titles))
    ]


def _span(titles: tuple[str, ...], start: int, end: int, lines: list[str]) -> _Span:
    body = [line for line in lines[start:end] if line.strip() and not _UNDERLINE.fullmatch(line)]
    is_bare = bool(titles) and len(body) == 1
    return _Span(titles, start, end, len("\n".join(lines[start:end]).strip()), is_bare)


def _is_in(titles: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    return len(titles) > len(outer) and titles[: len(outer)] == outer


# --- sections that are too long ---------------------------------------------------------------------------


def _sections_of_span(span: _Span, deeper: list[Heading], name: str, lines: list[str]) -> list[Section]:
    text = "\n".join(lines[span.start : span.end])
    if span.chars <= SHORT and GAP not in text:
        return [_section(name, span.titles, Block(text, span.start, span.end - 1))]
    inside = [found for found in deeper if span.start <= found.line < span.end]
    if not inside:
        return _cut(span, name, lines)
    level = min(found.level for found in inside)
    parts = _spans([f for f in inside if f.level == level], span.start, span.end, span.titles, lines)
    left = [found for found in inside if level < found.level <= DEEPEST]
    return [section for part in parts for section in _sections_of_span(part, left, name, lines)]


def _cut(span: _Span, name: str, lines: list[str]) -> list[Section]:
    text = "\n".join(lines[span.start : span.end])
    if span.chars <= SHORT and GAP not in text:
        return [_section(name, span.titles, Block(text, span.start, span.end - 1))]
    return [
        _piece(name, (*span.titles, *(_first_words(block.text) if number else ())), block, lines)
        for number, block in enumerate(blocks(lines[span.start : span.end], span.start))
    ]


def _first_words(text: str) -> tuple[str, ...]:
    """Return the first line as a title for a piece that begins inside a section."""
    line = next((line for line in text.split("\n") if line.strip()), "")
    return (plain_title(line[:200]),)


# --- sections ---------------------------------------------------------------------------------------------


def _section(name: str, titles: tuple[str, ...], block: Block) -> Section:
    piece = SectionPiece(SegmentKind.DOCUMENT, block.text.rstrip())
    return Section("", (name, *titles), (piece,), block.first + 1, block.last + 1)


def _piece(name: str, titles: tuple[str, ...], block: Block, lines: list[str]) -> Section:
    """Return the section of a block that may begin or end inside a line."""
    found = _section(name, titles, block)
    begins = sum(len(line) + 1 for line in lines[: block.first])
    ends = begins + sum(len(line) + 1 for line in lines[block.first : block.last])
    return replace(found, spans=((begins + block.start, ends + block.end),))


def _with_anchors(found: list[Section]) -> list[Section]:
    """Return the sections with anchors from their titles, without the file name: a renamed file keeps them."""
    anchors = told_apart(anchor_of(section.title[1:]) for section in found)
    return [replace(section, anchor=anchor) for section, anchor in zip(found, anchors, strict=True)]

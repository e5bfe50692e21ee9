"""Find the headings of a text."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from anamnesis_pipeline.parsing.documents.anchors import plain_title

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MESSAGE_LEVEL = 3
DEEPEST = 6
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(?:.*\n){0,200}?\1[ \t]*(?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: `line`, counted from 0, is its first line; `level` 1 is the outermost."""

    line: int
    level: int
    title: str


def markdown_headings(text: str) -> list[Heading]:
    """Return every heading of a Markdown text outside of quotes, lists and fenced code, in order."""
    return headings_among(markdown_blocks(text))


def headings_among(tokens: Sequence["Token"]) -> list[Heading]:
    """Return the headings among the blocks of a text."""
    return [
        Heading(token.map[0], int(token.tag[1:]), plain_title(inline.content))
        for token, inline in itertools.pairwise(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]


def markdown_blocks(text: str) -> list["Token"]:
    """Return the blocks of a Markdown text, without those of its front matter. `map` counts lines from 0."""
    front = _FRONT_MATTER.match(text)
    if front:  # emptied, since its last line would make the line above a heading
        text = "\n" * front.group().count("\n") + text[front.end() :]
    return _block_parser().parse(text)


@lru_cache(maxsize=1)
def _block_parser() -> "MarkdownIt":
    """Parse CommonMark's blocks, without inline content."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").disable(["inline", "reference"])


_MESSAGE = re.compile(r"^### +(MSG-\d+.*)$")


def intercom_headings(text: str) -> list[Heading]:
    """Return each `### MSG-<n>` of a file in which sessions write to each other; the content of a message is text."""
    return [
        Heading(number, MESSAGE_LEVEL, plain_title(found.group(1)))
        for number, line in enumerate(text.split("\n"))
        if (found := _MESSAGE.match(line))
    ]


_ADORNMENT = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")


def rst_headings(text: str) -> list[Heading]:
    """Return the titles of reStructuredText: underlined, or between two lines; levels in order of first use."""
    lines = text.split("\n")
    styles: list[tuple[str, bool]] = []
    found = []
    for number in range(1, len(lines)):
        title, mark = lines[number - 1], _ADORNMENT.match(lines[number])
        if not mark or not title.strip() or title[0].isspace() or _ADORNMENT.match(title):
            continue
        if len(lines[number].rstrip()) < len(title.rstrip()):
            continue
        over = number >= 2 and lines[number - 2].rstrip() == lines[number].rstrip()
        style = (mark.group(1), over)
        if style not in styles:
            styles.append(style)
        level = min(styles.index(style) + 1, DEEPEST)
        found.append(Heading(number - 1 - over, level, plain_title(title)))
    return found

"""Mask secrets in table cells, found by their column's heading or the name in the cell before. Pure.

The masking rules decide: each cell is passed to them beside its name, as an assignment.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from anamnesis_pipeline.parsing.documents.languages import format_of
from anamnesis_pipeline.parsing.documents.table_cells import Row, rows_of

Mask = Callable[[str], tuple[str, Counter[str]]]
"""A text -> the text with its secrets masked, and the number of each kind."""

MAX_NAME_CHARS = 60
MAX_VALUE_CHARS = 4_096
"""A longer value is data, as in the rules."""
HEADING_ROWS = 20
"""The headings of columns are in the first rows of a table, possibly below titles."""
AT_ONCE = 2_000
"""Cells passed to the rules in one text."""

_PROBE = "Xk29vQp8Zt41Lm07"
"""Random enough to be masked beside the name of a secret, and of no special form."""
_NAME = re.compile(r"[^\W\d][\w .\-/]{1,59}")
_ASIDE = re.compile(r"\s*[(\[][^()\[\]]{0,60}[)\]]\s*")
_BETWEEN_WORDS = re.compile(r"[\s.\-/]+")
_MARKS = " \t\"'`*_"


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value beside its name: characters [start, end) of a line."""

    number: int
    start: int
    end: int
    name: str
    value: str


def tables_masked(path: str, text: str, mask: Mask) -> tuple[str, Counter[str]]:
    """Mask the secrets in the document at `path` that only a heading or the cell before identifies.

    :returns: the text, with the same number of lines, and the number of secrets of each kind.
    """
    lines = text.split("\n")
    fmt = format_of(path)
    secret = names_of_secrets({name for row in rows_of(fmt, lines) for name in _names(row)}, mask)
    if not secret:
        return text, Counter()
    found: Counter[str] = Counter()
    masked = masked_values(_beside_names(rows_of(fmt, list(lines)), secret), mask, found)
    for number, cells in itertools.groupby(masked, key=lambda told: told[0].number):
        lines[number] = with_values(lines[number], cells)
    return "\n".join(lines), found


def with_values(line: str, cells: Iterable[tuple[NamedValue, str]]) -> str:
    """Return the line with these values, given in order, in their places."""
    pieces: list[str] = []
    at = 0
    for cell, value in cells:
        pieces += (line[at : cell.start], value)
        at = cell.end
    return "".join((*pieces, line[at:]))


def _names(row: Row) -> Iterator[str]:
    for start, end in row.cells:
        if end - start <= MAX_NAME_CHARS and (name := _name(row.line[start:end])):
            yield name


def _name(cell: str) -> str:
    """Return the cell as the key of an assignment: `API key (prod)` is `API_key`; empty if it names nothing."""
    words = _ASIDE.sub(" ", cell).strip(_MARKS).rstrip(":").strip(_MARKS)
    return _BETWEEN_WORDS.sub("_", words) if _NAME.fullmatch(words) else ""


def names_of_secrets(names: set[str], mask: Mask) -> frozenset[str]:
    """Return the names beside which a random value is a secret."""
    if not names:
        return frozenset()
    listed = sorted(names)
    shown = [f"{name}: {_PROBE}" for name in listed]
    told, _ = _lines_masked(shown, mask)
    return frozenset(name for name, line, after in zip(listed, shown, told, strict=True) if after != line)


def _beside_names(rows: Iterable[Row], secret: frozenset[str]) -> Iterator[NamedValue]:
    """Yield every cell under a heading, or behind a name, of a secret, in order."""
    headings: dict[int, str] = {}
    for row in rows:
        if row.place == 0 and row.column == 0:
            headings = {}
        before = ""
        for column, (start, end) in enumerate(row.cells, row.column):
            name = _name(row.line[start:end]) if end - start <= MAX_NAME_CHARS else ""
            told = before or headings.get(column, "")
            before = name if name in secret else ""
            if before and row.place < HEADING_ROWS:
                headings[column] = before
            elif told and (value := row.line[start:end].strip(_MARKS)) and len(value) <= MAX_VALUE_CHARS:
                begins = row.line.index(value, start)
                yield NamedValue(row.number, begins, begins + len(value), told, value)


def masked_values(cells: Iterable[NamedValue], mask: Mask, found: Counter[str]) -> Iterator[tuple[NamedValue, str]]:
    """Yield the cells that hold a secret, each with its mask; `found` counts them."""
    held: list[NamedValue] = []
    for cell in cells:
        held.append(cell)
        if len(held) == AT_ONCE:
            yield from _masked_at_once(held, mask, found)
            held = []
    yield from _masked_at_once(held, mask, found)


def _masked_at_once(cells: list[NamedValue], mask: Mask, found: Counter[str]) -> Iterator[tuple[NamedValue, str]]:
    quotes = [_quote_for(cell.value) for cell in cells]
    named = [f"{cell.name}:{quote}" for cell, quote in zip(cells, quotes, strict=True)]
    shown = [f"{name}{cell.value}{quote}" for name, cell, quote in zip(named, cells, quotes, strict=True)]
    told, kinds = _lines_masked(shown, mask)
    found.update(kinds)
    for cell, name, quote, before, after in zip(cells, named, quotes, shown, told, strict=True):
        if after != before and after.startswith(name):
            yield cell, after.removeprefix(name).removesuffix(quote)


def _quote_for(value: str) -> str:
    return next((quote for quote in "\"'`" if quote not in value), "")


def _lines_masked(lines: list[str], mask: Mask) -> tuple[list[str], Counter[str]]:
    """Mask the lines: together, or one by one only if a rule takes several of them for one secret."""
    told, found = mask("\n".join(lines))
    masked = told.split("\n")
    if len(masked) == len(lines):
        return masked, found
    each = [mask(line) for line in lines]
    return [line for line, _ in each], sum((kinds for _, kinds in each), Counter[str]())

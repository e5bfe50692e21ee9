"""Find the cells of the tables in a text: CSV, Markdown and converted documents."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

from anamnesis_pipeline.parsing.documents.languages import CONVERTED, TEXTS

CELL_SIGNS = ",;\t"
"""Possible separators of CSV."""
_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[\s|:+-]*")
_WITH_TABLES = (frozenset(CONVERTED) | frozenset(TEXTS)) - {"json"}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: `cells` are characters [start, end) of the line, the first in the column `column`.

    `number` counts lines of the text from 0; `place` counts rows of the table from 0.
    """

    number: int
    line: str
    place: int
    column: int
    cells: tuple[tuple[int, int], ...]


def rows_of(fmt: str | None, lines: list[str]) -> Iterator[Row]:
    """Yield every row of every table in the lines of a document in the format `fmt`; none for code and settings."""
    if fmt in {"csv", "tsv"}:
        yield from _of_csv(lines)
    elif fmt in _WITH_TABLES:
        yield from _of_pipes(lines)


def _of_pipes(lines: list[str]) -> Iterator[Row]:
    place = 0
    for number, line in enumerate(lines):
        if "|" not in line:
            place = 0
        elif not _RULE.fullmatch(line):
            yield Row(number, line, place, 0, tuple(_between(line)))
            place += 1


def _between(line: str) -> Iterator[tuple[int, int]]:
    """Yield the spans between the bars of a line; a bar at either end is its frame."""
    start = len(line) - len(line.lstrip())
    start += line.startswith("|", start)
    for bar in _PIPE.finditer(line, start):
        yield start, bar.start()
        start = bar.end()
    if start < len(line):
        yield start, len(line)


def _of_csv(lines: list[str]) -> Iterator[Row]:
    sign = _sign(lines)
    column, is_open, place = 0, False, 0
    for number, line in enumerate(lines):
        if not line.strip() and not is_open:
            continue
        cells, still_open = _of_csv_line(line, sign, is_open)
        yield Row(number, line, place, column, tuple(cells))
        column = column + len(cells) - 1 if still_open else 0
        place += not still_open
        is_open = still_open


def _sign(lines: list[str]) -> str:
    """Return the cell separator, by the first lines with content."""
    sample = "\n".join([line for line in lines[:50] if line.strip()][:10])[:4000]
    try:
        return csv.Sniffer().sniff(sample, CELL_SIGNS).delimiter
    except csv.Error:
        return max(CELL_SIGNS, key=sample.count)


def _of_csv_line(line: str, sign: str, is_open: bool) -> tuple[list[tuple[int, int]], bool]:
    """Return (cells of a line, whether the last one continues in the next). `is_open`: the first began before."""
    cells: list[tuple[int, int]] = []
    start = 0
    for part in line.split(sign):
        end = start + len(part)
        was_open = is_open
        is_open ^= part.count('"') % 2 == 1
        if was_open and cells:
            cells[-1] = (cells[-1][0], end)
        else:
            cells.append((start, end))
        start = end + 1
    return cells, is_open

"""Convert plain text to Markdown: escape what would begin a heading or a block of code."""

import json
import re
from collections.abc import Iterator
from typing import Any

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents.charset import decoded

_ESCAPED = re.compile(r"^(?=[ ]{0,3}(?:\#{1,6}(?:\s|$) | (?:=+|-+)\s*$ | ```|~~~))", re.MULTILINE | re.VERBOSE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\ufffe]")
_HEADING = re.compile(r"(?:heading|title)\s*(\d{0,2})", re.IGNORECASE)
_GAPS = re.compile(r"\n\s*\n\s*\n+")


def as_markdown(text: str) -> str:
    """Return `text` with a backslash before each line that Markdown would not read as text."""
    return _ESCAPED.sub(r"\\", tidy(text))


def tidy(text: str) -> str:
    """Return `text` with line feeds between lines, at most one blank line in a row, and no control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    return _GAPS.sub("\n\n", _CONTROLS.sub("", lines)).strip()


def heading(level: int, title: str) -> str:
    """Return a Markdown heading; an empty title makes an empty line."""
    words = " ".join(_CONTROLS.sub("", title).split())
    return f"{'#' * min(max(level, 1), 6)} {words}" if words else ""


def heading_level(style: str) -> int:
    """Return the level of a heading by the name of its style, `Heading 2` or `Title`; 0 for any other paragraph."""
    found = _HEADING.fullmatch(style.strip())
    return int(found.group(1) or 1) if found else 0


def shortened(text: str, most: int) -> str:
    """Return `text` up to `most` characters, with a note of the number left out."""
    left = len(text) - most
    return text if left <= 0 else f"{text[:most]} … {left:,} more characters are in the file"


def row(cells: list[str]) -> str:
    """Return a line of a table, or an empty one; every cell on one line, a bar in it escaped."""
    kept = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    while kept and not kept[-1]:
        kept.pop()
    return " | ".join(kept)


def fenced(text: str, language: str = "") -> str:
    """Return a block of code; its fence is longer than any in `text`."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


# --- notebooks -------------------------------------------------------------------------------------------

# Jupyter notebooks.

MAX_OUTPUT_CHARS = 20_000


def notebook_text(data: bytes) -> str:
    """Return the cells of a notebook in order: text unchanged, code in blocks, and 20,000 characters of each output."""
    try:
        notebook = json.loads(decoded(data))
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as exc:
        raise DocumentUnreadable(f"it is no notebook ({type(exc).__name__})") from exc
    found = [block for cell in cells if isinstance(cell, dict) for block in _blocks(cell, str(language))]
    return tidy("\n\n".join(found))


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input", "")))
    if not source.strip():
        return
    if cell.get("cell_type") != "code":
        yield source
        return
    yield fenced(source, language)
    for output in cell.get("outputs") or ():
        if isinstance(output, dict) and (text := _shown(output).strip()):
            yield fenced(shortened(text, MAX_OUTPUT_CHARS))


def _shown(output: dict[str, Any]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    data = output.get("data")
    return _joined(data.get("text/plain", "") if isinstance(data, dict) else output.get("text", ""))


def _joined(source: object) -> str:
    return "".join(str(line) for line in source) if isinstance(source, list) else str(source)

"""Text that is no Markdown, as Markdown: what would begin a heading or a block of code in it is escaped."""

import re

_ESCAPED = re.compile(r"^(?=[ ]{0,3}(?:\#{1,6}(?:\s|$) | (?:=+|-+)\s*$ | ```|~~~))", re.MULTILINE | re.VERBOSE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\ufffe]")
_GAPS = re.compile(r"\n\s*\n\s*\n+")


def as_markdown(text: str) -> str:
    """`text` with a backslash before each line that Markdown would take for something else than text."""
    return _ESCAPED.sub(r"\\", tidy(text))


def tidy(text: str) -> str:
    """`text` with line feeds between lines, at most one blank line in a row, and no control characters."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")
    return _GAPS.sub("\n\n", _CONTROLS.sub("", lines)).strip()


def heading(level: int, title: str) -> str:
    """A Markdown heading; an empty title makes an empty line."""
    words = " ".join(_CONTROLS.sub("", title).split())
    return f"{'#' * min(max(level, 1), 6)} {words}" if words else ""


def row(cells: list[str]) -> str:
    """A line of a table, or an empty one; every cell on one line, a bar in it escaped."""
    kept = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    while kept and not kept[-1]:
        kept.pop()
    return " | ".join(kept)


def fenced(text: str, language: str = "") -> str:
    """A block of code; its fence is longer than any in `text`."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"

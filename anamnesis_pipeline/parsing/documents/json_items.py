"""Split JSON other than chats into a section per list item, else a single one."""

import json
import re
from collections.abc import Iterator

from anamnesis_pipeline.model import Section, SectionPiece, SegmentKind, content_id
from anamnesis_pipeline.parsing.documents.anchors import TOP, plain_title, told_apart
from anamnesis_pipeline.parsing.documents.blocks import GAP

SMALL = 200
"""Shorter items share a section."""
TOGETHER = 1_000
"""Characters of a section of small items."""
_BETWEEN = f" \t\r\n,{GAP}"
_NAMES = ("id", "uuid", "key", "name", "title")


def item_sections(name: str, text: str) -> list[Section]:
    """Return a section per item of the list `text`, named by the item's ID or title, else by its content. Every item is
    in one section; small ones share one. Empty if the text is no list, or no JSON.
    """
    try:
        items = list(_grouped(_items(text), text))
    except (ValueError, RecursionError):
        return []
    anchors = told_apart(title.replace("~", "~~") for title, _, _ in items)
    found = []
    line, counted = 1, 0
    for anchor, (title, start, end) in zip(anchors, items, strict=True):
        line, counted = line + text.count("\n", counted, start), start
        last = line + text.count("\n", start, end)
        piece = SectionPiece(SegmentKind.DOCUMENT, _readable(text[start:end]))
        found.append(Section(anchor.replace("\n", " "), (name, title), (piece,), line, last, spans=((start, end),)))
    return found


def _items(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of every item of a list; only spaces, commas and gaps between items are skipped."""
    decoder = json.JSONDecoder()
    at = _behind(text, 0, " \t\r\n")
    if text[at : at + 1] != "[":
        raise ValueError("no list")
    at = _behind(text, at + 1, _BETWEEN)
    while text[at : at + 1] != "]":
        item, end = decoder.raw_decode(text, at)
        yield _title(item, text[at:end]), at, end
        at = _behind(text, end, _BETWEEN)


def _behind(text: str, at: int, skipped: str) -> int:
    while at < len(text) and text[at] in skipped:
        at += 1
    return at


def _grouped(items: Iterator[tuple[str, int, int]], text: str) -> Iterator[tuple[str, int, int]]:
    """Join small items. The end of a group depends only on its last item's name, or on a forgotten item, so that adding
    or removing an item changes only its own group.
    """
    held: tuple[str, int, int] | None = None
    for title, start, end in items:
        if held and (end - start > SMALL or end - held[1] > TOGETHER or GAP in text[held[2] : start]):
            yield held
            held = None
        held = (held[0], held[1], end) if held else (title, start, end)
        if end - start > SMALL or content_id("group", title)[0] in "0123":
            yield held
            held = None
    if held:
        yield held


def _title(item: object, text: str) -> str:
    if isinstance(item, dict):
        for key in _NAMES:
            if isinstance(item.get(key), str | int) and str(item[key]).strip():
                return plain_title(str(item[key]))
    return content_id(text)[:12]


def _readable(item: str) -> str:
    """Return a long one-line item with line breaks; small items stay unchanged."""
    if "\n" in item or len(item) <= SMALL:
        return item
    try:
        return json.dumps(json.loads(item), indent=1, ensure_ascii=False)
    except ValueError:
        return item


# --- config files ----------------------------------------------------------------------------------------

# Convert a configuration file to one section: its keys to search, and the text to read.

SHORT_CHARS = 1_500
"""A file up to this size is searched verbatim: its values are as useful as its keys."""
LONG_CHARS = 12_000
"""A longer file is split as text."""
MAX_KEYS_CHARS = 600

_ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*[:+?]?=", re.MULTILINE)
_KEYS = {
    "yaml": re.compile(r"^(?:- )?(?: {2})?([\w./-]+|\"[^\"\n]+\"):(?=\s|$)", re.MULTILINE),
    "toml": re.compile(r"^(\[{1,2}[^\]\n]+\]{1,2}|[\w.-]+(?=\s*=))", re.MULTILINE),
    "ini": re.compile(r"^(\[[^\]\n]+\]|[\w.-]+(?=\s*[=:]))", re.MULTILINE),
    "dockerfile": re.compile(
        r"^((?:FROM|EXPOSE|ENTRYPOINT|CMD|WORKDIR|USER|VOLUME|ARG|ENV)[ \t].{1,80})", re.MULTILINE
    ),
    "makefile": re.compile(r"^([\w./-]+)\s*:(?!=)", re.MULTILINE),
    "terraform": re.compile(r"^(\w+(?:[ \t]+\"[^\"\n]+\"){0,2})\s*\{", re.MULTILINE),
    "cmake": re.compile(r"^\s*(\w+\s*\([^()\n]{1,60})", re.MULTILINE),
    "xml": re.compile(r"<([A-Za-z][\w.:-]*)[\s/>]"),
}


def config_sections(path: str, fmt: str, text: str) -> list[Section]:
    """Return the file as one section; none if it is too long for one."""
    if len(text) > LONG_CHARS:
        return []
    keys = dict.fromkeys(" ".join(found.split()) for found in _KEYS.get(fmt, _ASSIGNED).findall(text))
    listed = ", ".join(keys)
    shown = listed if len(listed) <= MAX_KEYS_CHARS else listed[:MAX_KEYS_CHARS].rsplit(", ", 1)[0] + ", …"
    outline = f"{path} ({fmt})\n{shown}".rstrip()
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    kind = SegmentKind.DOCUMENT if len(text) <= SHORT_CHARS else SegmentKind.CODE
    pieces = (SectionPiece(SegmentKind.OUTLINE, outline), SectionPiece(kind, text.strip("\n")))
    return [Section(TOP, (name,), pieces, 1, text.count("\n") + 1, "code", fmt)]

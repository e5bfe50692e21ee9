"""In-place edits of JSON text that keep all other bytes, indentation and line ends included. Pure.

A path leads from the root to a value by member names and element indexes. The text must be valid JSON, with or without
a byte order mark, and the path must exist.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Path = Sequence[str | int]
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n\ufeff]*")


def with_item(text: str, path: Path, value: Any, name: str = "") -> str:
    """Append an element to the array at `path`, or a member called `name` to the object there."""
    at = _start_of(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    label = f"{json.dumps(name, ensure_ascii=False)}: " if name else ""
    if items := _items(text, at):
        last = items[-1]
        gap = text[len(text[: last.start].rstrip(" \t\r\n")) : last.start]
        if "\n" not in gap:
            return f"{text[: last.end]}, {label}{json.dumps(value, ensure_ascii=False)}{text[last.end :]}"
        behind, closing = last.end, ""
    else:
        line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix("\ufeff")
        outer = newline + line[: len(line) - len(line.lstrip(" \t"))]
        gap, closing = outer + _unit(text), outer
        behind = at + 1
        text = text[:behind] + text[_DECODER.raw_decode(text, at)[1] - 1 :]  # without the space between the brackets
    shown = json.dumps(value, ensure_ascii=False, indent=_unit(text)).replace("\n", newline + gap.rpartition("\n")[2])
    return f"{text[:behind]}{',' if items else ''}{gap}{label}{shown}{closing}{text[behind:]}"


def without(text: str, path: Path) -> str:
    """Remove the value at `path`, with its name and its comma."""
    at = _start_of(text, path[:-1])
    items = _items(text, at)
    place = items.index(_chosen(items, path[-1]))
    if len(items) == 1:
        return text[: at + 1] + text[_DECODER.raw_decode(text, at)[1] - 1 :]
    if place == 0:
        return text[: items[0].start] + text[items[1].start :]
    return text[: items[place - 1].end] + text[items[place].end :]


@dataclass(frozen=True, slots=True)
class _Item:
    """A member of an object, or an element of an array (with an empty name); offsets of it and of its value."""

    name: str
    start: int
    value: int
    end: int


def _start_of(text: str, path: Path) -> int:
    at = _behind_space(text, 0)
    for step in path:
        at = _chosen(_items(text, at), step).value
    return at


def _chosen(items: Sequence[_Item], step: str | int) -> _Item:
    """Return the chosen item; of members with the same name the last one, as parsers do."""
    return items[step] if isinstance(step, int) else [item for item in items if item.name == step][-1]


def _items(text: str, at: int) -> list[_Item]:
    """Return the items of the object or array that begins at `at`."""
    items: list[_Item] = []
    is_object = text[at] == "{"
    at = _behind_space(text, at + 1)
    while text[at] not in "}]":
        start, name = at, ""
        if is_object:
            name, at = _DECODER.raw_decode(text, at)
            at = _behind_space(text, _behind_space(text, at) + 1)
        items.append(_Item(name, start, at, _DECODER.raw_decode(text, at)[1]))
        at = _behind_space(text, items[-1].end)
        if text[at] == ",":
            at = _behind_space(text, at + 1)
    return items


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _unit(text: str) -> str:
    """Return the indentation of the first entry; two spaces by default."""
    found = re.search(r"[{\[]\r?\n([ \t]+)", text)
    return found[1] if found else "  "

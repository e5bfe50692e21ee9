"""Detect this system's own text in a log, so that it is never stored as another speaker's words."""

import html
import json
import re
from typing import Any

from anamnesis_pipeline.model import (
    MEMORY_BEGINS,
    MEMORY_ENDS,
    MEMORY_PREFACES,
    MEMORY_TAG,
    SUMMARIZER_MARK,
    SegmentKind,
)

_FORMS = {
    "<": r"(?:<|\\{1,15}u003[cC]|&lt;)",
    ">": r"(?:>|\\{1,15}u003[eE]|&gt;)",
    '"': r'(?:\\{0,15}"|\\{1,15}u0022|&quot;)',
    "/": r"\\{0,15}/",
}
"""Forms of a marker character, also in JSON inside JSON, four deep, and in HTML."""
FIRST_WORDS = frozenset({SegmentKind.PROMPT, SegmentKind.AGENT_PROMPT, SegmentKind.MACHINE_PROMPT})


def may_hold_memory(line: str) -> bool:
    """Return whether the strings of a line need a check."""
    return MEMORY_TAG in line


def without_memory(value: Any) -> tuple[Any, int]:
    """Return a decoded JSON value without the blocks that this system put into the session, and their number."""
    if isinstance(value, str):
        return _cut(value) if may_hold_memory(value) else (value, 0)
    if isinstance(value, list):
        pairs = [without_memory(item) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        named = {key: without_memory(item) for key, item in value.items()}
        return {key: item for key, (item, _) in named.items()}, sum(count for _, count in named.values())
    return value, 0


def _in_any_form(mark: str) -> str:
    return "".join(_FORMS.get(character, re.escape(character)) for character in mark)


_MARK = re.compile(f"(?P<begins>{_in_any_form(MEMORY_BEGINS)})|{_in_any_form(MEMORY_ENDS)}")
_DEEPEST = 5
"""Maximum depth of JSON inside JSON."""
_LINE = re.compile(
    r"""\s*(?:\d+[\u2192:|\t]\s?)?                                  # as a file is shown with numbered lines
    (?: -\ [^\u201c\u201d]*\u201c[^\u201c\u201d]*\u201d(?:\ \[[^\s\]]*\])?   # a quote of a hook or of the chat
      | [A-Z].{0,200}:                                               # a heading
      | (?:\d+\.\ )?\[.*\ id\ \S+                                   # the head of a record, as tools answer it
      | \d+\.\ \[[^\]]*\]\ [\d-]{10}(?:\ .*)?                        # the head of a hit
      | (?:(?:from|why|tags|summary|id\ \S+|[\d-]{10}\ \d\d:\d\d)\ )?>(?:\ .*)?
      | \(.*\) | (?:before|after)\ it: | incomplete:\ .* | (?:Nothing|Gone\ for\ good|Would\ go\ for\ good)\b.*
    )?""",
    re.VERBOSE,
)
"""Every line of a block but the first, as written by `search.quoting`, `search.context_items`, `steps.chat` and
`mcp_server.texts`."""


def _cut(text: str) -> tuple[str, int]:
    """Return `text` without its blocks, including escaped ones, and their number. An unclosed block stays, and so does
    one with foreign lines: another author wrote it.
    """
    pieces: list[str] = []
    at = count = 0
    begun: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark["begins"] is not None:
            begun = mark
        elif begun is not None:
            if _is_ours(text[begun.end() : mark.start()]):
                pieces.append(text[at : begun.start()])
                at, count = mark.end(), count + 1
            begun = None
    return ("".join((*pieces, text[at:])), count) if count else (text, 0)


def _is_ours(body: str) -> bool:
    """Return whether the inside of a block is in this system's format, at any depth of escaping."""
    for _ in range(_DEEPEST):
        for form in (body, html.unescape(body)):
            first, *lines = form.strip().splitlines() or [""]
            if first.strip().endswith(MEMORY_PREFACES) and all(map(_LINE.fullmatch, lines)):
                return True
        try:
            body = json.loads(f'"{body}"')
        except ValueError:  # it holds line ends, or is no JSON
            return False
    return False


def begins_own_session(kind: SegmentKind, text: str) -> bool | None:
    """Return whether a session with this first message is a summarizer's call; None: the message does not show it."""
    return is_own_request(text) if kind in FIRST_WORDS else None


def is_own_request(text: str) -> bool:
    """Return whether a prompt is one of our summarizer's, and does not only mention them."""
    return text.lstrip().startswith(SUMMARIZER_MARK)

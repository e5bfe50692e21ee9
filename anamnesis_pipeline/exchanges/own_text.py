"""What this system itself put into a log: it is recognized, and never remembered as somebody's words."""

import re
from typing import Any

from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS, MEMORY_TAG, SUMMARIZER_MARK, SegmentKind

_FORMS = {
    "<": r"(?:<|\\{1,15}u003[cC]|&lt;)",
    ">": r"(?:>|\\{1,15}u003[eE]|&gt;)",
    '"': r'(?:\\{0,15}"|\\{1,15}u0022|&quot;)',
    "/": r"\\{0,15}/",
}
"""How a character of a mark is written, also in JSON inside JSON, four deep, and in HTML."""
FIRST_WORDS = frozenset({SegmentKind.PROMPT, SegmentKind.AGENT_PROMPT, SegmentKind.MACHINE_PROMPT})


def may_hold_memory(line: str) -> bool:
    """Whether a look at the strings of a line is worth it."""
    return MEMORY_TAG in line


def without_memory(value: Any) -> tuple[Any, int]:
    """A decoded JSON value without the blocks that this system put into the session, and how many there were."""
    if isinstance(value, str):
        return _cut(value) if may_hold_memory(value) else (value, 0)
    if isinstance(value, list):
        pairs = [without_memory(item) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        named = {key: without_memory(item) for key, item in value.items()}
        return {key: item for key, (item, _) in named.items()}, sum(count for _, count in named.values())
    return value, 0


def _in_any_form(mark: str) -> re.Pattern[str]:
    return re.compile("".join(_FORMS.get(character, re.escape(character)) for character in mark))


_BEGINS, _ENDS = _in_any_form(MEMORY_BEGINS), _in_any_form(MEMORY_ENDS)


def _cut(text: str) -> tuple[str, int]:
    """`text` without its blocks, also escaped ones, and how many. One that is not closed stays."""
    pieces: list[str] = []
    at = count = 0
    while (begun := _BEGINS.search(text, at)) and (ended := _ENDS.search(text, begun.end())):
        pieces.append(text[at : begun.start()])
        at, count = ended.end(), count + 1
    return ("".join((*pieces, text[at:])), count) if count else (text, 0)


def begins_own_session(kind: SegmentKind, text: str) -> bool | None:
    """Whether the session that begins with this message is a summarizer's call; None: the message does not tell."""
    return is_own_request(text) if kind in FIRST_WORDS else None


def is_own_request(text: str) -> bool:
    """Whether a prompt is one of our summarizer's, and not one that speaks of them."""
    return text.lstrip().startswith(SUMMARIZER_MARK)

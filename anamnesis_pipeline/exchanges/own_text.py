"""What this system itself put into a log: it is recognized, and never remembered as somebody's words."""

from typing import Any

from anamnesis_pipeline.model import MEMORY_TAG, SUMMARIZER_MARK, SegmentKind

_OPENING, _CLOSING = f"<{MEMORY_TAG}", f"</{MEMORY_TAG}>"
_FIRST_WORDS = frozenset({SegmentKind.PROMPT, SegmentKind.AGENT_PROMPT})


def may_hold_memory(line: str) -> bool:
    """Whether a look at the strings of a line is worth it."""
    return _OPENING in line


def without_memory(value: Any) -> tuple[Any, int]:
    """A decoded JSON value without the blocks that this system put into the session, and how many there were."""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list):
        pairs = [without_memory(item) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        named = {key: without_memory(item) for key, item in value.items()}
        return {key: item for key, (item, _) in named.items()}, sum(count for _, count in named.values())
    return value, 0


def begins_own_session(kind: SegmentKind, text: str) -> bool | None:
    """Whether the session that begins with this message is a summarizer's call; None: the message does not tell."""
    return SUMMARIZER_MARK in text if kind in _FIRST_WORDS else None


def _cut(text: str) -> tuple[str, int]:
    """A block that is not closed stays: what follows it may be anybody's words."""
    pieces: list[str] = []
    at = count = 0
    while (opening := text.find(_OPENING, at)) >= 0 and (closing := text.find(_CLOSING, opening)) >= 0:
        pieces.append(text[at:opening])
        at, count = closing + len(_CLOSING), count + 1
    return ("".join((*pieces, text[at:])), count) if count else (text, 0)

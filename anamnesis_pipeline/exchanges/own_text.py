"""What this system itself put into a log: it is recognized, and never remembered as somebody's words."""

from typing import Any

from anamnesis_pipeline.exchanges.tagged import without
from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS, MEMORY_TAG, SUMMARIZER_MARK, SegmentKind

_TAG = f"<{MEMORY_TAG}"
"""In a line of JSON the quotes of what follows it are escaped."""
_FIRST_WORDS = frozenset({SegmentKind.PROMPT, SegmentKind.AGENT_PROMPT})


def may_hold_memory(line: str) -> bool:
    """Whether a look at the strings of a line is worth it."""
    return _TAG in line


def without_memory(value: Any) -> tuple[Any, int]:
    """A decoded JSON value without the blocks that this system put into the session, and how many there were."""
    if isinstance(value, str):
        return without(value, MEMORY_BEGINS, MEMORY_ENDS)
    if isinstance(value, list):
        pairs = [without_memory(item) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, dict):
        named = {key: without_memory(item) for key, item in value.items()}
        return {key: item for key, (item, _) in named.items()}, sum(count for _, count in named.values())
    return value, 0


def begins_own_session(kind: SegmentKind, text: str) -> bool | None:
    """Whether the session that begins with this message is a summarizer's call; None: the message does not tell."""
    return is_own_request(text) if kind in _FIRST_WORDS else None


def is_own_request(text: str) -> bool:
    """Whether a prompt is one of our summarizer's, and not one that speaks of them."""
    return text.lstrip().startswith(SUMMARIZER_MARK)

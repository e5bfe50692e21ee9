"""Who wrote the text of a user record: a person, or the client, hooks and tools in their name."""

import re
from collections import Counter

from anamnesis_pipeline.exchanges.log_lines import Record
from anamnesis_pipeline.exchanges.tagged import without
from anamnesis_pipeline.model import SegmentKind

_MARKUP = re.compile(r"\s*<([a-z][a-z_-]*)")
_CONTINUED = "This session is being continued from a previous conversation that ran out of context"
_INTERRUPTED = "[Request interrupted by user"
_COMMAND_TAGS = ("command-", "local-command-", "bash-", "user-memory-input")
_NOTIFICATION_TAGS = ("task-notification", "teammate-message", "agent-notification")
INJECTED_TAGS = ("system-reminder", "user-prompt-submit-hook", "ide_opened_file", "ide_selection")
"""Of the blocks that the client adds to what a person or a tool says."""
_INJECTED_STARTS = ("Stop hook feedback:", "Caveat: The messages below were generated")
_MARKS_ITS_OWN = (2, 1, 38)
"""The earliest version in whose logs the client was seen to mark such text."""


def text_kind(text: str) -> SegmentKind | None:
    """Who wrote the text of a user record; None for text that was injected."""
    if text.startswith(_CONTINUED):
        return SegmentKind.COMPACT_SUMMARY
    markup = _MARKUP.match(text)
    tag = markup[1] if markup else ""
    if tag.startswith(_COMMAND_TAGS):
        return SegmentKind.COMMAND
    if tag.startswith(_NOTIFICATION_TAGS) or text.startswith(_INTERRUPTED):
        return SegmentKind.NOTIFICATION
    if tag in INJECTED_TAGS or text.startswith(_INJECTED_STARTS):
        return None
    return SegmentKind.PROMPT


def kinds_of(record: Record, text: str, skipped: Counter[str]) -> list[tuple[SegmentKind, str]]:
    """(kind, text) of what a text of the record says, if anything; what is left out of it is counted in `skipped`."""
    if record.get("isCompactSummary") is True:
        return [(SegmentKind.COMPACT_SUMMARY, text)]
    text, cut = _without_injected(text)
    skipped["user:injected"] += cut
    if not text:
        return []
    kind = text_kind(text)
    if kind is None and text.startswith(_INJECTED_STARTS) and _is_typed(record):
        kind = SegmentKind.PROMPT
    if kind is None:
        skipped["user:injected"] += 1
        return []
    return [(own_kind(record) if kind is SegmentKind.PROMPT else kind, text)]


def _without_injected(text: str) -> tuple[str, int]:
    """`text` without the blocks that the client added to what was typed, and how many there were."""
    count = 0
    for tag in INJECTED_TAGS:
        text, cut = without(text, f"<{tag}>", f"</{tag}>")
        count += cut
    return (text.strip(), count) if count else (text, 0)


def own_kind(record: Record) -> SegmentKind:
    """The kind of plain text in a user record, which depends on who sent the record."""
    origin = record.get("origin")
    if isinstance(origin, dict) and origin.get("kind", "human") != "human":
        return SegmentKind.NOTIFICATION
    return SegmentKind.AGENT_PROMPT if record.get("isSidechain") is True else SegmentKind.PROMPT


def _is_typed(record: Record) -> bool:
    """Whether the record says that a human wrote it: by its origin, by a field that only the client's prompt sets, or
    because its version marks what it writes itself (`isMeta`), and did not mark this.
    """
    origin, source = record.get("origin"), record.get("promptSource")
    if isinstance(origin, dict) and "kind" in origin:
        return bool(origin["kind"] == "human")
    if isinstance(source, str):
        return source in {"typed", "queued"}
    return "permissionMode" in record or _version(record) >= _MARKS_ITS_OWN


def _version(record: Record) -> tuple[int, ...]:
    version = record.get("version")
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", version) if isinstance(version, str) else None
    return tuple(map(int, found.groups())) if found else ()

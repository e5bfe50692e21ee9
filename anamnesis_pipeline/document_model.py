"""The nouns of documents. Frozen, without behaviour; and the tag that names their source."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from anamnesis_pipeline.model import SegmentKind


class Trust(StrEnum):
    """How far a text may be relied on, the highest first."""

    CURATED = "curated"
    """Written down to be remembered: CLAUDE.md, memory files, handoffs, project histories."""
    FILE = "file"
    """Any other file, and uploads."""


@dataclass(frozen=True, slots=True)
class SectionPiece:
    """A run of a section's text: `kind` is one of those of documents, or PROMPT and STATEMENT of a chat export.

    `message_id` is what the export calls the message of a chat; empty: it has no name there, or is none.
    """

    kind: SegmentKind
    text: str
    timestamp: datetime | None = None
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled piece of a document: what is under one heading, one function, one turn of a chat.

    `anchor` tells it from every other section of the same document. It is made of titles; equal ones are numbered, and
    that number is no part of what a section is known by (`anchors.unnumbered`). `title` is the way to it, outermost
    first. `first_line` and `last_line` count from 1 in the document's text, both inclusive.
    """

    anchor: str
    title: tuple[str, ...]
    pieces: tuple[SectionPiece, ...]
    first_line: int
    last_line: int
    kind: str = "document"
    """`document`, `code`, or `exchange` for a turn of a chat."""
    language: str = ""
    """Of code: `python`, `typescript`, ..."""
    spans: tuple[tuple[int, int], ...] = ()
    """The characters [start, end) of the document's text that it consists of, if they are not just all of its lines."""
    values: tuple[tuple[str | int, ...], ...] = ()
    """Of a turn of a chat: its messages in the JSON, each by the keys and indexes that lead to it from outside. With
    those that were turned away for one of them.
    """
    session: str = ""
    """Of a turn of a chat: the id of its conversation, or its channel as `slack:<name>`; empty: the export has none."""
    turned_away: tuple[str, ...] = ()
    """Ids of the messages of a chat that were turned away for one of this turn."""


def source_tag(spec: str) -> str:
    """The tag of what was read of the configured source of this name."""
    return f"source:{spec}"

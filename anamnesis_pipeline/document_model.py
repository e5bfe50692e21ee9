"""Data classes of documents, frozen and without behaviour, and the tag of their source."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from anamnesis_pipeline.model import SegmentKind


class Trust(StrEnum):
    """How reliable a text is, the highest first."""

    CURATED = "curated"
    """Written down to be remembered: CLAUDE.md, memory files, handoffs, project histories."""
    FILE = "file"
    """Any other file, and uploads."""


@dataclass(frozen=True, slots=True)
class SectionPiece:
    """A run of a section's text. `kind`: one for documents, or PROMPT and STATEMENT of a chat export.

    `message_id`: the export's id of a chat message; empty: none.
    """

    kind: SegmentKind
    text: str
    timestamp: datetime | None = None
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled piece of a document: the text under one heading, one function, one turn of a chat.

    `anchor` is unique in the document. It is made of titles; equal ones are numbered, but the number is not part of the
    section's identity (`anchors.unnumbered`). `title` is the heading path, outermost first. `first_line` and
    `last_line` count from 1 in the document's text, both inclusive.
    """

    anchor: str
    title: tuple[str, ...]
    pieces: tuple[SectionPiece, ...]
    first_line: int
    last_line: int
    kind: str = "document"
    """`document`, `code`, or `exchange` for a turn of a chat."""
    language: str = ""
    """Language of code: `python`, `typescript`, ..."""
    spans: tuple[tuple[int, int], ...] = ()
    """Its character ranges [start, end) in the document's text, if they are not all of its lines."""
    values: tuple[tuple[str | int, ...], ...] = ()
    """For a chat turn: paths (keys and indexes) of its messages in the JSON, rejected alternatives included."""
    session: str = ""
    """For a chat turn: the conversation id, or the channel as `slack:<name>`; empty: not in the export."""
    turned_away: tuple[str, ...] = ()
    """Ids of chat messages rejected in favour of one of this turn."""


def source_tag(spec: str) -> str:
    """Return the tag of data from the configured source of this name."""
    return f"source:{spec}"

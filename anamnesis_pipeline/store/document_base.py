"""The contract of what a store keeps of documents beside their parts: which text of which section was seen where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anamnesis_pipeline.model import FileCursor, Part


@dataclass(frozen=True, slots=True)
class Sighting:
    """A text of a section in one file: of all its texts there, and in copies of the file elsewhere, one is current.

    `place` and `anchor`, both hashes, name the section (equal headings of a document share one), `part_id` this text of
    it. `since_ns` is the file's time when the text was first seen there, or came back; `skew_ns` how far that machine's
    clock may be off. `text` is a hash of the text, `body` of the text without its heading. `present`: it stood there
    when the file was last parsed. `became`: the part that took its place, or its body over, under another heading or in
    a file of another name.
    """

    source: str
    path: str
    part_id: str
    place: str
    anchor: str
    ordinal: int
    first_line: int
    last_line: int
    since_ns: int
    skew_ns: int
    text: str
    body: str
    cwd: str = ""
    present: bool = True
    became: str = ""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a file holds now, for one transaction: `sections` in its order, none where the file is gone.

    `after.version` is ignored; the store sets it.
    """

    before: FileCursor
    after: FileCursor
    sections: Sequence[tuple[Part, Sighting]]


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A section of which a text came or went since it was last decided which one is current. `noted` grows with each
    such change.
    """

    place: str
    anchor: str
    noted: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of one text of a section: current, or superseded, by another part or by none."""

    is_current: bool
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """How many episodes changed: superseded by another one, retired without one, or active again."""

    superseded: int = 0
    retired: int = 0
    revived: int = 0


class DocumentRecords(Protocol):
    """Sections of documents, where they were seen, and which of their texts is current."""

    def commit(self, documents: Sequence[ParsedDocument]) -> list[int | None]:
        """Write what each file holds now in place of what it held, each in one transaction with its cursor.

        Parts that exist are not written again: only where theirs is the file that a part goes by, its lines, title,
        project and tags follow. A part that stands no more in the file that it goes by goes by another one that holds
        it, if there is one. Sections with a text that came or went are noted as unsettled.

        :returns: for each, how many parts are new; None when another run was faster, and nothing was written.
        """

    def vanished(self, source: str) -> list[FileCursor]:
        """Files that are gone and whose sections still count as present."""

    def unsettled(self, source: str, limit: int) -> list[Unsettled]:
        """Sections about which it is to be decided which text is current, of those last changed by this source."""

    def sightings_at(self, sections: Sequence[tuple[str, str]]) -> list[Sighting]:
        """Every sighting of these sections (place, anchor)."""

    def settle(self, sections: Sequence[Unsettled], verdicts: Mapping[str, Verdict]) -> Settled:
        """Let the episodes of these parts be what is decided, and the sections settled, but for those that changed
        meanwhile. Parts without an episode are settled when it is published, and what gives way to them gives way to
        none until then.
        """

    def sightings_of(self, source: str, path: str) -> list[Sighting]:
        """Every sighting in a file, the present ones first, in its order."""

    def files_of(self, part_ids: Sequence[str]) -> set[tuple[str, str]]:
        """Source and path of every file in which some of these parts were seen."""

    def seen_in(self, files: Sequence[tuple[str, str]]) -> set[str]:
        """Ids of the parts that were seen in these files."""

    def same_text(self, part_ids: Sequence[str]) -> set[str]:
        """Ids of all parts that say the very same as one of these, these included as far as they are of documents."""

    def remove(self, part_ids: Sequence[str]) -> int:
        """Forget where these parts were seen; what is current of their sections is decided anew. How many sightings."""

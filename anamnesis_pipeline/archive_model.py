"""The nouns of the archive. Frozen, without behaviour."""

from dataclasses import dataclass

MAX_LINE_BYTES = 64 << 20
"""A longer line is archived in pieces, none of which is parsed."""
BEGINS_LONG, GOES_ON = "\0", "\0\0"
"""What an archived piece of such a line begins with: the first, and each that follows it. Other lines hold no NUL."""


@dataclass(frozen=True, slots=True)
class ArchiveBase:
    """Bytes of another generation's archive: a row of frames whose lines a frame repeats.

    A generation that leans on another one so is no base itself.
    """

    source: str
    path: str
    generation: int
    revision: int
    archive_offset: int
    archive_bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveFrame:
    """A compressed run of masked lines in a file's archive: lines [first_line, first_line + lines).

    `revision` grows by one when a generation is rewritten (forgotten lines, new masks); each has a file of its own.
    `mark`, of a generation's first frame: what copies of the file begin with as well. A frame with a `base` can be
    read together with that only.
    """

    generation: int
    first_line: int
    lines: int
    archive_offset: int
    archive_bytes: int
    revision: int = 0
    mark: str = ""
    base: ArchiveBase | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An archived line of which something could not be read, and why. The text is in the archive."""

    source: str
    path: str
    generation: int
    line: int
    reason: str

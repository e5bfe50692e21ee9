"""Data classes of the archive. Frozen, without behaviour."""

from dataclasses import dataclass

MAX_LINE_BYTES = 64 << 20
"""Longer lines are archived in pieces, which are not parsed."""
BEGINS_LONG, GOES_ON = "\0", "\0\0"
"""Prefixes of the first piece of such a line, and of each further one. Other lines contain no NUL."""


@dataclass(frozen=True, slots=True)
class ArchiveBase:
    """Bytes of another generation's archive: consecutive frames whose lines a frame repeats.

    A generation with a base is never a base itself.
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

    `revision` grows by one when a generation is rewritten (forgotten lines, new masks); each has a separate file.
    `mark`, of a generation's first frame: the beginning shared by copies of the file. A frame with a `base` can be read
    only together with it.
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
    """An archived line that could not be read completely, and why. The text is in the archive."""

    source: str
    path: str
    generation: int
    line: int
    reason: str

"""What all stores compare of the archive's frames. Pure."""

from collections.abc import Sequence

from anamnesis_pipeline.archive_model import ArchiveFrame


def hold_the_lines_of(frames: Sequence[ArchiveFrame], stored: Sequence[ArchiveFrame], revision: int) -> bool:
    """Whether `frames` hold the very lines of the stored ones, which are of this revision, one revision later."""
    return (
        bool(stored)
        and {f.revision for f in stored} == {revision}
        and {f.revision for f in frames} == {revision + 1}
        and [(f.generation, f.first_line, f.lines) for f in frames]
        == [(f.generation, f.first_line, f.lines) for f in stored]
    )

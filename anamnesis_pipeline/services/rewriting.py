"""Rewriting of archived lines, with lines removed or masked."""

from collections.abc import Callable, Sequence

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.model import ArchiveFrame
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.store.base import Store

Change = Callable[[list[str]], list[str]]
"""Lines of a frame -> the same number of lines."""


def rewrite_generation(store: Store, archive: Archive, source: str, path: str, generation: int, change: Change) -> int:
    """Rewrite one archived generation if `change` changes a line. Return the number of changed lines.

    Generations that depend on its lines are rewritten unchanged first. Leftovers of former revisions are removed. The
    caller must hold `archive.alone`.

    :raises StoreBusy: a crawl used the generation as a base, or added lines, just now.
    :raises StoreFull: no disk space for the new file.
    """
    with archive.writing(source):  # crawls that began before the change have ended
        frames = store.archive.frames(source, path, generation)
        changed = _changed_lines(archive, source, path, frames, change)
        if frames and not changed:
            archive.remove_former(source, path, generation, frames[0].revision)
    if changed:
        for leaning in store.archive.leaning(source, path, generation):
            _write_anew(store, archive, *leaning, list)
        _write_anew(store, archive, source, path, generation, change)
    return changed


def _write_anew(store: Store, archive: Archive, source: str, path: str, generation: int, change: Change) -> None:
    with archive.writing(source):
        frames = store.archive.frames(source, path, generation)
        new = archive.rewrite(source, path, frames, change)
        if not store.archive.replace_frames(source, path, generation, frames[0].revision, new):
            raise StoreBusy(f"the archive of {path} changed meanwhile; try again")
        archive.remove_former(source, path, generation, new[0].revision)


def _changed_lines(archive: Archive, source: str, path: str, frames: Sequence[ArchiveFrame], change: Change) -> int:
    changed = 0
    for frame in frames:
        lines = list(archive.lines(source, path, [frame]))
        changed += sum(old != new for old, new in zip(lines, change(lines), strict=True))
    return changed

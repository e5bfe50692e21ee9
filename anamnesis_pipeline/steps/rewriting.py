"""Archived lines written anew: with less in them, or with more of it masked."""

from collections.abc import Callable, Sequence

from anamnesis_pipeline.archive_model import ArchiveFrame
from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.store.base import Store

Change = Callable[[list[str]], list[str]]
"""Lines of a frame -> as many lines."""


def rewrite_generation(store: Store, archive: Archive, source: str, path: str, generation: int, change: Change) -> int:
    """Write one archived generation anew where `change` changes a line; returns how many lines it did.

    What leans on its lines is first written anew by itself. Leftovers of former revisions are removed. Whoever calls
    holds `archive.alone`.

    :raises StoreBusy: a crawl took the generation for a base, or added lines, just now.
    :raises StoreFull: no room for the new file.
    """
    with archive.writing(source):  # a crawl that knew nothing yet of what is to go has ended
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

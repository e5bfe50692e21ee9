"""Read the lines of archived files, even while these are rewritten, and find damaged files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import FileCursor
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.store.base import Store


def archived_lines(
    store: Store, archive: Archive, source: str, path: str, generation: int, from_line: int = 0
) -> Iterator[str]:
    """Yield lines >= `from_line`, in order. When a rewrite removes the file that is being read, continue in the new
    one, whose lines have the same numbers.

    :raises StoreCorrupt: a frame is missing or damaged.
    """
    line, revision = from_line, -1

    def counted(text: str) -> str:
        nonlocal line
        line += 1
        return text

    while True:
        frames = store.archive.frames(source, path, generation, line)
        try:
            # no loop: its variable would keep a 50 MB line in memory beside the reader's copy
            yield from map(counted, archive.lines(source, path, frames, line))
        except StoreCorrupt:
            if frames[0].revision == revision:
                raise
            revision = frames[0].revision
            continue
        return


@dataclass(frozen=True, slots=True)
class ArchivedLines:
    """The archived lines of all files of a store."""

    store: Store
    archive: Archive

    def read(self, cursor: FileCursor, from_line: int = 0) -> Iterator[str]:
        """Yield the lines of a cursor's generation from `from_line` on; see `archived_lines`."""
        return archived_lines(self.store, self.archive, cursor.source, cursor.path, cursor.generation, from_line)


@dataclass(frozen=True, slots=True)
class Damage:
    """An archived generation of a file that cannot be read completely."""

    source: str
    path: str
    generation: int
    problem: str

    def __str__(self) -> str:
        """Return file and problem as text."""
        former = f" (generation {self.generation})" if self.generation else ""
        return f"{self.path} of {self.source}{former}: {self.problem}"


def damaged_files(
    store: Store, archive: Archive, tell: Callable[[int, int], object] = lambda done, of: None
) -> list[Damage]:
    """Read the whole archive and compare each frame with its checksum.

    :param tell: progress callback (files done, files in all).
    """
    cursors = [c for source in store.files.sources() for c in store.files.cursors(source.key).values()]
    found = []
    for done, cursor in enumerate(cursors, 1):
        for generation in range(cursor.generation + 1):
            try:
                for _ in archived_lines(store, archive, cursor.source, cursor.path, generation):
                    pass
            except StoreCorrupt as exc:
                found.append(Damage(cursor.source, cursor.path, generation, str(exc)))
        tell(done, len(cursors))
    return found

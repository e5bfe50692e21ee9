"""The lines of one archived generation, also while it is being rewritten."""

from collections.abc import Iterator

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.store.base import Store


def archived_lines(
    store: Store, archive: Archive, source: str, path: str, generation: int, from_line: int = 0
) -> Iterator[str]:
    """Lines >= `from_line`, in order. A rewrite that comes in between removes the file that is being read: it goes on
    in the new one, whose lines have the same numbers.

    :raises StoreCorrupt: a frame is missing or damaged.
    """
    line, revision = from_line, -1

    def counted(text: str) -> str:
        nonlocal line
        line += 1
        return text

    while True:
        frames = store.ingest.frames(source, path, generation, line)
        try:
            # not a loop: its variable would keep a line of 50 MB beside what the reader makes of it
            yield from map(counted, archive.lines(source, path, frames, line))
        except StoreCorrupt:
            if frames[0].revision == revision:
                raise
            revision = frames[0].revision
            continue
        return

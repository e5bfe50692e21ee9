"""Sources, and how far their files are read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

from anamnesis_pipeline.archive_model import ArchiveFrame
from anamnesis_pipeline.model import FileCursor, Source
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, Gateway, Row, Rows, Tables, batches
from anamnesis_pipeline.store.records.archive import NewFrames
from anamnesis_pipeline.store.values import clean

File = tuple[str, str]
"""Source and path."""
Crawled = tuple[FileCursor | None, FileCursor, ArchiveFrame | None]
"""A file as it was known (None: not at all) and as it is now, and the frame of its new lines, if there are any."""


class FileRecords:
    """Sources, and how far their files are read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def put_sources(self, sources: Sequence[Source]) -> int:
        """Add or update sources. Return how many were new."""
        return sum(self._gateway.write(partial(_put_sources, sources=batch)) for batch in batches(sources))

    def sources(self) -> list[Source]:
        """Return all sources, reserved ones included, by key."""
        with self._gateway.read() as tables:
            return [Source(**row) for row in tables["sources"].find({}, order=["key"])]

    def log_sources(self) -> list[Source]:
        """Return the sources of logs, by key: all but the reserved ones. These are what is counted as sources."""
        return [source for source in self.sources() if source.kind != "reserved"]

    def cursors(self, source: str) -> dict[str, FileCursor]:
        """Return path -> cursor, gone files included."""
        with self._gateway.read() as tables:
            rows = tables["files"].find({"source": source}, order=["path"])
        return {row["path"]: read_cursor(row) for row in rows}

    def cursor(self, source: str, path: str) -> FileCursor | None:
        """Return what is known of one file."""
        with self._gateway.read() as tables:
            row = tables["files"].one({"source": source, "path": path})
        return None if row is None else read_cursor(row)

    def incomplete_files(self) -> list[FileCursor]:
        """Return the files of all sources that are there and not read to their end, by source and path: the last
        attempt could not read them, but for what a rule keeps away, or there is more behind their last line than a line
        break.
        """
        with self._gateway.read() as tables:
            rows = tables["files"].find({"gone": 0, "incomplete": 1}, order=["source", "path"])
        return [read_cursor(row) for row in rows]

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        """Compare and set: write `after` and `frame` if the stored cursor is still `before` (None: absent).

        Return False, having written nothing, when another run was faster, or the frame's base was rewritten or may be
        none any more (`ArchiveRecords.archive_base`).
        """
        return self.commit_crawls([(before, after, frame)])[0]

    def commit_crawls(self, crawled: Sequence[Crawled]) -> list[bool]:
        """Do `commit_crawl` of many files, each for itself, in few transactions. No file comes twice."""
        done: list[bool] = []
        for batch in batches(crawled, MAX_ROWS_PER_WRITE // 2):
            done += self._gateway.write(partial(_commit_crawls, crawled=batch))
        return done

    def mark_gone(self, source: str, paths: Iterable[str]) -> int:
        """Flag files that vanished; their episodes stay. Return how many were newly flagged."""
        return sum(
            self._gateway.write(partial(_mark_gone, source=source, paths=batch))
            for batch in batches(sorted(set(paths)))
        )


def read_cursor(row: Row) -> FileCursor:
    """Return the cursor of a row. Device and inode are texts there: file systems use unsigned numbers of 64 bits."""
    return FileCursor(**{**row, "device": int(row["device"]), "inode": int(row["inode"]), "gone": bool(row["gone"])})


def write_cursors(tables: Tables, cursors: Iterable[FileCursor]) -> None:
    """Insert or replace the cursors of files, but for when these were first seen."""
    rows = [
        {
            **asdict(cursor),
            "device": str(cursor.device),
            "inode": str(cursor.inode),
            "gone": int(cursor.gone),
            "unread": clean(cursor.unread),
        }
        for cursor in cursors
    ]
    tables["files"].put(rows, keep=["first_mtime_ns"])


def versions_of(tables: Tables, files: Iterable[File]) -> dict[File, int]:
    """Return the versions of the cursors that these files have."""
    rows = of_files(tables["files"], files, ["source", "path", "version"])
    return {(row["source"], row["path"]): row["version"] for row in rows}


def of_files(rows: Rows, files: Iterable[File], fields: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a table that are of these files."""
    paths: dict[str, list[str]] = {}
    for source, path in files:
        paths.setdefault(source, []).append(path)
    for source, its in paths.items():
        yield from rows.among("path", its, fields, source=source)


def _put_sources(tables: Tables, sources: Sequence[Source]) -> int:
    keys = {source.key for source in sources}
    known = {row["key"] for row in tables["sources"].among("key", keys, ["key"])}
    tables["sources"].put([asdict(source) for source in sources])
    return len(keys - known)


def _commit_crawls(tables: Tables, crawled: Sequence[Crawled]) -> list[bool]:
    stored = versions_of(tables, [(after.source, after.path) for _, after, _ in crawled])
    frames = NewFrames(tables, [(after.source, after.path, frame) for _, after, frame in crawled if frame is not None])
    written: list[FileCursor] = []
    done: list[bool] = []
    for before, after, frame in crawled:
        version = stored.get((after.source, after.path))
        is_first = version == (before.version if before else None)
        done.append(is_first and (frame is None or frames.accept(after.source, after.path, frame)))
        if done[-1]:
            written.append(replace(after, version=(version or 0) + 1))
    write_cursors(tables, written)
    frames.write()
    return done


def _mark_gone(tables: Tables, source: str, paths: Sequence[str]) -> int:
    match = {"source": source, "gone": 0, "path": {"$in": list(paths)}}
    return tables["files"].update(match, {"gone": 1}, add={"version": 1})

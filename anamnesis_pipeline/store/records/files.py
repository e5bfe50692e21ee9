"""Sources, how far their files are read, and the frames of their archive."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from anamnesis_pipeline.model import ArchiveBase, ArchiveFrame, FileCursor, Source
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, Gateway, Match, Row, Rows, Tables, batches, write_all
from anamnesis_pipeline.store.tables import NOT_EMPTY, TEXT
from anamnesis_pipeline.store.values import clean

Generation = tuple[str, str, int]
"""Source, path and generation."""
_GENERATION = ("source", "path", "generation")
_BASE = ("base_source", "base_path", "base_generation", "base_revision", "base_offset", "base_bytes")
_FRAME = ("generation", "first_line", "lines", "archive_offset", "archive_bytes", "revision", "mark")
ADOPTED_AT_ONCE = 50
"""Files, each with all its frames, that one transaction adds."""
_LEANS = {"base_source": TEXT}
"""Matches frames that need a base. The index of bases holds these."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file, and the frames of all its generations."""

    cursor: FileCursor
    frames: Sequence[ArchiveFrame]


class ArchiveRecords:
    """The archive's frames.

    A frame may lean on a base: a run of frames of another generation whose lines it shares. A base leans on nothing,
    so that every generation can be rewritten.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def frames(self, source: str, path: str, generation: int, from_line: int = 0) -> list[ArchiveFrame]:
        """Return the frames that hold lines >= `from_line`, in order."""
        with self._gateway.snapshot() as tables:
            return _frames(tables, (source, path, generation), from_line)

    def files(self, source: str) -> list[ArchivedFile]:
        """Return all files of a source with their frames."""
        frames: dict[str, list[ArchiveFrame]] = {}
        with self._gateway.snapshot() as tables:
            order = ["path", "generation", "first_line"]
            for row in tables["frames"].each({"source": source}, ("path", *_FRAME, *_BASE), order=order):
                frames.setdefault(row["path"], []).append(_frame(row))
            cursors = [read_cursor(row) for row in tables["files"].find({"source": source}, order=["path"])]
        return [ArchivedFile(cursor, frames.get(cursor.path, [])) for cursor in cursors]

    def adopt(self, files: Sequence[ArchivedFile]) -> None:
        """Add files that are archived already, with their frames; those that are known stay unchanged."""

        def add(tables: Tables, files: Sequence[ArchivedFile]) -> None:
            known = versions_of(tables, [(each.cursor.source, each.cursor.path) for each in files])
            new = [each for each in files if (each.cursor.source, each.cursor.path) not in known]
            write_cursors(tables, [each.cursor for each in new])
            tables["frames"].put(
                [_row(each.cursor.source, each.cursor.path, frame) for each in new for frame in each.frames]
            )

        write_all(self._gateway, files, add, ADOPTED_AT_ONCE)

    def replace_frames(
        self, source: str, path: str, generation: int, revision: int, frames: Sequence[ArchiveFrame]
    ) -> bool:
        """Replace all frames of a generation by `frames`, of revision `revision` + 1, which hold the same lines.

        Return False, with nothing written, if the stored frames have another revision or other lines, or are a base.
        """
        of = source, path, generation

        def work(tables: Tables) -> bool:
            stored = _frames(tables, of)
            lines, its = ([(f.generation, f.first_line, f.lines) for f in some] for some in (frames, stored))
            revisions = {f.revision for f in stored}, {f.revision for f in frames}
            if not stored or lines != its or revisions != ({revision}, {revision + 1}) or _leaning(tables, of):
                return False
            tables["frames"].delete(_match(of))
            tables["frames"].insert([_row(source, path, frame) for frame in frames])
            return True

        return self._gateway.write(work)

    def archive_base(
        self, source: str, path: str, generation: int, mark: str, first_line: int, lines: int
    ) -> ArchiveBase | None:
        """Find the lines of these numbers in another generation that begins with the same mark and leans on nothing; of
        several, in the one that has most of them. None if other frames lean on this generation.

        :param mark: of the generation; empty: that of its first frame.
        """
        own = source, path, generation
        with self._gateway.snapshot() as tables:
            if _leaning(tables, own):
                return None
            if not mark:
                first = tables["frames"].one({**_match(own), "first_line": 0}, ["mark"])
                mark = first["mark"] if first else ""
            alike = tables["frames"].find({"mark": {"$eq": mark, **NOT_EMPTY}}, _GENERATION)
            found = [
                (-sum(frame.lines for frame in frames), other, frames)
                for other in sorted({_generation(row) for row in alike} - {own})
                if (frames := _frames(tables, other, first_line, first_line + lines))
                and not tables["frames"].has({**_match(other), **_LEANS})
            ]
        if not found:
            return None
        _, other, frames = min(found, key=lambda each: each[:2])
        return ArchiveBase(
            *other, frames[0].revision, frames[0].archive_offset, sum(frame.archive_bytes for frame in frames)
        )

    def leaning(self, source: str, path: str, generation: int) -> list[Generation]:
        """Return the generations with frames whose base is this one, in any revision."""
        with self._gateway.read() as tables:
            return _leaning(tables, (source, path, generation))


class NewFrames:
    """Frames that one transaction adds. A frame may lean on one before it."""

    def __init__(self, tables: Tables, frames: Iterable[tuple[str, str, ArchiveFrame]]) -> None:
        """:param frames: (source, path, frame) of all that will be given to `accept`."""
        self._tables = tables
        self._accepted: list[Row] = []
        self._revisions: dict[Generation, set[int]] = {}
        self._leaning: set[Generation] = set()
        bases, own = set(), set()
        for source, path, frame in frames:
            if frame.base is not None:
                bases.add(_of_base(frame.base))
                own.add((source, path, frame.generation))
        fields = (*_GENERATION, "revision", "base_source")
        for batch in batches(sorted(bases)):
            for row in tables["frames"].each({"$or": [_match(each) for each in batch]}, fields):
                self._revisions.setdefault(_generation(row), set()).add(row["revision"])
                if row["base_source"] is not None:
                    self._leaning.add(_generation(row))
        self._leaned_on = _leaned_on(tables, own)

    def accept(self, source: str, path: str, frame: ArchiveFrame) -> bool:
        """Let `write` add a frame. Return False, and leave it out, if its base has another revision by now or leans on
        another, or if other frames lean on this generation.
        """
        generation = (source, path, frame.generation)
        if frame.base is not None:
            base = _of_base(frame.base)
            is_base_still = self._revisions.get(base) == {frame.base.revision} and base not in self._leaning
            if not is_base_still or generation in self._leaned_on:
                return False
            self._leaning.add(generation)
            self._leaned_on.add(base)
        self._revisions.setdefault(generation, set()).add(frame.revision)
        self._accepted.append(_row(source, path, frame))
        return True

    def write(self) -> None:
        """Write the accepted frames."""
        self._tables["frames"].insert(self._accepted)
        self._accepted = []


def _leaned_on(tables: Tables, generations: Iterable[Generation]) -> set[Generation]:
    """Return those of these generations that others lean on."""
    found: set[Generation] = set()
    fields = _BASE[:3]
    for batch in batches(sorted(generations)):
        names = [dict(zip(fields, generation, strict=True)) for generation in batch]
        for row in tables["frames"].each({**_LEANS, "$or": names}, fields):
            found.add((row["base_source"], row["base_path"], row["base_generation"]))
    return found


def _leaning(tables: Tables, generation: Generation) -> list[Generation]:
    source, path, number = generation
    match = {"base_source": {"$eq": source, **TEXT}, "base_path": path, "base_generation": number}
    return sorted({_generation(row) for row in tables["frames"].each(match, _GENERATION)})


def _frames(
    tables: Tables, generation: Generation, from_line: int = 0, to_line: int | None = None
) -> list[ArchiveFrame]:
    """Return the frames that hold lines from `from_line` on, and before `to_line` if given. Frames do not overlap."""
    match, fields = _match(generation), (*_FRAME, *_BASE)
    first = tables["frames"].one({**match, "first_line": {"$lte": from_line}}, fields, order=["-first_line"])
    behind = {"$gt": from_line} | ({} if to_line is None else {"$lt": to_line})
    rest = tables["frames"].find({**match, "first_line": behind}, fields, order=["first_line"])
    reaches = first is not None and first["first_line"] + first["lines"] > from_line
    return [_frame(row) for row in ([first, *rest] if first is not None and reaches else rest)]


def _frame(row: Row) -> ArchiveFrame:
    base = None if row["base_source"] is None else ArchiveBase(*(row[name] for name in _BASE))
    return ArchiveFrame(**{name: row[name] for name in _FRAME}, base=base)


def _match(generation: Generation) -> Match:
    return dict(zip(_GENERATION, generation, strict=True))


def _generation(row: Row) -> Generation:
    return row["source"], row["path"], row["generation"]


def _of_base(base: ArchiveBase) -> Generation:
    return base.source, base.path, base.generation


def _row(source: str, path: str, frame: ArchiveFrame) -> Row:
    base: tuple[Any, ...] = astuple(frame.base) if frame.base else (None,) * len(_BASE)
    own = {name: getattr(frame, name) for name in _FRAME}
    return {"source": source, "path": path, **own, **dict(zip(_BASE, base, strict=True))}


File = tuple[str, str]
"""Source and path."""
Crawled = tuple[FileCursor | None, FileCursor, ArchiveFrame | None]
"""A file's former state (None: unknown), its present state, and the frame of its new lines, if there are any."""


class FileRecords:
    """Sources, and how far their files are read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def put_sources(self, sources: Sequence[Source]) -> int:
        """Add or update sources. Return how many were new."""

        def put(tables: Tables, sources: Sequence[Source]) -> int:
            keys = {source.key for source in sources}
            known = {row["key"] for row in tables["sources"].among("key", keys, ["key"])}
            tables["sources"].put([asdict(source) for source in sources])
            return len(keys - known)

        return sum(write_all(self._gateway, sources, put))

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

        def commit(tables: Tables, crawled: Sequence[Crawled]) -> list[bool]:
            stored = versions_of(tables, [(after.source, after.path) for _, after, _ in crawled])
            new = [(after.source, after.path, frame) for _, after, frame in crawled if frame is not None]
            frames, written, done = NewFrames(tables, new), list[FileCursor](), list[bool]()
            for before, after, frame in crawled:
                version = stored.get((after.source, after.path))
                is_first = version == (before.version if before else None)
                done.append(is_first and (frame is None or frames.accept(after.source, after.path, frame)))
                if done[-1]:
                    written.append(replace(after, version=(version or 0) + 1))
            write_cursors(tables, written)
            frames.write()
            return done

        done = write_all(self._gateway, crawled, commit, MAX_ROWS_PER_WRITE // 2)
        return [is_done for batch in done for is_done in batch]

    def mark_gone(self, source: str, paths: Iterable[str]) -> int:
        """Flag files that vanished; their episodes stay. Return how many were newly flagged."""

        def mark(tables: Tables, paths: Sequence[str]) -> int:
            match = {"source": source, "gone": 0, "path": {"$in": list(paths)}}
            return tables["files"].update(match, {"gone": 1}, add={"version": 1})

        return sum(write_all(self._gateway, sorted(set(paths)), mark))


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

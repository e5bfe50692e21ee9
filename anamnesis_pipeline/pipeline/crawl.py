"""Copy the new lines of a source into the archive: exactly once, secrets masked, only new bytes read.

Outputs of tools come first: a record in the archive is always readable together with the output that it refers to.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import BEGINS_LONG, EXCLUDED, ArchiveFrame, FileCursor, FileStat, Source
from anamnesis_pipeline.parsing.text.file_names import HISTORY
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import archived_lines
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.forgotten_lines import file_key, without_forgotten
from anamnesis_pipeline.pipeline.tool_outputs import NO_LINE, masked_together, output_key
from anamnesis_pipeline.sources.base import (
    Listing,
    Read,
    SourceHost,
    is_description,
    is_tool_output,
    output_name,
    record_above,
)
from anamnesis_pipeline.sources.lines import (
    BLOCK_BYTES,
    FINGERPRINT_BYTES,
    ReadBlock,
    batches,
    complete_lines,
    fingerprint,
    mark_of,
    text_lines,
    whole_object,
)
from anamnesis_pipeline.sources.selection import Selection, select
from anamnesis_pipeline.store.base import Store

FRAME_LINES = 2_000
OUTPUT_FRAME_LINES = 100_000
"""The secrets of an output are searched for frame by frame, so its frames have more lines."""
SECRET_BYTES = 64 << 10
"""Bytes on each side of an output's frame that are scanned too, since a secret may cross the frame's boundary."""

Mask = Callable[[str], tuple[str, Counter[str]]]
"""Raw line -> the line with masked secrets, and the number of secrets by kind."""


@dataclass(frozen=True, slots=True)
class CrawlReport:
    """What one crawl of a source did. `files`: listed and not left out; `masked`: secrets by kind."""

    files: int = 0
    new: int = 0
    grown: int = 0
    replaced: int = 0
    gone: int = 0
    unchanged: int = 0
    bytes_read: int = 0
    lines: int = 0
    masked: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    left_out: dict[str, int] = field(default_factory=dict)
    """Documents: reason -> number of files not read."""


@dataclass(slots=True)
class _Tally:
    bytes_read: int = 0
    lines: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Crawl:
    """State shared by all files of a crawl."""

    store: Store
    host: SourceHost
    read: Read
    archive: Archive
    source: Source
    mask: Mask
    tally: _Tally
    exclusions: Exclusions


def folder_of(source: Source) -> str:
    """Return the folder on the source's machine that holds its files."""
    return source.root if source.folder in {"", "."} else f"{source.root.rstrip('/')}/{source.folder}"


def place_of(source: Source, path: str) -> str:
    """Return a file's path on its machine: below the source's folder, or the record of a Cowork session around it."""
    folder = folder_of(source).rstrip("/")
    record = record_above(folder)
    return record if record.endswith(f"/{path}") else f"{folder}/{path}"


def crawl_source(store: Store, host: SourceHost, archive: Archive, source: Source, mask: Mask) -> CrawlReport:
    """Archive new content of a source. A file that cannot be read is reported and does not stop the others.

    A folder that cannot be listed is reported too; then no file counts as deleted. If the folder was removed while its
    root can be listed, all of its files count as deleted.
    :raises StoreFull: the disk is full; what was committed before stays.
    """
    started = time.perf_counter()
    try:
        listing = listed(host, source)
    except SourceUnreadable as problem:
        return CrawlReport(problems=[str(problem)], seconds=time.perf_counter() - started)
    tally = _Tally(problems=list(listing.problems))
    crawl = _Crawl(store, host, host.read, archive, source, mask, tally, Exclusions(store))
    with archive.writing(source.key):
        report = _crawl_listing(crawl, listing)
    return replace(report, seconds=time.perf_counter() - started)


def listed(host: SourceHost, source: Source) -> Listing:
    """Return the files of a source. Only one file is read for the history; the files beside it are not ours to read.

    A removed folder has none.
    :raises SourceUnreadable: it cannot be listed, or both it and its root are missing (such as an unmounted disk).
    """
    if source.kind == "claude_history":
        history = host.file(folder_of(source), HISTORY)
        if history is None:
            host.folders(folder_of(source))  # raises if the folder cannot be listed
        return Listing((history,) if history else ())
    try:
        listing = host.list_files(folder_of(source))
    except SourceMissing:
        if source.folder in {"", "."}:
            raise
        host.folders(source.root)
        return Listing(())
    folder, _, name = record_above(folder_of(source)).rpartition("/")
    record = host.file(folder or "/", name) if name else None
    return replace(listing, files=(*listing.files, record)) if record else listing


def _wanted(
    exclusions: Exclusions, source: Source, listing: Listing, cursors: Mapping[str, FileCursor]
) -> tuple[Listing, dict[str, FileCursor]]:
    """Drop excluded files. They are neither read nor treated as deleted; their cursors stay, so that reading continues
    when the rule is removed.
    """
    rules, folder, machine = exclusions.now(), folder_of(source), source.machine
    kept = tuple(file for file in listing.files if not rules.of_path(machine, f"{folder}/{file.path}"))
    known = {path: c for path, c in cursors.items() if not rules.of_path(machine, f"{folder}/{path}")}
    return replace(listing, files=kept), known


def _crawl_listing(crawl: _Crawl, listing: Listing) -> CrawlReport:
    wanted, cursors = _wanted(crawl.exclusions, crawl.source, listing, crawl.store.files.cursors(crawl.source.key))
    selection = select(wanted, cursors, complete=not listing.problems)
    outcomes = _crawl_files(crawl, selection)
    outcomes[EXCLUDED] += len(listing.files) - len(wanted.files)
    gone = crawl.store.files.mark_gone(crawl.source.key, selection.gone) if selection.gone else 0
    return CrawlReport(
        files=len(wanted.files),
        new=outcomes["new"],
        grown=outcomes["grown"],
        replaced=outcomes["replaced"],
        gone=gone,
        unchanged=selection.unchanged,
        left_out={EXCLUDED: outcomes[EXCLUDED]} if outcomes[EXCLUDED] else {},
        bytes_read=crawl.tally.bytes_read,
        lines=crawl.tally.lines,
        masked=dict(crawl.tally.masked),
        problems=crawl.tally.problems,
    )


def _crawl_files(crawl: _Crawl, selection: Selection) -> Counter[str]:
    """Return outcome -> number of files. A remote host streams new files, and new ends of known ones, ahead of use."""
    outcomes: Counter[str] = Counter()
    to_read: list[tuple[FileStat, FileCursor | None]] = [
        *((file, None) for file in selection.new),
        *selection.grown,
        *selection.replaced,
    ]
    to_read.sort(key=lambda found: not is_tool_output(found[0].path))
    new = [(_absolute(crawl, file), file.size) for file, cursor in to_read if cursor is None]
    known = {file.path: cursor for file, cursor in selection.grown}
    grown = [
        (_absolute(crawl, file), ranges_of_grown(known[file.path].offset, file.size))
        for file, _ in to_read
        if file.path in known
    ]
    with crawl.host.fetching(new) as whole, reading_ahead(whole, grown) as read:
        crawl = replace(crawl, read=read)
        for file, cursor in to_read:
            if crawl.exclusions.of_path(crawl.source.machine, _absolute(crawl, file)):  # a rule added just now
                outcomes[EXCLUDED] += 1
                continue
            try:
                outcomes[_crawl_file(crawl, file, cursor)] += 1
            except SourceUnreadable as problem:
                crawl.tally.problems.append(str(problem))
                _note_unread(crawl, file, str(problem))
    return outcomes


def _absolute(crawl: _Crawl, file: FileStat) -> str:
    return place_of(crawl.source, file.path)


def _note_unread(crawl: _Crawl, file: FileStat, reason: str) -> None:
    """Record that this state of a file could not be read; what was read of it before stays."""
    stored = crawl.store.files.cursor(crawl.source.key, file.path)
    cursor = stored or _first_seen(crawl, file)
    tried = replace(
        cursor,
        device=file.device,
        inode=file.inode,
        size=file.size,
        mtime_ns=file.mtime_ns,
        gone=False,
        version=cursor.version + 1,
        unread=reason,
    )
    crawl.store.files.commit_crawl(stored, tried, None)


def _crawl_file(crawl: _Crawl, file: FileStat, cursor: FileCursor | None) -> str:
    """Archive the new content of one file. Return `new`, `grown` or `replaced`."""
    read = _reader(crawl, file)
    if cursor is None:
        outcome, start = "new", _first_seen(crawl, file)
    elif _is_same_file(crawl, read, file, cursor):
        outcome, start = "grown", cursor
    else:
        outcome, start = "replaced", _next_generation(cursor)
    _archive_lines(crawl, file, cursor, start, read)
    return outcome


def _first_seen(crawl: _Crawl, file: FileStat) -> FileCursor:
    return FileCursor(crawl.source.key, file.path, first_mtime_ns=file.mtime_ns)


def _is_same_file(crawl: _Crawl, read: ReadBlock, file: FileStat, cursor: FileCursor) -> bool:
    """Return whether a file begins with all that was archived of it, so that only the rest is new.

    Programs that save by writing a new file in place of the old one would otherwise fill the archive with copies.
    """
    if file.size < cursor.offset:
        return False
    if cursor.head_hash and fingerprint(read, cursor.offset) != cursor.head_hash:
        return False
    if is_tool_output(file.path) and _ended_inside_a_line(read, file, cursor):
        return False
    return file.inode == cursor.inode or _is_archived(crawl, read, cursor)


def _ended_inside_a_line(read: ReadBlock, file: FileStat, cursor: FileCursor) -> bool:
    """Return whether a last line without newline was continued, which makes it another line."""
    return 0 < cursor.offset < file.size and read(cursor.offset - 1, 1) != b"\n"


def _is_archived(crawl: _Crawl, read: ReadBlock, cursor: FileCursor) -> bool:
    """Return whether the archive holds exactly the lines that the file begins with."""
    if not cursor.lines or is_description(cursor.path):
        return False
    start = FileCursor(cursor.source, cursor.path)
    uncounted = replace(crawl, tally=_Tally())
    here = (line for lines, _, _ in _masked_batches(uncounted, start, read, cursor.offset) for line in lines)
    kept = archived_lines(crawl.store, crawl.archive, cursor.source, cursor.path, cursor.generation)
    return all(line == archived for line, archived in zip_longest(here, kept))


def _next_generation(cursor: FileCursor) -> FileCursor:
    """Return the cursor of a new generation. The parser's state stays: the generation before may be unfinished."""
    return FileCursor(
        cursor.source,
        cursor.path,
        generation=cursor.generation + 1 if cursor.lines else cursor.generation,
        parsed_lines=-1 if cursor.parsed_lines < cursor.lines else 0,
        parser_state=cursor.parser_state,
        version=cursor.version,
        first_mtime_ns=cursor.first_mtime_ns,
    )


def _new_lines(crawl: _Crawl, cursor: FileCursor, read: ReadBlock, end: int) -> Iterator[tuple[str, int]]:
    """Yield (line, offset after it) of a file's new content; a description is one object, in any layout."""
    if is_description(cursor.path):
        return whole_object(read, end) if cursor.offset == 0 else iter(())
    is_seam = partial(_is_seam, crawl, read)
    if is_tool_output(cursor.path):
        return text_lines(read, cursor.offset, end, is_seam)
    return complete_lines(read, cursor.offset, end, is_seam, inside=_is_inside_a_line(crawl, cursor, read))


def _is_seam(crawl: _Crawl, read: ReadBlock, at: int) -> bool:
    """Return whether no secret crosses an offset: the text around it is masked identically in one piece and in two."""
    start = max(0, at - SECRET_BYTES)
    before, after = (raw.decode("utf-8", "replace") for raw in (read(start, at - start), read(at, SECRET_BYTES)))
    return crawl.mask(before + after)[0] == crawl.mask(before)[0] + crawl.mask(after)[0]


def _is_inside_a_line(crawl: _Crawl, cursor: FileCursor, read: ReadBlock) -> bool:
    """Return whether a run ended inside a long line, with some of its pieces archived."""
    if not cursor.lines or not cursor.offset or read(cursor.offset - 1, 1) == b"\n":
        return False
    file = cursor.source, cursor.path, cursor.generation
    return next(archived_lines(crawl.store, crawl.archive, *file, cursor.lines - 1), "").startswith(BEGINS_LONG)


def _masked_batches(
    crawl: _Crawl, cursor: FileCursor, read: ReadBlock, end: int
) -> Iterator[tuple[list[str], int, bool]]:
    """Yield `batches` of a file's new lines, with masked secrets."""
    is_text, start = is_tool_output(cursor.path), cursor.offset
    most = OUTPUT_FRAME_LINES if is_text else FRAME_LINES
    for lines, offset, last in batches(_new_lines(crawl, cursor, read, end), start, most):
        if is_text and lines:
            yield _masked_text(crawl, read, lines, (start, offset, end)), offset, last
        else:
            yield _masked(crawl, lines), offset, last
        start = offset


def _archive_lines(
    crawl: _Crawl, file: FileStat, stored: FileCursor | None, cursor: FileCursor, read: ReadBlock
) -> None:
    """Append to the archive, then commit, frame by frame. Stop when another run was faster."""
    end, revision = _archive_end(crawl.store, cursor)
    for lines, offset, last in _masked_batches(crawl, cursor, read, file.size):
        frame = None
        count = len(lines)
        if lines:
            frame = _archive_frame(crawl, cursor, lines, at=end, revision=revision)
            end += frame.archive_bytes
        del lines  # frees a huge line before the next one
        after = _read_up_to(cursor, file, read, offset, count)
        if not last:  # a time that no listing shows: if this run dies here, the next continues
            after = replace(after, mtime_ns=0)
        if not crawl.store.files.commit_crawl(stored, after, frame):
            return
        stored = cursor = after
        crawl.tally.lines += count


def _archive_frame(crawl: _Crawl, cursor: FileCursor, lines: list[str], *, at: int, revision: int) -> ArchiveFrame:
    """Append masked lines, compressed against those of the file that this one is a copy or fork of, if any."""
    file = cursor.source, cursor.path, cursor.generation
    mark = "" if cursor.lines else mark_of([output_name(cursor.path) or ""] if is_tool_output(cursor.path) else lines)
    base = crawl.store.archive.archive_base(*file, mark, cursor.lines, len(lines))
    lines = _without_forgotten(crawl, cursor.path, lines)
    frame = crawl.archive.append(*file, cursor.lines, lines, at=at, revision=revision, base=base)
    return replace(frame, mark=mark)


def _read_up_to(cursor: FileCursor, file: FileStat, read: ReadBlock, offset: int, lines: int) -> FileCursor:
    return replace(
        cursor,
        device=file.device,
        inode=file.inode,
        size=file.size,
        mtime_ns=file.mtime_ns,
        offset=offset,
        head_hash=fingerprint(read, offset),
        head_bytes=min(FINGERPRINT_BYTES, offset),
        lines=cursor.lines + lines,
        gone=False,
        version=cursor.version + 1,
        unread="",
        parsed_lines=cursor.lines + lines if is_tool_output(file.path) else cursor.parsed_lines,
    )


def _archive_end(store: Store, cursor: FileCursor) -> tuple[int, int]:
    """Return the end of the archived generation, and its revision."""
    last_line = max(0, cursor.lines - 1)
    frames: list[ArchiveFrame] = store.archive.frames(cursor.source, cursor.path, cursor.generation, last_line)
    return max(((f.archive_offset + f.archive_bytes, f.revision) for f in frames), default=(0, 0))


def _masked(crawl: _Crawl, lines: list[str]) -> list[str]:
    """Return the lines with masked secrets. Empties `lines`, so that a huge line is freed once copied."""
    lines.reverse()
    masked = []
    while lines:
        line, found = crawl.mask(lines.pop())
        masked.append(line)
        crawl.tally.masked.update(found)
    return masked


def _masked_text(crawl: _Crawl, read: ReadBlock, lines: list[str], place: tuple[int, int, int]) -> list[str]:
    """Mask lines of a text together with the text around them. `place`: offsets before and after the lines, and of the
    end of the text.
    """
    start, behind, end = place
    first = max(0, start - SECRET_BYTES)
    before = [line for line, _ in text_lines(read, first, start)]
    after = [line for line, _ in text_lines(read, behind, min(end, behind + SECRET_BYTES))]
    masked, found = masked_together(crawl.mask, lines, before, after)
    crawl.tally.masked.update(found)
    return masked


def _without_forgotten(crawl: _Crawl, path: str, lines: list[str]) -> list[str]:
    if not crawl.store.forgetting.has_forgotten():
        return lines
    if is_tool_output(path):
        is_gone = crawl.store.forgetting.forgotten([output_key(path), file_key(crawl.source.key, path)])
        return [NO_LINE] * len(lines) if is_gone else lines
    return without_forgotten(
        lines,
        file_key(crawl.source.key, path),
        crawl.store.forgetting.forgotten,
        is_history=crawl.source.kind == "claude_history",
    )


def _reader(crawl: _Crawl, file: FileStat) -> ReadBlock:
    path = _absolute(crawl, file)

    def read(offset: int, length: int) -> bytes:
        data = crawl.read(path, offset, length)
        crawl.tally.bytes_read += len(data)
        return data

    return read


# Prefetching of the ends of grown logs: on a remote host each read is a round trip.

READS_AT_ONCE = 4
AHEAD_FILES = 8
"""Max prefetched files, each with little more than one block."""

Ranges = Sequence[tuple[int, int]]
"""(offset, length) each."""


def ranges_of_grown(offset: int, size: int) -> Ranges:
    """Return the ranges to read of a log of `size` bytes that was read up to `offset`: both fingerprints, and at most
    one block of new bytes. Pure.
    """
    begin, end = max(0, offset - FINGERPRINT_BYTES), min(size, offset + BLOCK_BYTES)
    if begin <= FINGERPRINT_BYTES:
        return [(0, end)]
    return [(0, FINGERPRINT_BYTES), (begin, end - begin)]


@contextmanager
def reading_ahead(read: Read, files: Sequence[tuple[str, Ranges]]) -> Iterator[Read]:
    """Yield a read function, for one thread, that prefetches these ranges of these files in this order; other reads go
    to `read`. Errors are raised when the affected range is read.

    :param files: (absolute path, ranges) each.
    """
    pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="reading ahead")
    try:
        yield _Ahead(read, files, pool).read
    finally:
        pool.shutdown(cancel_futures=True)


class _Ahead:
    def __init__(self, read: Read, files: Sequence[tuple[str, Ranges]], pool: Executor) -> None:
        self._read = read
        self._files = files
        self._pool = pool
        self._number = {path: number for number, (path, _) in enumerate(files)}
        self._coming: dict[int, Future[list[bytes]]] = {}
        self._asked = 0
        """Files below this number were requested or skipped."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        number = self._number.get(path)
        if number is not None:
            self._move_to(number)
            if number in self._coming:
                found = zip(self._files[number][1], self._coming[number].result(), strict=True)
                for (start, count), data in found:
                    if start <= offset and offset + length <= start + count:
                        return data[offset - start : offset - start + length]
        return self._read(path, offset, length)

    def _move_to(self, number: int) -> None:
        """Drop the files before this one, and prefetch the next ones."""
        for passed in [each for each in self._coming if each < number]:
            self._coming.pop(passed).cancel()
        until = min(number + AHEAD_FILES, len(self._files))
        for each in range(max(self._asked, number), until):
            self._coming[each] = self._pool.submit(self._ranges, *self._files[each])
        self._asked = max(self._asked, until)

    def _ranges(self, path: str, ranges: Ranges) -> list[bytes]:
        return [self._read(path, offset, length) for offset, length in ranges]

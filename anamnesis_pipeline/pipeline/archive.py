"""The archive: a compressed, append-only copy of every log line, with secrets masked. It outlives the logs.

    archive/<source>/<hash of path>.<generation>.zst          as crawled
    archive/<source>/<hash of path>.<generation>.r<N>.zst     rewritten N times: forgotten lines, new masks

Each file is a sequence of zstd frames; a frame holds whole lines, joined by newlines. A frame that repeats lines of
another generation (a copy, a fork, a rewritten file) is compressed against them. Only the frames that the store knows
count. Bytes behind the last one are left over from a crash; the next append overwrites them. The same goes for a file
of a revision that the store does not know. Files of former revisions are removed.

A single memory writes an archive, named in the file `written-by` beside the sources. Two would destroy each other's
lines: each overwrites the bytes behind the last frame that it knows, and removes revisions that it does not know.
"""

import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from anamnesis_pipeline.errors import GiveUp, StoreCorrupt, StoreFull
from anamnesis_pipeline.model import ArchiveBase, ArchiveFrame, content_id

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
WRITERS = 16
"""Threads for writing new generations: concurrent waits for the disk overlap."""
CATALOG = "catalog"
"""Name of the file beside the archived files of a source that tells of them (`archive_catalog.py`)."""
MARK = "written-by"
"""Name of the file, in the archive's folder, that names the memory that writes it."""
LEVEL = 3
LEANING_LEVEL = 9
MAX_TABLE_LOG = 23
"""Entries of the match finder's two tables, as a power of two, 4 bytes each: one for every byte of a usual base. The
level's own tables would hold only its end.
"""
LEANING_BYTES = 16 << 10
"""Frames of at most this compressed size get no base: there is little to save."""
TEXT_BYTES = 16 << 20
"""Limit of a base and of the text compressed against it, so that reading a frame takes bounded memory."""


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """All lines of a generation that is not archived yet; see `Archive.append` for `base`."""

    path: str
    generation: int
    lines: Sequence[str]
    base: ArchiveBase | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class PathFrame:
    """A frame and the file whose lines it holds."""

    path: str
    frame: ArchiveFrame


class Archive:
    """The archive below one folder. Thread-safe; writers of one source take `writing` first."""

    def __init__(self, root: Path, memory: str = "SQLite") -> None:
        """:param memory: description of the memory that owns the frames; no other memory may write here."""
        self._root = root
        self._memory = memory

    @contextmanager
    def writing(self, source: str) -> Iterator[None]:
        """Wait until no other process or thread writes this source. The kernel releases the lock when its holder dies.

        :raises GiveUp: another memory writes this archive.
        :raises StoreFull: the disk is full.
        """
        with _locked(self._root / source):
            self._claim()
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process or thread forgets lines or masks them again. A caller that needs both locks takes
        `writing` second. Raises the same errors as `writing`.
        """
        with self.still():
            self._claim()
            yield

    @contextmanager
    def still(self) -> Iterator[None]:
        """Take the lock of `alone` for reading: no archived line is removed meanwhile.

        :raises StoreFull: the disk is full.
        """
        with _locked(self._root):
            yield

    def hand_over(self) -> None:
        """Allow a copy of this memory to take over writing; the first memory that writes becomes the writer."""
        (self._root / MARK).unlink(missing_ok=True)

    def other_writer(self) -> tuple[str, str] | None:
        """Return (description of the other memory that writes here, advice); None if there is none."""
        holder = self.writer()
        return None if holder in {"", self._memory} else (holder, self._advice(holder))

    def writer(self) -> str:
        """Return the description of the memory that writes here; empty: none has written yet, or a copy of the former
        writer may take over.
        """
        try:
            return (self._root / MARK).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def _claim(self) -> None:
        """Make this memory the writer, unless another is."""
        try:
            while (holder := self.writer()) != self._memory:
                if holder:
                    raise GiveUp(
                        f"the archive in {self._root} is written by another memory, {holder}, and this is "
                        f"{self._memory}; each would overwrite lines of the other; {self._advice(holder)}"
                    )
                _put_first(self._root / MARK, self._memory)
        except OSError as problem:
            raise _translated(problem, self._root) from problem

    def _advice(self, holder: str) -> str:
        """Return what the user can do where another memory writes."""
        return (
            f"to go on with what {holder} holds, copy it with `anamnesis migrate` into an empty place; for a memory of "
            f"its own set another ANAMNESIS_HOME; if {holder} was given up for good, remove {self._root / MARK}"
        )

    def append(
        self,
        source: str,
        path: str,
        generation: int,
        first_line: int,
        lines: Sequence[str],
        *,
        at: int,
        revision: int = 0,
        base: ArchiveBase | None = None,
    ) -> ArchiveFrame:
        """Write `lines` durably as one frame at byte `at`, the end of the last frame that the store knows.

        The frame counts only once the store has committed it.

        :param revision: of the generation's frames so far.
        :param base: text that `lines` probably repeat; used if it more than halves the frame.
        :raises StoreFull: the disk is full.
        """
        file = self.file_of(source, path, generation, revision)
        frame, base = self._packed(lines, base)
        try:
            if revision:
                self.remove_former(source, path, generation, revision)
            _write_at(file, frame, at)
        except OSError as problem:
            raise _translated(problem, file) from problem
        return ArchiveFrame(generation, first_line, len(lines), at, len(frame), revision, base=base)

    def add_generations(
        self, source: str, new: Sequence[NewGeneration], writers: Executor | None = None
    ) -> list[PathFrame]:
        """Write each as one frame, as `append` writes the first of a generation; all are durable on return.

        :param writers: ideally `WRITERS` threads; None: write the few generations one after the other.
        :raises StoreFull: the disk is full.
        """
        if not new:
            return []
        folder = self._root / source
        files: list[tuple[str, bytes]] = []
        frames: list[PathFrame] = []
        for each in new:  # before the threads, which would wait for each other
            data, base = self._packed(each.lines, each.base)
            files.append((f"{folder}/{_name_of(each.path, each.generation)}", data))
            frame = ArchiveFrame(each.generation, 0, len(each.lines), 0, len(data), mark=each.mark, base=base)
            frames.append(PathFrame(each.path, frame))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            shares = [files[number::WRITERS] for number in range(min(WRITERS, len(files)))]
            list(writers.map(_write_all, shares) if writers else map(_write_all, shares))
            _sync_folder(folder)
        except OSError as problem:
            raise _translated(problem, folder) from problem
        return frames

    def lines(self, source: str, path: str, frames: Iterable[ArchiveFrame], from_line: int = 0) -> Iterator[str]:
        """Yield the archived lines >= `from_line` of one generation, in order, with one frame in memory at a time.

        :raises StoreCorrupt: a frame is missing or damaged.
        """
        for frame in frames:
            if frame.first_line + frame.lines <= from_line:
                continue
            lines = self._frame_lines(self._file_with(source, path, frame), frame)[
                max(0, from_line - frame.first_line) :
            ]
            lines.reverse()
            while lines:  # a line may have 50 MB: free it before the reader parses it
                yield lines.pop()

    def rewrite(
        self, source: str, path: str, frames: Sequence[ArchiveFrame], change: Callable[[list[str]], list[str]]
    ) -> list[ArchiveFrame]:
        """Rewrite a generation durably at revision + 1, frame by frame, without bases.

        The new frames hold the same line numbers and count only once the store has replaced the old ones. The old file
        stays until then. The caller holds `writing`.

        :param frames: all of the generation, at least one.
        :param change: maps the lines of a frame to the same number of lines.
        :raises StoreCorrupt: a frame is missing or damaged.
        :raises StoreFull: the disk is full.
        """
        old = self._file_with(source, path, frames[0])
        new = self.file_of(source, path, frames[0].generation, frames[0].revision + 1)
        written: list[ArchiveFrame] = []
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # a crash may have left one
            with os.fdopen(handle, "wb") as out:
                for frame in frames:
                    lines = self._frame_lines(old, frame)
                    changed = change(lines)
                    kept = changed == lines and frame.base is None
                    data = _bytes_of(old, frame) if kept else packed(changed)
                    revised = replace(frame, revision=frame.revision + 1, base=None)
                    written.append(replace(revised, archive_offset=out.tell(), archive_bytes=len(data)))
                    out.write(data)
                out.flush()
                os.fsync(out.fileno())
            _sync_folder(new.parent)
        except OSError as problem:
            raise _translated(problem, new) from problem
        return written

    def remove_former(self, source: str, path: str, generation: int, revision: int) -> int:
        """Remove a generation's files of revisions other than the store's `revision`. Return their number."""
        current = self.file_of(source, path, generation, revision)
        first = self.file_of(source, path, generation)
        others = [*first.parent.glob(f"{content_id(path)}.{generation}.r*.zst"), first]
        gone = [file for file in others if file != current and file.exists()]
        for file in gone:
            file.unlink()
        if gone:
            _sync_folder(first.parent)
        return len(gone)

    def lacks(self, source: str, path: str, frame: ArchiveFrame) -> bool:
        """Return whether the file of a frame is missing or ends before the frame does. Nothing is decompressed."""
        try:
            size = self._file_with(source, path, frame).stat().st_size
        except FileNotFoundError:
            return True
        return size < frame.archive_offset + frame.archive_bytes

    def catalog_of(self, source: str) -> Path:
        """Return the path of a source's catalog (`archive_catalog.py`)."""
        return self._root / source / CATALOG

    def catalogs(self) -> list[Path]:
        """Return the catalogs of all sources."""
        return sorted(self._root.glob(f"*/{CATALOG}"))

    def revised(self, source: str, path: str, frames: Sequence[ArchiveFrame]) -> list[ArchiveFrame] | None:
        """Return the frames of a generation in its latest rewritten file, which may be newer than `frames`; None: there
        is no newer one with the same lines.

        :param frames: all of the generation, at least one.
        """
        first = self.file_of(source, path, frames[0].generation)
        named = {int(file.suffixes[-2][2:]): file for file in first.parent.glob(f"{first.stem}.r*.zst")}
        for revision in sorted(named, reverse=True):
            if revision <= frames[0].revision:
                break
            found, at, data = list[ArchiveFrame](), 0, named[revision].read_bytes()
            with suppress(zstandard.ZstdError, UnicodeDecodeError):
                for frame in frames:
                    reader = zstandard.ZstdDecompressor().decompressobj()
                    text = reader.decompress(data[at:])
                    size = len(data) - at - len(reader.unused_data)
                    if text.count(b"\n") + 1 != frame.lines:
                        break
                    found.append(replace(frame, revision=revision, archive_offset=at, archive_bytes=size, base=None))
                    at += size
            if len(found) == len(frames):
                return found
        return None

    def kept_aside(self) -> list[Path]:
        """Return the files that belong to no frame of the store: the archive of a lost database. See `append`."""
        return sorted(self._root.glob("*/*.kept-*"))

    def file_of(self, source: str, path: str, generation: int, revision: int = 0) -> Path:
        """Return the path of one generation of one file."""
        return self._root / source / _name_of(path, generation, revision)

    def _file_with(self, source: str, path: str, frame: ArchiveFrame) -> Path:
        return self.file_of(source, path, frame.generation, frame.revision)

    def _packed(self, lines: Sequence[str], base: ArchiveBase | None) -> tuple[bytes, ArchiveBase | None]:
        """Return one frame of `lines` and the base it needs, if any."""
        alone = packed(lines)
        if base is None or len(alone) <= LEANING_BYTES:
            return alone, None
        try:
            leaning = packed_against(self._text_of(base), lines)
        except StoreCorrupt:  # the base was rewritten or lost; these lines need none
            return alone, None
        return (leaning, base) if leaning and len(leaning) < len(alone) // 2 else (alone, None)

    def _frame_lines(self, file: Path, frame: ArchiveFrame) -> list[str]:
        base = self._text_of(frame.base) if frame.base else None
        with _readable(file, frame):
            lines = unpacked(_bytes_of(file, frame), base)
            if len(lines) != frame.lines:
                raise ValueError(f"it holds {len(lines)} lines, expected {frame.lines}")
        return lines

    def _text_of(self, base: ArchiveBase) -> bytes:
        file = self.file_of(base.source, base.path, base.generation, base.revision)
        with _readable(file, base):
            return base_text(_bytes_of(file, base))


def _name_of(path: str, generation: int, revision: int = 0) -> str:
    return f"{content_id(path)}.{generation}.r{revision}.zst" if revision else f"{content_id(path)}.{generation}.zst"


class _Compressors(threading.local):
    """One compressor per thread: for small texts, creating one takes as long as compressing."""

    held: zstandard.ZstdCompressor | None = None


_compressors = _Compressors()


def packed(lines: Sequence[str]) -> bytes:
    """Compress lines without line breaks into one frame."""
    if _compressors.held is None:
        _compressors.held = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return _compressors.held.compress(_joined(lines))


def packed_against(base: bytes, lines: Sequence[str]) -> bytes | None:
    """Compress lines into one frame that needs the text `base` to be read. None if either text is too long."""
    text = _joined(lines)
    if not base or max(len(base), len(text)) > TEXT_BYTES:
        return None
    window = max(16, (len(base) + len(text)).bit_length())
    table = min(window, MAX_TABLE_LOG)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEANING_LEVEL, window_log=window, hash_log=table, chain_log=table, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters, dict_data=_dictionary(base)).compress(text)


def unpacked(frame: bytes, base: bytes | None = None) -> list[str]:
    """Return the lines of one frame.

    :raises zstandard.ZstdError: damaged, or made with another base.
    :raises UnicodeDecodeError: damaged.
    """
    reader = zstandard.ZstdDecompressor(dict_data=_dictionary(base)) if base else zstandard.ZstdDecompressor()
    return reader.decompress(frame).decode("utf-8", "surrogatepass").split("\n")


def base_text(frames: bytes) -> bytes:
    """Return the text of a sequence of frames without bases; empty if it is too long for a base.

    :raises zstandard.ZstdError: damaged.
    """
    with zstandard.ZstdDecompressor().stream_reader(frames, read_across_frames=True) as reader:
        text = reader.read(TEXT_BYTES + 1)
    return text if len(text) <= TEXT_BYTES else b""


def _joined(lines: Sequence[str]) -> bytes:
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _dictionary(base: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


@contextmanager
def _readable(file: Path, place: ArchiveFrame | ArchiveBase) -> Iterator[None]:
    """:raises StoreCorrupt: the file could not be read."""
    try:
        yield
    except (OSError, zstandard.ZstdError, ValueError, MemoryError) as problem:  # a damaged header may name any size
        where = f"archive file {file}, frame at byte {place.archive_offset} ({place.archive_bytes} bytes)"
        raise StoreCorrupt(f"{where} cannot be read: {problem}; restore it from a backup") from problem


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise _translated(problem, folder) from problem
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _put_first(mark: Path, memory: str) -> None:
    """Write the mark atomically, unless another process wrote one first."""
    draft = mark.with_name(f".{MARK}.{secrets.token_hex(6)}")
    try:
        with draft.open("x", encoding="utf-8") as out:
            out.write(f"{memory}\n")
            out.flush()
            os.fsync(out.fileno())
        mark.hardlink_to(draft)  # a rename would replace a mark that appeared meanwhile
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not mark.exists():
            draft.replace(mark)
    finally:
        draft.unlink(missing_ok=True)


def _bytes_of(file: Path, frame: ArchiveFrame | ArchiveBase) -> bytes:
    with file.open("rb") as stream:
        return os.pread(stream.fileno(), frame.archive_bytes, frame.archive_offset)


def _write_at(file: Path, data: bytes, at: int) -> None:
    if at == 0:
        _keep_aside(file)
    created = not file.exists()
    if created:
        file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size > at:
            os.ftruncate(handle, at)  # left over from a crash: the store never committed it
        written = 0
        while written < len(data):
            written += os.pwrite(handle, data[written:], at + written)
        os.fsync(handle)
    finally:
        os.close(handle)
    if created:
        _sync_folder(file.parent)


def _write_all(files: Sequence[tuple[str, bytes]]) -> None:
    for file, data in files:
        _write_whole(file, data)


def _write_whole(file: str, data: bytes) -> None:
    """Write a new file with this content, synced to disk. An identical one may remain from a run that died."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if Path(file).read_bytes() != data:
            _keep_aside(Path(file))
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(handle, data[written:])
        os.fsync(handle)
    finally:
        os.close(handle)


def _keep_aside(file: Path) -> None:
    """Rename a file unknown to the store: it may be the archive of a lost database."""
    if file.exists() and file.stat().st_size:
        number = 1 + sum(1 for _ in file.parent.glob(f"{file.name}.kept-*"))
        file.rename(file.with_name(f"{file.name}.kept-{number}"))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _translated(problem: OSError, path: Path) -> Exception:
    if problem.errno in _NO_ROOM:
        return StoreFull(f"no room to write {path}: {problem.strerror}; free disk space, then run ingest again")
    return GiveUp(f"{path} cannot be written ({problem.strerror}); check who owns it and its folder")

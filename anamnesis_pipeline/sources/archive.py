"""The archive: a compressed, append-only copy of every log line, secrets masked. It outlives the logs.

    archive/<source>/<hash of path>.<generation>.zst

Each file is a row of independent zstd frames; a frame holds whole lines, joined by newlines. The store knows the
frames that count. Bytes behind the last of them are debris of a crash and are overwritten by the next append.
"""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import zstandard

from anamnesis_pipeline.errors import StoreCorrupt, StoreFull
from anamnesis_pipeline.model import ArchiveFrame, content_id

LEVEL = 3
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Archive:
    """The archive below one folder. Safe to share between threads; writers of one source take `writing` first."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def writing(self, source: str) -> Iterator[None]:
        """Wait until no other process or thread writes this source. The kernel frees it when the holder dies.

        :raises StoreFull: the disk has no room.
        """
        folder = self._root / source
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

    def append(
        self, source: str, path: str, generation: int, first_line: int, lines: Sequence[str], *, at: int
    ) -> ArchiveFrame:
        """Write `lines` as one frame at byte `at`, the end of the last frame that the store knows, durably.

        The frame counts only once the store has committed it.
        :raises StoreFull: the disk has no room.
        """
        file = self.file_of(source, path, generation)
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
        frame = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(text)
        try:
            _write_at(file, frame, at)
        except OSError as problem:
            raise _translated(problem, file) from problem
        return ArchiveFrame(generation, first_line, len(lines), at, len(frame))

    def lines(self, source: str, path: str, frames: Iterable[ArchiveFrame], from_line: int = 0) -> Iterator[str]:
        """The archived lines >= `from_line` of one generation, in order, one frame in memory at a time.

        :raises StoreCorrupt: a frame is missing or damaged.
        """
        for frame in frames:
            if frame.first_line + frame.lines <= from_line:
                continue
            lines = self._frame_lines(self.file_of(source, path, frame.generation), frame)
            yield from lines[max(0, from_line - frame.first_line) :]

    def restore(self, source: str, path: str, frames: Iterable[ArchiveFrame], target: Path) -> int:
        """Write every archived line of one generation to `target` as JSONL; returns how many.

        :raises StoreCorrupt: a frame is missing or damaged.
        :raises StoreFull: the disk has no room.
        """
        count = 0
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as out:
                for count, line in enumerate(self.lines(source, path, frames), start=1):  # noqa: B007
                    out.write(f"{line}\n")
        except OSError as problem:
            raise _translated(problem, target) from problem
        return count

    def file_of(self, source: str, path: str, generation: int) -> Path:
        """Where one generation of one file is kept."""
        return self._root / source / f"{content_id(path)}.{generation}.zst"

    def _frame_lines(self, file: Path, frame: ArchiveFrame) -> list[str]:
        where = f"archive file {file}, frame at byte {frame.archive_offset} ({frame.archive_bytes} bytes)"
        try:
            with file.open("rb") as stream:
                data = os.pread(stream.fileno(), frame.archive_bytes, frame.archive_offset)
            lines = zstandard.ZstdDecompressor().decompress(data).decode("utf-8", "surrogatepass").split("\n")
        except (OSError, zstandard.ZstdError, UnicodeDecodeError) as problem:
            raise StoreCorrupt(f"{where} cannot be read: {problem}; restore it from a backup") from problem
        if len(lines) != frame.lines:
            raise StoreCorrupt(f"{where} holds {len(lines)} lines, expected {frame.lines}; restore it from a backup")
        return lines


def _write_at(file: Path, data: bytes, at: int) -> None:
    if at == 0:
        _keep_aside(file)
    created = not file.exists()
    if created:
        file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(handle).st_size > at:
            os.ftruncate(handle, at)  # debris of a crash: the store never committed it
        written = 0
        while written < len(data):
            written += os.pwrite(handle, data[written:], at + written)
        os.fsync(handle)
    finally:
        os.close(handle)
    if created:
        _sync_folder(file.parent)


def _keep_aside(file: Path) -> None:
    """Rename what the store knows nothing of: it may be the archive of a database that was lost."""
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
    return problem

"""Back up a memory while everything runs, and the format of backup files.

A backup is a snapshot of the store's rows. The archive is copied afterwards: it only grows, and each file is copied up
to the last frame that the rows name. Operations that remove archived lines (`forget`, `redact --rescan`) wait until the
copy is done. `restore.py` turns a backup into a memory, in any backend.

A backup file is a tar archive in one zstd stream, processed from beginning to end:

    backup.json                    `Header`
    home/<name>                    files of the home
    tables/<table>/<number>.jsonl  rows as `store/copying.py` formats them, some megabytes in each
    archive/<source>/<name>        archive files, up to the last frame that the rows name
    manifest.json                  numbers of rows and bytes, and their checksums: `Manifest`

`zstd -dc FILE | tar -t` lists it. The manifest comes last: a file without one is incomplete.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, cast
from uuid import uuid4

import zstandard

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import damaged_files
from anamnesis_pipeline.services import store_copies
from anamnesis_pipeline.services.store_copies import Tell
from anamnesis_pipeline.services.whole_file import appearing
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.copying import Digest, line_of, row_of, rows_of, tables_of
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.tables import SPACES, Table
from anamnesis_pipeline.store.values import instant

FORMAT = 1
CHUNK_BYTES = 4 << 20
_LEVEL = 3
_BUFFER = 1 << 20
HEADER, MANIFEST = "backup.json", "manifest.json"


@dataclass(frozen=True, slots=True)
class Header:
    """Description of a backup. `spaces`: the fields of each space that define its tables (see `tables_of`); `shape`: a
    checksum of the tables' fields, which a later version may have changed.
    """

    backup_id: str
    version: str
    backend: str
    taken_at: str
    spaces: list[Row]
    with_archive: bool
    shape: str
    format: int = FORMAT

    def tables(self) -> list[Table]:
        """Return its tables, in order."""
        return tables_of(self.spaces)


@dataclass(slots=True)
class Manifest:
    """Rows and checksum of each table; bytes and checksum of each file; what could not be saved completely."""

    tables: dict[str, tuple[int, str]] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def shape_of(tables: Iterable[Table]) -> str:
    """Return a checksum of the names and fields of the tables that every store has."""
    fields = [[table.name, *table.fields] for table in tables if not table.space]
    return hashlib.blake2b(json.dumps(fields).encode(), digest_size=8).hexdigest()


def is_backup(begin: bytes) -> bool:
    """Return whether an unpacked stream with this beginning is a backup. Pure."""
    try:
        return tarfile.TarInfo.frombuf(begin[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape").name == HEADER
    except tarfile.TarError:
        return False


class BackupWriter:
    """Write one backup into a stream: `begin`, then tables and files, then `end`."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self.manifest = Manifest()

    def begin(self, header: Header) -> None:
        """Write the header."""
        self._add(HEADER, json.dumps(asdict(header), indent=1).encode())

    def table(self, table: Table, rows: Iterable[Row]) -> None:
        """Write all rows of a table."""
        digest, chunk, number, size = Digest(), [], 0, 0
        for row in rows:
            line = line_of(row)
            digest.add(line)
            chunk.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                self._chunk(table, number, chunk)
                chunk, number, size = [], number + 1, 0
        if chunk:
            self._chunk(table, number, chunk)
        self.manifest.tables[table.name] = (digest.rows, digest.checksum)

    def file(self, name: str, path: Path, limit: int | None = None) -> int:
        """Write the first `limit` bytes of a file (None: all it has now). Return their number; 0: no such file.

        :raises GiveUp: it cannot be read.
        """
        try:
            content = path.open("rb")
        except FileNotFoundError:
            return 0
        except OSError as problem:
            raise GiveUp(f"{path} cannot be read, and belongs into the backup: {problem.strerror}") from problem
        with content:
            size = os.fstat(content.fileno()).st_size
            size = size if limit is None else min(limit, size)
            hashed = _Hashed(content, size)
            self._tar.addfile(_member(name, size), hashed)
        self.manifest.files[name] = (size, hashed.checksum)
        return size

    def end(self) -> None:
        """Write the manifest."""
        self._add(MANIFEST, json.dumps(asdict(self.manifest)).encode())

    def _chunk(self, table: Table, number: int, lines: list[bytes]) -> None:
        self._add(f"tables/{table.name}/{number:06}.jsonl", b"\n".join(lines) + b"\n")

    def _add(self, name: str, data: bytes) -> None:
        self._tar.addfile(_member(name, len(data)), io.BytesIO(data))


@contextmanager
def writing(out: BinaryIO) -> Iterator[BackupWriter]:
    """Yield a writer of a backup into `out`; the backup is complete when the block ends without an exception."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with (
        compressor.stream_writer(out, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", bufsize=_BUFFER, format=tarfile.PAX_FORMAT) as tar,
    ):
        writer = BackupWriter(tar)
        yield writer
        writer.end()


Member = tuple[str, BinaryIO]
"""Name and content; read the content before requesting the next member."""


@contextmanager
def reading(path: Path) -> Iterator[tuple[Header, Iterator[Member]]]:
    """Yield the header of a backup, and its other members in order.

    :raises GiveUp: it is no backup, has the tables of another version, or is damaged, which may only show while the
        members are read.
    """
    with _opened(path) as packed:
        unpacked = zstandard.ZstdDecompressor().stream_reader(packed, read_size=_BUFFER)
        with tarfile.open(fileobj=unpacked, mode="r|", bufsize=_BUFFER) as tar:
            members = _members(tar)
            name, content = next(members, ("", io.BytesIO()))
            if name != HEADER:
                raise GiveUp(f"{path} is no backup; `anamnesis backup` writes one")
            try:
                found = json.loads(content.read())
                if found["format"] != FORMAT:
                    raise GiveUp(
                        f"{path} is of format {found['format']}, and this version reads {FORMAT}; update anamnesis"
                    )
                header = Header(**found)
                shape = shape_of(header.tables())
            except (ValueError, TypeError, KeyError) as problem:
                raise GiveUp(f"{path} is no backup, or damaged ({problem!r}); take another one") from problem
            if header.shape != shape:
                raise GiveUp(
                    f"{path} was made by anamnesis {header.version}, which kept other tables; install that version, "
                    f"restore with it, then update"
                )
            yield header, members


def read_rows(content: BinaryIO) -> Iterator[Row]:
    """Yield the rows of a table's member."""
    return map(row_of, content)


def read_manifest(content: BinaryIO) -> Manifest:
    """Parse the last member."""
    found = json.loads(content.read())
    return Manifest(
        {name: (rows, checksum) for name, (rows, checksum) in found["tables"].items()},
        {name: (size, checksum) for name, (size, checksum) in found["files"].items()},
        found["problems"],
    )


def table_of(name: str) -> str:
    """Return the table whose rows a member holds; empty: none."""
    return name.removeprefix("tables/").rpartition("/")[0] if name.startswith("tables/") else ""


def checksum_of(content: BinaryIO) -> tuple[int, str]:
    """Return size and checksum of the rest of a stream."""
    hashed, size = hashlib.blake2b(digest_size=16), 0
    while piece := content.read(_BUFFER):
        hashed.update(piece)
        size += len(piece)
    return size, hashed.hexdigest()


def _members(tar: tarfile.TarFile) -> Iterator[Member]:
    for member in tar:
        if (content := tar.extractfile(member)) is not None:
            yield member.name, cast(BinaryIO, content)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        packed = path.open("rb")
    except OSError as problem:
        raise GiveUp(f"{path} cannot be read: {problem.strerror}") from problem
    with packed:
        try:
            yield packed
        except (zstandard.ZstdError, tarfile.TarError, EOFError) as problem:
            raise GiveUp(f"{path} is no backup, or damaged ({problem}); take another one") from problem


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


class _Hashed(io.RawIOBase):
    """The first `size` bytes of a stream; their checksum is available once they are read."""

    def __init__(self, content: BinaryIO, size: int) -> None:
        self._content, self._left = content, size
        self._hash = hashlib.blake2b(digest_size=16)

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes (below 0: all that are left)."""
        data = self._content.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self._hash.update(data)
        return data

    @property
    def checksum(self) -> str:
        """Return the checksum of the bytes read so far."""
        return self._hash.hexdigest()


SALT = "redaction.salt"
OF_THE_HOME = ("config.toml", SALT)
"""Files of a home that a backup holds beside store and archive. All others are rebuilt (index, Dagster's run records,
service logs, hooks, lock), or hold a store.
"""
_SPACE_FIELDS = ("key", "variants", "token_dims")


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of everything that is not in the store, and its archive."""

    folder: Path
    archive: Archive
    archive_dir: Path


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds. `bytes`: size of the file."""

    taken_at: datetime
    rows: int
    files: int
    bytes: int
    problems: list[str]


def back_up(
    store: Store, home: Home, out: Path, backend: str, tell: Tell, *, with_archive: bool = True
) -> BackupReport:
    """Write a backup to a new file, which appears only when it is complete.

    :param backend: the store's name, for readers of the file.
    :raises GiveUp: the file exists or cannot be written, or the backend cannot keep its snapshot for that long.
    :raises StoreFull: its disk is full.
    """
    with appearing(out) as file:
        with home.archive.still() if with_archive else nullcontext(), writing(file) as backup:
            ends: dict[str, int] = {}
            with store.copies.reading() as now:
                taken_at = datetime.now(UTC)
                spaces = [{name: row[name] for name in _SPACE_FIELDS} for row in rows_of(now, SPACES)]
                shape = shape_of(tables_of(spaces))
                backup.begin(
                    Header(uuid4().hex, version("anamnesis"), backend, instant(taken_at), spaces, with_archive, shape)
                )
                for table, rows in store_copies.told(now, tell):
                    backup.table(table, _noting_ends(rows, home.archive, ends) if table.name == "frames" else rows)
            for name in OF_THE_HOME:
                backup.file(f"home/{name}", home.folder / name)
            if with_archive:
                _write_archive(backup, store, home, ends, tell)
            held = backup.manifest
        row_count = sum(count for count, _ in held.tables.values())
        return BackupReport(taken_at, row_count, len(held.files), file.tell(), held.problems)


def _noting_ends(frames: Iterable[Row], archive: Archive, ends: dict[str, int]) -> Iterator[Row]:
    """Yield the rows unchanged; record in `ends` the name of each archive file and its number of valid bytes."""
    for frame in frames:
        file = archive.file_of(frame["source"], frame["path"], frame["generation"], frame["revision"])
        name = f"archive/{file.parent.name}/{file.name}"
        ends[name] = max(ends.get(name, 0), frame["archive_offset"] + frame["archive_bytes"])
        yield frame


def _write_archive(out: BackupWriter, store: Store, home: Home, ends: dict[str, int], tell: Tell) -> None:
    aside = {f"archive/{file.parent.name}/{file.name}": None for file in home.archive.kept_aside()}
    wanted: dict[str, int | None] = {**ends, **aside}
    cut = set()
    for done, (name, end) in enumerate(sorted(wanted.items()), start=1):
        size = out.file(name, home.archive_dir / name.removeprefix("archive/"), end)
        if end is not None and size < end:
            out.manifest.problems.append(f"{name} has {size:,} of the {end:,} bytes that the store knows")
            cut.add(name)
        tell("archive", done, len(wanted))
    for damage in damaged_files(store, home.archive, lambda done, of: tell("checksums of the archive", done, of)):
        frames = store.archive.frames(damage.source, damage.path, damage.generation)
        file = home.archive.file_of(damage.source, damage.path, damage.generation, frames[0].revision)
        if f"archive/{file.parent.name}/{file.name}" not in cut:
            out.manifest.problems.append(f"{damage}; the backup contains it unchanged")

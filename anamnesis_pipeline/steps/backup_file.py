"""The file of a backup: a tar archive within one zstd stream, written and read from its beginning to its end.

    backup.json                    what it is: `Header`
    home/<name>                    files of the home
    tables/<table>/<number>.jsonl  rows, as `store/copying.py` has them, some megabytes in each
    archive/<source>/<name>        archive files, as far as the rows name them
    manifest.json                  how many rows and bytes, and their checksums: `Manifest`

`zstd -dc FILE | tar -t` lists it. The manifest comes last, so that a file without one was not written to its end.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.store.copying import Digest, line_of, row_of, tables_of
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.tables import Table

FORMAT = 1
CHUNK_BYTES = 4 << 20
_LEVEL = 3
_BUFFER = 1 << 20
HEADER, MANIFEST = "backup.json", "manifest.json"


@dataclass(frozen=True, slots=True)
class Header:
    """What a backup is. `spaces`: what its tables are told by, of each space (see `tables_of`); `shape`: a checksum of
    the tables' fields, which a later version may have changed.
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
        """The tables that it holds, in order."""
        return tables_of(self.spaces)


@dataclass(slots=True)
class Manifest:
    """Rows and checksum of each table; bytes and checksum of each file; what could not be saved whole."""

    tables: dict[str, tuple[int, str]] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def shape_of(tables: Iterable[Table]) -> str:
    """Names and fields of the tables that every store has, as a checksum."""
    fields = [[table.name, *table.fields] for table in tables if not table.space]
    return hashlib.blake2b(json.dumps(fields).encode(), digest_size=8).hexdigest()


def is_backup(begin: bytes) -> bool:
    """Whether an unpacked stream that begins so is a backup. Pure."""
    try:
        return tarfile.TarInfo.frombuf(begin[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape").name == HEADER
    except tarfile.TarError:
        return False


class BackupWriter:
    """Writes one backup into a stream: `begin`, then tables and files, then `end`."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self.manifest = Manifest()

    def begin(self, header: Header) -> None:
        """Write what it is."""
        self._add(HEADER, json.dumps(asdict(header), indent=1).encode())

    def table(self, table: Table, rows: Iterable[Row]) -> None:
        """All rows of a table."""
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
        """The first `limit` bytes of a file (None: all it has now); returns how many that were, 0 of one that is gone.

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
    """A backup into `out`; it is whole when the block ends without an exception."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with (
        compressor.stream_writer(out, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", bufsize=_BUFFER, format=tarfile.PAX_FORMAT) as tar,
    ):
        writer = BackupWriter(tar)
        yield writer
        writer.end()


Member = tuple[str, BinaryIO]
"""A name, and what it holds; it is read before the next one is asked for."""


@contextmanager
def reading(path: Path) -> Iterator[tuple[Header, Iterator[Member]]]:
    """What a backup is, and its other members in order.

    :raises GiveUp: it is no backup, of a version with other tables, or damaged, which may only show while the members
        are read.
    """
    with _opened(path) as packed:
        unpacked = zstandard.ZstdDecompressor().stream_reader(packed, read_size=_BUFFER)
        with tarfile.open(fileobj=unpacked, mode="r|", bufsize=_BUFFER) as tar:
            members = _members(tar)
            name, content = next(members, ("", io.BytesIO()))
            if name != HEADER:
                raise GiveUp(f"{path} is no backup; `anamnesis backup` writes one")
            yield _header(path, content), members


def read_rows(content: BinaryIO) -> Iterator[Row]:
    """The rows of a member of a table."""
    return map(row_of, content)


def read_manifest(content: BinaryIO) -> Manifest:
    """The last member."""
    found = json.loads(content.read())
    return Manifest(
        {name: (rows, checksum) for name, (rows, checksum) in found["tables"].items()},
        {name: (size, checksum) for name, (size, checksum) in found["files"].items()},
        found["problems"],
    )


def table_of(name: str) -> str:
    """The table that a member has rows of; empty: none."""
    return name.removeprefix("tables/").rpartition("/")[0] if name.startswith("tables/") else ""


def checksum_of(content: BinaryIO) -> tuple[int, str]:
    """Bytes and checksum of what is left of a stream."""
    hashed, size = hashlib.blake2b(digest_size=16), 0
    while piece := content.read(_BUFFER):
        hashed.update(piece)
        size += len(piece)
    return size, hashed.hexdigest()


def _header(path: Path, content: BinaryIO) -> Header:
    try:
        found = json.loads(content.read())
        if found["format"] != FORMAT:
            raise GiveUp(f"{path} is of format {found['format']}, and this version reads {FORMAT}; update anamnesis")
        header = Header(**found)
        shape = shape_of(header.tables())
    except (ValueError, TypeError, KeyError) as problem:
        raise GiveUp(f"{path} is no backup, or damaged ({problem!r}); take another one") from problem
    if header.shape != shape:
        raise GiveUp(
            f"{path} was made by anamnesis {header.version}, which kept other tables; install that version, restore "
            f"with it, then update"
        )
    return header


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
    """The first `size` bytes of a stream, whose checksum is known once they are read."""

    def __init__(self, content: BinaryIO, size: int) -> None:
        self._content, self._left = content, size
        self._hash = hashlib.blake2b(digest_size=16)

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes (below 0: all that are left)."""
        data = self._content.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self._hash.update(data)
        return data

    @property
    def checksum(self) -> str:
        """Of what was read."""
        return self._hash.hexdigest()

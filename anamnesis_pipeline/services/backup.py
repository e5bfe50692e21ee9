"""Back up a memory while everything runs.

A backup is a snapshot of the store's rows. The archive is copied afterwards: it only grows, and each file is copied up
to the last frame that the rows name. Operations that remove archived lines (`forget`, `redact --rescan`) wait until the
copy is done. `restore.py` turns a backup into a memory, in any backend.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import damaged_files
from anamnesis_pipeline.services import store_copies
from anamnesis_pipeline.services.backup_file import BackupWriter, Header, shape_of, writing
from anamnesis_pipeline.services.store_copies import Tell
from anamnesis_pipeline.services.whole_file import appearing
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.copying import Reading, rows_of, tables_of
from anamnesis_pipeline.store.gateway import Row
from anamnesis_pipeline.store.tables import SPACES
from anamnesis_pipeline.store.values import instant

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
        with home.archive.still() if with_archive else nullcontext():
            report = _write(store, home, file, backend, tell, with_archive=with_archive)
        return replace(report, bytes=file.tell())


def _write(store: Store, home: Home, file: BinaryIO, backend: str, tell: Tell, *, with_archive: bool) -> BackupReport:
    ends: dict[str, int] = {}
    with writing(file) as out:
        with store.copies.reading() as now:
            taken_at = datetime.now(UTC)
            out.begin(_header(now, backend, taken_at, with_archive=with_archive))
            for table, rows in store_copies.told(now, tell):
                out.table(table, _noting_ends(rows, home.archive, ends) if table.name == "frames" else rows)
        for name in OF_THE_HOME:
            out.file(f"home/{name}", home.folder / name)
        if with_archive:
            _write_archive(out, store, home, ends, tell)
        held = out.manifest
    return BackupReport(taken_at, sum(rows for rows, _ in held.tables.values()), len(held.files), 0, held.problems)


def _header(now: Reading, backend: str, taken_at: datetime, *, with_archive: bool) -> Header:
    spaces = [{name: row[name] for name in _SPACE_FIELDS} for row in rows_of(now, SPACES)]
    shape = shape_of(tables_of(spaces))
    return Header(uuid4().hex, version("anamnesis"), backend, instant(taken_at), spaces, with_archive, shape)


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

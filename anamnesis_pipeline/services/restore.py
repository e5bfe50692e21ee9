"""Restoring a backup into an empty home, with any backend."""

import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.services import store_copies
from anamnesis_pipeline.services.backup import (
    MANIFEST,
    OF_THE_HOME,
    SALT,
    Header,
    Home,
    Manifest,
    Member,
    checksum_of,
    read_manifest,
    read_rows,
    reading,
    table_of,
)
from anamnesis_pipeline.services.store_copies import Changes, Tell
from anamnesis_pipeline.services.whole_file import UNFINISHED, new_file, no_room
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.copying import Digest
from anamnesis_pipeline.store.gateway import Row

_ARCHIVED = re.compile(r"[^/]+/[^/]+")


@dataclass(slots=True)
class RestoreReport:
    """Result of a restore. `resumed`: an earlier run had begun it. `kept`: existing files left unchanged.
    `index_problem`: why the vectors have no search index yet.
    """

    header: Header
    resumed: bool
    changes: Changes = field(default_factory=Changes)
    files: int = 0
    kept: list[str] = field(default_factory=list)
    index_problem: str = ""


def restore(file: Path, store: Store, home: Home, place: str, tell: Tell) -> RestoreReport:
    """Restore a backup into an empty store and home, and verify the result; continue an interrupted restore. The whole
    file is checked before anything is written.

    :param place: the store's location, in words.
    :raises GiveUp: the backup is damaged or of a version with other tables; store or archive hold something else.
    """
    header, manifest = verify(file, tell)
    # A backup without an archive may be restored beside a separately saved one, masked with the same salt.
    is_ours = (store.settings.get(store_copies.MARK) or {}).get("origin") == header.backup_id
    if not is_ours and any(path.suffix for path in home.archive_dir.glob("*/*")):
        salt = home.folder / SALT
        if header.with_archive:
            raise GiveUp(
                f"{home.archive_dir} holds an archive already, so a memory is there; restore into an empty "
                "ANAMNESIS_HOME"
            )
        if salt.exists() and manifest.files.get(f"home/{SALT}") != checksum_of(io.BytesIO(salt.read_bytes())):
            raise GiveUp(
                f"{home.archive_dir} holds an archive that was masked with another salt, {salt}, than the backup's; "
                "restore into an empty ANAMNESIS_HOME, or put the archive there that was saved beside this backup"
            )
    report = RestoreReport(header, store_copies.begin(store, header.backup_id, place))
    tables = {table.name: table for table in header.tables()}
    digests: dict[str, Digest] = {}
    with reading(file) as (_, members):
        for name, group in _by_table(members):
            if name:
                digests[name] = store_copies.bring(store.copies, tables[name], _rows(name, group, tell), report.changes)
            else:
                for member, content in group:
                    _put_file(home, member, content, report)
    for name in tables.keys() - digests.keys():
        digests[name] = store_copies.bring(store.copies, tables[name], (), report.changes)
    os.sync()  # files are on disk before the store counts as complete
    store_copies.finish(store, header.backup_id, digests, place, tell)
    return report


def verify(file: Path, tell: Tell) -> tuple[Header, Manifest]:
    """Read all of a backup and compare it with its manifest; return its header and content.

    :raises GiveUp: it is damaged or truncated.
    """
    found, wanted = Manifest(), None
    with reading(file) as (header, members):
        found.tables = {table.name: (0, Digest().checksum) for table in header.tables()}
        for name, group in _by_table(members):
            if name:
                digest = Digest()
                for _, content in group:
                    for line in content:
                        digest.add(line.rstrip(b"\n"))
                    tell(f"checking {name}", digest.rows, digest.rows)
                found.tables[name] = digest.rows, digest.checksum
                continue
            for member, content in group:
                if member == MANIFEST:
                    wanted = read_manifest(content)
                else:
                    found.files[member] = checksum_of(content)
    if wanted is None:
        raise GiveUp(f"{file} ends too early: it was not written to its end, or was cut; take another one")
    if differing := {name for name, _ in _entries(found) ^ _entries(wanted)}:
        raise GiveUp(f"{file} is damaged: {min(differing)} is not what was written; take another one")
    return header, found


def _by_table(members: Iterable[Member]) -> Iterator[tuple[str, Iterator[Member]]]:
    """Group consecutive members by table; the name '' stands for members without rows."""
    return groupby(members, key=lambda member: table_of(member[0]))


def _entries(manifest: Manifest) -> set[tuple[str, tuple[int, str]]]:
    return {*manifest.tables.items(), *manifest.files.items()}


def _rows(name: str, members: Iterable[Member], tell: Tell) -> Iterator[Row]:
    done = 0
    for _, content in members:
        for row in read_rows(content):
            done += 1
            yield row
        tell(name, done, done)


def _put_file(home: Home, name: str, content: BinaryIO, report: RestoreReport) -> None:
    """Write a file of the home or of the archive atomically."""
    kind, _, rest = name.partition("/")
    if kind == "home" and rest in OF_THE_HOME:
        target, data = home.folder / rest, content.read()
        if rest == "config.toml" and target.exists() and target.read_bytes() != data:
            report.kept.append(str(target))
            return
        _put(target, [data])
    elif kind == "archive" and _ARCHIVED.fullmatch(rest) and ".." not in rest.split("/"):
        _put(home.archive_dir / rest, iter(lambda: content.read(1 << 20), b""))
    else:
        return
    report.files += 1


def _put(target: Path, pieces: Iterable[bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = target.with_name(f"{target.name}{UNFINISHED}")
    try:
        with new_file(draft) as file:
            for piece in pieces:
                file.write(piece)
        draft.replace(target)
    except OSError as problem:
        raise no_room(problem, target) from problem

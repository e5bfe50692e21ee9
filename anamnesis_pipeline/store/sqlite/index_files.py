"""Which index file of a space and variant is current, how much of it is dead, and writing the next one."""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np

from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_pipeline.store.records.spaces import StoredSpace
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.vector_file import (
    DamagedFileError,
    Ids,
    VectorFile,
    Vectors,
    grow_file,
    write_file,
)
from anamnesis_pipeline.store.vector_values import from_blobs

REFRESH_ROWS = 5_000
REFRESH_SHARE = 0.05
ANEW_SHARE = 0.2
"""Limits of `Coverage`. Recall@10 of 50,000 vectors was 0.997 when new, 0.997 with a fifth of it replaced in tenths,
0.995 with three tenths and 0.993 with all; half removed with nothing in their place cost 0.03.
"""

PAGE = 5_000
ID_PAGE = 50_000
LEFTOVER_S = 3_600
"""An index file that no row names and that is older than this was left by a crash or replaced."""
SET_ASIDE = ".damaged"
"""What the name of a damaged file ends with, so that nothing opens it again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileRow:
    """An index file as recorded: it holds `vectors` vectors, all those with a seq up to `covered_seq`.

    `removed` were taken out of it since it was built from nothing.
    """

    name: str
    bytes: int
    covered_seq: int
    vectors: int
    removed: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many vectors of one variant are stored, in its index file, in the file but gone, and once removed from it.

    `is_lost`: there was a file, and it is damaged or gone.
    """

    vectors: int = 0
    indexed: int = 0
    dead: int = 0
    removed: int = 0
    is_lost: bool = False

    @property
    def is_due(self) -> bool:
        """Whether the file is lost, or too much is new or dead."""
        if self.is_lost:
            return True
        new = self.vectors - (self.indexed - self.dead)
        return new + self.dead > max(REFRESH_ROWS, REFRESH_SHARE * self.vectors)

    @property
    def is_worn(self) -> bool:
        """Whether the file cannot be grown: there is none, or so much was removed from its graph that searches miss
        more than in a new one. Links to what is removed stay and lead nowhere near.
        """
        return not self.indexed or self.removed + self.dead > ANEW_SHARE * self.vectors


@dataclass(frozen=True, slots=True)
class CurrentFile:
    """An index file that is opened, and what is recorded of it."""

    file: VectorFile
    row: FileRow


class IndexFiles:
    """The index files of every space; each is written once, named in the database, and mapped by every process."""

    def __init__(self, database: Database, index_dir: Path) -> None:
        self._database = database
        self._index_dir = index_dir
        self._lock = threading.Lock()
        self._files: dict[tuple[int, str], VectorFile] = {}
        self._damaged: set[str] = set()

    def current(self, connection: sqlite3.Connection, row: StoredSpace, variant: str) -> CurrentFile | None:
        """The index file in use; None when there is none, or it was deleted or damaged (it is derived). A damaged one
        is set aside: searches of a graph that is not what was written would end the process.
        """
        recorded = _recorded(connection, row.space_id, variant)
        if recorded is None:
            return None
        key, path = (row.space_id, variant), self._index_dir / recorded.name
        with self._lock:
            if key in self._files and self._files[key].name == recorded.name:
                return CurrentFile(self._files[key], recorded)
            if recorded.name in self._damaged:
                return None
            try:
                file = self._files[key] = VectorFile(path, row.dim)
            except DamagedFileError as exc:
                log.warning("%s; it is set aside, and searches read every vector until it is built from the store", exc)
                self._damaged.add(path.name)
                with suppress(OSError):  # another process did it, or nothing can be written: it is not opened here
                    path.replace(path.with_suffix(SET_ASIDE))
                return None
            except OSError:
                return None
            return CurrentFile(file, recorded)

    def close_all_but(self, space_ids: Set[int]) -> None:
        """Unmap the files of all other spaces; a search that is going on in one keeps it until it ends."""
        with self._lock:
            for key in [key for key in self._files if key[0] not in space_ids]:
                del self._files[key]

    def state(self, row: StoredSpace, variant: str) -> IndexState:
        """How searches of one variant use its file."""
        with self._database.read() as connection:
            recorded, current = _recorded(connection, row.space_id, variant), self.current(connection, row, variant)
        if recorded is None:
            return IndexState()
        if current is None or not (self._index_dir / recorded.name).exists():  # what is mapped may be gone by now
            return IndexState(is_lost=True)
        return IndexState(recall=current.file.recall, is_exact=current.file.is_exact)

    def coverage(self, row: StoredSpace, variant: str) -> Coverage:
        """What is stored of one variant and what its file holds of that."""
        with self._database.read() as connection:
            current = self.current(connection, row, variant)
            live, still_indexed = connection.execute(
                """SELECT count(*), coalesce(sum(seq <= ?), 0) FROM vectors INDEXED BY vectors_by_seq
                    WHERE space_id = ? AND variant = ?""",
                (current.row.covered_seq if current else 0, row.space_id, variant),
            ).fetchone()
        is_lost = self.state(row, variant).is_lost
        if current is None or is_lost:
            return Coverage(vectors=live, is_lost=is_lost)
        indexed = len(current.file)
        return Coverage(live, indexed, indexed - still_indexed, current.row.removed)

    def refresh(self, row: StoredSpace, variant: str, *, force: bool) -> bool:
        """Write a new file when it is due, then name it in the database; searches use the old one until then."""
        coverage = self.coverage(row, variant)
        if not coverage.vectors or not (force or coverage.is_due):
            return False
        with self._database.read() as connection:
            recorded = _recorded(connection, row.space_id, variant)
            (covered,) = connection.execute(
                """SELECT coalesce(max(seq), 0) FROM vectors INDEXED BY vectors_by_seq
                    WHERE space_id = ? AND variant = ?""",
                (row.space_id, variant),
            ).fetchone()
        path = self._index_dir / f"{row.space_id}-{variant}-{covered}-{uuid4().hex[:8]}.usearch"
        grown = None
        if recorded is not None and not (force or coverage.is_worn):
            # a vector written again has a new seq, so its id is dead in the old file and among the new
            live = self.ids(row, variant, upto=recorded.covered_seq)
            new_pages = self.pages(row, variant, recorded.covered_seq, covered)
            if done := grow_file(self._index_dir / recorded.name, path, row.dim, live, new_pages):
                grown = done[0], recorded.removed + done[1]
        vectors, removed = grown or (write_file(path, row.dim, self.pages(row, variant, upto=covered)), 0)
        new = FileRow(path.name, path.stat().st_size, covered, vectors, removed)
        with self._database.write() as connection:
            stored = _recorded(connection, row.space_id, variant)
            space = connection.execute("SELECT 1 FROM spaces WHERE space_id = ?", (row.space_id,)).fetchone()
            # else the space was dropped, or has a newer file
            is_named = space is not None and (stored is None or stored.covered_seq <= new.covered_seq)
            if is_named:
                columns = "(space_id, variant, name, bytes, covered_seq, vectors, removed)"
                values = (row.space_id, variant, *astuple(new))
                connection.execute(f"REPLACE INTO index_files {columns} VALUES (?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608
        if not is_named:
            path.unlink()
        elif force and recorded is not None:  # it may hold what was deleted for good; who has it mapped keeps it
            (self._index_dir / recorded.name).unlink(missing_ok=True)
        return True

    def forget(self, row: StoredSpace, variant: str) -> None:
        """Do without a file; what is stored is scanned."""
        with self._database.write() as connection:
            recorded = _recorded(connection, row.space_id, variant)
            connection.execute("DELETE FROM index_files WHERE space_id = ? AND variant = ?", (row.space_id, variant))
        if recorded is not None:
            (self._index_dir / recorded.name).unlink(missing_ok=True)

    def ids(self, row: StoredSpace, variant: str, upto: int | None = None) -> Ids:
        """Passage ids, ascending, of the vectors with a seq up to `upto`; read from the index alone."""
        found = [np.empty(0, np.int64)]
        last = 0
        while True:
            with self._database.read() as connection:
                rows = connection.execute(
                    """SELECT passage_id, seq FROM vectors INDEXED BY vectors_by_passage
                        WHERE space_id = ? AND variant = ? AND passage_id > ? ORDER BY passage_id LIMIT ?""",
                    (row.space_id, variant, last, ID_PAGE),
                ).fetchall()
            if not rows:
                return np.concatenate(found)
            page = np.array(rows, np.int64)
            last = rows[-1][0]
            found.append(page[:, 0] if upto is None else page[page[:, 1] <= upto, 0])

    def pages(
        self, row: StoredSpace, variant: str, after: int = 0, upto: int | None = None
    ) -> Iterator[tuple[Ids, Vectors]]:
        """Vectors with after < seq <= upto, in short reads: a long one would keep the write-ahead log from shrinking.

        Yields ids of shape (n,) and vectors of shape (n, dim).
        """
        while True:
            with self._database.read() as connection:
                rows = connection.execute(
                    """SELECT seq, passage_id, vec FROM vectors INDEXED BY vectors_by_seq
                        WHERE space_id = ? AND variant = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?""",
                    (row.space_id, variant, after, upto if upto is not None else 2**63 - 1, PAGE),
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield np.array([r[1] for r in rows], np.int64), from_blobs([r[2] for r in rows], row.dim)

    def remove_leftovers(self, unnamed_s: float = LEFTOVER_S) -> None:
        """Delete files that were replaced `unnamed_s` seconds ago or more, or left by a crash a good while ago."""
        with self._database.read() as connection:
            recorded = {name for (name,) in connection.execute("SELECT name FROM index_files")}
        for pattern, age in (("*.usearch", unnamed_s), (f"*{SET_ASIDE}", unnamed_s), ("*.tmp", LEFTOVER_S)):
            for path in self._index_dir.glob(pattern):
                if path.name not in recorded and path.stat().st_mtime < time.time() - age:
                    path.unlink(missing_ok=True)


def _recorded(connection: sqlite3.Connection, space_id: int, variant: str) -> FileRow | None:
    row = connection.execute(
        "SELECT name, bytes, covered_seq, vectors, removed FROM index_files WHERE space_id = ? AND variant = ?",
        (space_id, variant),
    ).fetchone()
    return None if row is None else FileRow(*row)

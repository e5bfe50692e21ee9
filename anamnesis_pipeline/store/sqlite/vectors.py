"""Vectors and token vectors in SQLite, and the index files derived from them."""

# ruff: noqa: D102
# the contract documents them, see store/base.py

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch, GiveUp
from anamnesis_pipeline.model import ScoredPassage, Variant, Where
from anamnesis_pipeline.store.base import IndexReport, PendingEpisode
from anamnesis_pipeline.store.sqlite import pending, vector_search
from anamnesis_pipeline.store.sqlite.columns import json_list
from anamnesis_pipeline.store.sqlite.connection import Database, batches
from anamnesis_pipeline.store.sqlite.passage_rows import SELECT_PASSAGES, read_row
from anamnesis_pipeline.store.sqlite.vector_file import VectorFile, write_file
from anamnesis_pipeline.store.sqlite.vector_tail import STORED, VectorTail, from_blobs

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

REBUILD_ROWS = 5_000
REBUILD_SHARE = 0.05
BUILD_PAGE = 5_000
LEFTOVER_S = 3_600
"""An index file that no row names and that is older than this was left by a crash or replaced."""


@dataclass(frozen=True, slots=True)
class _SpaceRow:
    space_id: int
    key: str
    dim: int


@dataclass(frozen=True, slots=True)
class _FileRow:
    """An index file as recorded: it holds `vectors` vectors, all those with a seq up to `covered_seq`."""

    name: str
    bytes: int
    covered_seq: int
    vectors: int


@dataclass(frozen=True, slots=True)
class _Coverage:
    """How many vectors of one variant are stored, in its index file, and in the file but gone."""

    vectors: int = 0
    indexed: int = 0
    dead: int = 0

    @property
    def is_due(self) -> bool:
        new = self.vectors - (self.indexed - self.dead)
        return new + self.dead > max(REBUILD_ROWS, REBUILD_SHARE * self.vectors)


class SqliteVectors:
    """See `VectorIndex`."""

    def __init__(self, database: Database, index_dir: Path) -> None:
        self._database = database
        self._index_dir = index_dir
        self._lock = threading.Lock()
        self._files: dict[tuple[int, str], VectorFile] = {}
        self._tails: dict[tuple[int, str], VectorTail] = {}

    def put(self, space: str, variant: Variant, passage_ids: Sequence[int], vectors: Vectors) -> int:
        if len(passage_ids) != len(vectors):
            raise ValueError(f"{len(passage_ids)} passage ids came with {len(vectors)} vectors")
        blobs = dict(zip(passage_ids, np.asarray(vectors).astype(STORED), strict=True))
        written = 0
        for batch in batches(list(blobs)):
            with self._database.write() as connection:
                row = _space(connection, space)
                _check_width(row, np.asarray(vectors).shape, 2)
                written += _put(connection, row.space_id, variant, {i: blobs[i].tobytes() for i in batch})
        return written

    def get(self, space: str, variant: Variant, passage_ids: Sequence[int]) -> dict[int, Vectors]:
        with self._database.read() as connection:
            row = _space(connection, space)
            rows = connection.execute(
                """SELECT passage_id, vec FROM vectors WHERE space_id = ? AND variant = ?
                    AND passage_id IN (SELECT value FROM json_each(?))""",
                (row.space_id, variant, json_list(passage_ids)),
            ).fetchall()
        return dict(zip((r[0] for r in rows), from_blobs([r[1] for r in rows], row.dim), strict=True))

    def nearest(self, space: str, variant: Variant, vector: Vectors, k: int, where: Where) -> list[ScoredPassage]:
        if k < 1:
            return []
        vector = np.asarray(vector, dtype=np.float32)
        with self._database.read() as connection:
            row = _space(connection, space)
            _check_width(row, vector.shape, 1)
            recorded = _recorded(connection, row.space_id, variant)
            file = self._opened(row, variant, recorded)
            covered = recorded.covered_seq if file and recorded else 0
            tail = self._tail(row, variant).view(connection, covered)
            question = vector_search.Question(row.space_id, variant, vector, k, where)
            return vector_search.nearest(connection, question, file, tail)

    def put_tokens(self, space: str, tokens: Mapping[int, NDArray[np.int8]]) -> int:
        written = 0
        for batch in batches(list(tokens)):
            with self._database.write() as connection:
                row = _space(connection, space)
                for passage_id in _live(connection, batch):
                    matrix = np.ascontiguousarray(tokens[passage_id], dtype=np.int8)
                    connection.execute(
                        """INSERT INTO token_vectors (space_id, passage_id, tokens, dims, data)
                            VALUES (?, ?, ?, ?, ?)
                            ON CONFLICT (space_id, passage_id) DO UPDATE SET tokens = excluded.tokens,
                                dims = excluded.dims, data = excluded.data""",
                        (row.space_id, passage_id, *matrix.shape, matrix.tobytes()),
                    )
                    written += 1
        return written

    def tokens(self, space: str, passage_ids: Sequence[int]) -> dict[int, NDArray[np.int8]]:
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT passage_id, tokens, dims, data FROM token_vectors WHERE space_id = ?
                    AND passage_id IN (SELECT value FROM json_each(?))""",
                (_space(connection, space).space_id, json_list(passage_ids)),
            ).fetchall()
        return {row[0]: np.frombuffer(row[3], dtype=np.int8).reshape(row[1], row[2]) for row in rows}

    def pending(self, space: str, source: str, episodes: int) -> list[PendingEpisode]:
        with self._database.read() as connection:
            space_id = _space(connection, space).space_id
            keys = connection.execute(
                """SELECT episode_key FROM pending WHERE space_id = ? AND source = ?
                    ORDER BY timestamp DESC, episode_key DESC LIMIT ?""",
                (space_id, source, episodes),
            ).fetchall()
            return [_lacking(connection, space_id, key) for (key,) in keys]

    def pending_sources(self, space: str) -> dict[str, int]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT source, sum(missing) FROM pending WHERE space_id = ? GROUP BY source ORDER BY source",
                (_space(connection, space).space_id,),
            )
            return dict(rows.fetchall())

    def count(self, space: str) -> int:
        with self._database.read() as connection:
            (count,) = connection.execute(
                """SELECT (SELECT coalesce(sum(passages), 0) FROM episodes)
                    - (SELECT coalesce(sum(missing), 0) FROM pending WHERE space_id = ?)""",
                (_space(connection, space).space_id,),
            ).fetchone()
        return int(count)

    def build(self, space: str, *, force: bool = False) -> IndexReport:
        started = time.perf_counter()
        with self._database.read() as connection:
            row = _space(connection, space)
            variants = connection.execute("SELECT variant FROM space_variants WHERE space_id = ?", (row.space_id,))
            names = [name for (name,) in variants]
        self._remove_leftovers()
        rebuilt = False
        for variant in names:
            coverage = self._coverage(row, variant)
            if coverage.vectors and (force or coverage.is_due):
                self._rebuild(row, variant)
                rebuilt = True
        states = [self._coverage(row, variant) for variant in names]
        return IndexReport(
            space=space,
            vectors=sum(state.vectors for state in states),
            indexed=sum(state.indexed for state in states),
            dead=sum(state.dead for state in states),
            rebuilt=rebuilt,
            seconds=time.perf_counter() - started,
        )

    def _tail(self, row: _SpaceRow, variant: str) -> VectorTail:
        with self._lock:
            key = (row.space_id, variant)
            if key not in self._tails:
                self._tails[key] = VectorTail(row.space_id, variant, row.dim)
            return self._tails[key]

    def _opened(self, row: _SpaceRow, variant: str, recorded: _FileRow | None) -> VectorFile | None:
        """The recorded index file; None when there is none, or it was deleted or damaged (it is derived)."""
        if recorded is None:
            return None
        key = (row.space_id, variant)
        with self._lock:
            if key in self._files and self._files[key].name == recorded.name:
                return self._files[key]
            path = self._index_dir / recorded.name
            try:
                if path.stat().st_size != recorded.bytes:
                    return None
                self._files[key] = VectorFile(path, row.dim)
            except (OSError, RuntimeError):
                return None
            return self._files[key]

    def _coverage(self, row: _SpaceRow, variant: str) -> _Coverage:
        with self._database.read() as connection:
            recorded = _recorded(connection, row.space_id, variant)
            file = self._opened(row, variant, recorded)
            covered = recorded.covered_seq if file and recorded else 0
            live, still_indexed = connection.execute(
                """SELECT count(*), coalesce(sum(seq <= ?), 0) FROM vectors INDEXED BY vectors_by_seq
                    WHERE space_id = ? AND variant = ?""",
                (covered, row.space_id, variant),
            ).fetchone()
        indexed = len(file) if file else 0
        return _Coverage(live, indexed, indexed - still_indexed)

    def _rebuild(self, row: _SpaceRow, variant: str) -> None:
        """Write a new file, then name it in the database; searches use the old one until then."""
        with self._database.read() as connection:
            (covered,) = connection.execute(
                "SELECT max(seq) FROM vectors INDEXED BY vectors_by_seq WHERE space_id = ? AND variant = ?",
                (row.space_id, variant),
            ).fetchone()
        path = self._index_dir / f"{row.space_id}-{variant}-{covered}-{uuid4().hex[:8]}.usearch"
        vectors = write_file(path, row.dim, self._stored_pages(row, variant, covered))
        with self._database.write() as connection:
            known = connection.execute("SELECT 1 FROM spaces WHERE space_id = ?", (row.space_id,)).fetchone()
            recorded = _recorded(connection, row.space_id, variant)
            is_newest = recorded is None or recorded.covered_seq <= covered
            if known and is_newest:
                connection.execute(
                    """INSERT INTO index_files (space_id, variant, name, bytes, covered_seq, vectors)
                        VALUES (?, ?, ?, ?, ?, ?)
                        ON CONFLICT (space_id, variant) DO UPDATE SET name = excluded.name,
                            bytes = excluded.bytes, covered_seq = excluded.covered_seq, vectors = excluded.vectors""",
                    (row.space_id, variant, path.name, path.stat().st_size, covered, vectors),
                )
        if not (known and is_newest):
            path.unlink()

    def _stored_pages(self, row: _SpaceRow, variant: str, covered: int) -> Iterator[tuple[Ids, Vectors]]:
        """All vectors up to `covered`, in short reads: a long one would keep the write-ahead log from shrinking."""
        last = 0
        while True:
            with self._database.read() as connection:
                rows = connection.execute(
                    """SELECT seq, passage_id, vec FROM vectors INDEXED BY vectors_by_seq
                        WHERE space_id = ? AND variant = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?""",
                    (row.space_id, variant, last, covered, BUILD_PAGE),
                ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield np.array([r[1] for r in rows], np.int64), from_blobs([r[2] for r in rows], row.dim)

    def _remove_leftovers(self) -> None:
        with self._database.read() as connection:
            recorded = {name for (name,) in connection.execute("SELECT name FROM index_files")}
        for path in [*self._index_dir.glob("*.usearch"), *self._index_dir.glob("*.tmp")]:
            if path.name not in recorded and path.stat().st_mtime < time.time() - LEFTOVER_S:
                path.unlink(missing_ok=True)


def _space(connection: sqlite3.Connection, key: str) -> _SpaceRow:
    row = connection.execute("SELECT space_id, key, dim FROM spaces WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise GiveUp(f"no space {key}; it was never added, or dropped meanwhile")
    return _SpaceRow(*row)


def _check_width(row: _SpaceRow, shape: tuple[int, ...], dimensions: int) -> None:
    if len(shape) != dimensions or shape[-1] != row.dim:
        raise DimensionMismatch(
            f"space {row.key} holds {row.dim}-d vectors and was given shape {shape}; use the model of the space"
        )


def _recorded(connection: sqlite3.Connection, space_id: int, variant: str) -> _FileRow | None:
    row = connection.execute(
        "SELECT name, bytes, covered_seq, vectors FROM index_files WHERE space_id = ? AND variant = ?",
        (space_id, variant),
    ).fetchone()
    return None if row is None else _FileRow(*row)


def _live(connection: sqlite3.Connection, passage_ids: Sequence[int]) -> dict[int, int]:
    """Those of `passage_ids` that still exist, with their episodes' keys."""
    return dict(
        connection.execute(
            "SELECT passage_id, episode_key FROM passages WHERE passage_id IN (SELECT value FROM json_each(?))",
            (json_list(passage_ids),),
        ).fetchall()
    )


def _put(connection: sqlite3.Connection, space_id: int, variant: Variant, blobs: Mapping[int, bytes]) -> int:
    """Delete and insert rather than update: a new seq tells every process that the vector is new."""
    live = _live(connection, list(blobs))
    connection.executemany(
        "DELETE FROM vectors WHERE space_id = ? AND variant = ? AND passage_id = ?",
        [(space_id, variant, passage_id) for passage_id in live],
    )
    connection.executemany(
        "INSERT INTO vectors (space_id, variant, passage_id, vec) VALUES (?, ?, ?, ?)",
        [(space_id, variant, passage_id, blobs[passage_id]) for passage_id in live],
    )
    pending.refresh(connection, set(live.values()), space_id)
    return len(live)


def _lacking(connection: sqlite3.Connection, space_id: int, episode_key: int) -> PendingEpisode:
    rows = connection.execute(
        f"""{SELECT_PASSAGES} JOIN spaces s ON s.space_id = ?
            WHERE p.episode_key = ? AND {pending.LACKS_A_VECTOR} ORDER BY p.ordinal""",
        (space_id, episode_key),
    )
    passages = tuple(map(read_row, rows))
    return PendingEpisode(passages[0].episode_id, passages)

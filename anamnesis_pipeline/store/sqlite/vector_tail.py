"""Vectors that no index file covers yet, kept in memory and scanned exactly."""

import sqlite3
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.vector_values import best_first, from_blobs

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

MAX_ROWS = 50_000
READ_ROWS = 2_000
STALE_ROWS = 1_000
"""Rows deleted since they were read that may stay before the tail is read anew."""


@dataclass(frozen=True, slots=True)
class TailView:
    """What one search sees: ids of shape (n,), vectors of shape (n, dim), and the last seq among them."""

    ids: Ids
    vectors: Vectors
    last_seq: int

    def nearest(self, vector: Vectors, k: int) -> Ids:
        """Up to k passage ids, nearest first."""
        return self.ids[best_first(self.vectors @ vector, k)] if len(self.ids) else self.ids


class VectorTail:
    """The tail of one space and variant. Rows are only ever appended, so a view stays valid while it grows."""

    def __init__(self, space_id: int, variant: str, dim: int) -> None:
        self._key = (space_id, variant)
        self._lock = threading.Lock()
        self._ids: Ids = np.empty(0, np.int64)
        self._vectors: Vectors = np.empty((0, dim), np.float32)
        self._dim = dim
        self._rows = 0
        self._covered = self._last = 0

    def view(self, connection: sqlite3.Connection, covered_seq: int) -> TailView:
        """The rows behind `covered_seq`, at most `MAX_ROWS`; reads only those it has not seen."""
        with self._lock:
            if covered_seq != self._covered:
                self._restart(covered_seq)
            if self._read_new(connection) and self._is_stale(connection):
                self._restart(covered_seq)
                self._read_new(connection)
            return TailView(self._ids[: self._rows], self._vectors[: self._rows], self._last)

    def _restart(self, covered_seq: int) -> None:
        self._ids, self._vectors = np.empty(0, np.int64), np.empty((0, self._dim), np.float32)
        self._rows, self._covered, self._last = 0, covered_seq, covered_seq

    def _read_new(self, connection: sqlite3.Connection) -> bool:
        before = self._rows
        while self._rows < MAX_ROWS:
            rows = connection.execute(
                """SELECT seq, passage_id, vec FROM vectors INDEXED BY vectors_by_seq
                    WHERE space_id = ? AND variant = ? AND seq > ? ORDER BY seq LIMIT ?""",
                (*self._key, self._last, min(READ_ROWS, MAX_ROWS - self._rows)),
            ).fetchall()
            if not rows:
                break
            self._append([row[1] for row in rows], from_blobs([row[2] for row in rows], self._dim))
            self._last = rows[-1][0]
        return self._rows > before

    def _append(self, ids: list[int], vectors: Vectors) -> None:
        end = self._rows + len(ids)
        if end > len(self._ids):
            capacity = min(MAX_ROWS, max(end, 2 * len(self._ids)))
            grown_ids, grown = np.empty(capacity, np.int64), np.empty((capacity, self._dim), np.float32)
            grown_ids[: self._rows], grown[: self._rows] = self._ids[: self._rows], self._vectors[: self._rows]
            self._ids, self._vectors = grown_ids, grown
        self._ids[self._rows : end], self._vectors[self._rows : end] = ids, vectors
        self._rows = end

    def _is_stale(self, connection: sqlite3.Connection) -> bool:
        (live,) = connection.execute(
            """SELECT count(*) FROM vectors INDEXED BY vectors_by_seq
                WHERE space_id = ? AND variant = ? AND seq > ? AND seq <= ?""",
            (*self._key, self._covered, self._last),
        ).fetchone()
        return bool(self._rows - live > max(STALE_ROWS, live // 4))

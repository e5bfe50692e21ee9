"""How many words each passage of a full-text index has, kept in memory: what BM25 needs to know of all passages."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75
"""FTS5's constants (sqlite.org/fts5.html, the bm25 function)."""
_AVERAGES = 1
"""Row of an index's data that holds the number of passages and the words of each column, as varints."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What one search sees of an index: newest passage key, number of passages, their mean length in words, and the
    length by key, shape (newest + 1,).
    """

    newest: int
    passages: int
    mean: float
    lengths: NDArray[np.uint16]

    @property
    def gone(self) -> int:
        """Keys that were given and are not in use any more."""
        return self.newest - self.passages

    def saturated(self, ids: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """BM25's factor of a word that stands `counts` times in the passages `ids`; 1 for once in a mean passage."""
        return counts * (K1 + 1) / (counts + K1 * (1 - B + B * self.lengths[ids] / self.mean))


class PassageLengths:
    """The lengths of one index: two bytes a passage. Safe to share between threads."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._lengths = np.zeros(1, np.uint16)

    def corpus(self, connection: sqlite3.Connection) -> Corpus:
        """The index as `connection` sees it; reads the lengths of passages that are new."""
        (newest,) = connection.execute("SELECT coalesce(max(passage_id), 0) FROM passages").fetchone()
        row = connection.execute(f"SELECT block FROM {self._table}_data WHERE id = ?", (_AVERAGES,)).fetchone()
        passages, words = _totals(row[0] if row else b"")
        with self._lock:
            if len(self._lengths) <= newest:
                self._lengths = self._extended(connection, newest)
            lengths = self._lengths
        return Corpus(newest, passages, max(1.0, words / max(1, passages)), lengths)

    def _extended(self, connection: sqlite3.Connection, newest: int) -> NDArray[np.uint16]:
        ids, sizes = connection.execute(  # one row of text: SQLite then walks them all without Python's lock
            f"""SELECT coalesce(group_concat(id), ''), coalesce(group_concat(hex(sz), ''), '')
                FROM {self._table}_docsize WHERE id >= ?""",
            (len(self._lengths),),
        ).fetchone()
        lengths = np.zeros(newest + 1, np.uint16)
        lengths[: len(self._lengths)] = self._lengths
        keys = np.fromstring(ids, np.int64, sep=",")
        if len(keys):
            words = _varints(bytes.fromhex(sizes)).reshape(len(keys), -1).sum(axis=1)
            lengths[keys] = np.minimum(words, np.iinfo(np.uint16).max)
        return lengths


@lru_cache(maxsize=8)
def _totals(block: bytes) -> tuple[int, int]:
    """Passages and words."""
    passages, *words = _varints(block).tolist() or [0]
    return passages, sum(words)


def _varints(data: bytes) -> NDArray[np.int64]:
    """The numbers in SQLite's varints: seven bits a byte, the highest first, the last byte below 128."""
    raw = np.frombuffer(data, np.uint8).astype(np.int64)
    last = np.flatnonzero(raw < 128)
    numbers = raw[last]
    goes_on = np.ones(len(last), bool)
    for back in range(1, 8):
        goes_on &= raw[last - back] >= 128  # before the first byte stands the last one, which is below
        if not goes_on.any():
            break
        numbers += np.where(goes_on, (raw[last - back] & 127) << (7 * back), 0)
    return numbers

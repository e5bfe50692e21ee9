"""Which passages contain a query's common words, and what these weigh.

FTS5 walks every passage that contains a word. For a common word it is cheaper to remember, as one bit per
passage, which contain it, and to score it as if it stood there once. Common words weigh little, so little is lost.
"""

import math
import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.sqlite.passage_lengths import Corpus

MAX_BYTES = 64 << 20
"""Bits kept: at a million passages, those of 500 words."""

ROWS_READ_PER_LIST = 10_000
"""A list of candidates reads so many index entries of words not seen before (some 2 ms); the next one goes on."""

MAX_PARTLY = 100
"""Words of which a part is read; one that is dropped is read from its start again."""


@dataclass(frozen=True, slots=True)
class _Bits:
    """Bit n tells whether passage n contains the word, for keys up to `covered`; `count` of them do."""

    bits: NDArray[np.uint8]
    covered: int
    count: int


_NOTHING = _Bits(np.empty(0, np.uint8), -1, 0)


def idf(passages: int, containing: int) -> float:
    """FTS5's weight of a word (sqlite.org/fts5.html, the bm25 function); next to nothing for one that half contain."""
    return max(math.log((passages - containing + 0.5) / (containing + 0.5)), 1e-6) if containing < passages else 1e-6


class CommonWords:
    """The bits of the common words asked for last. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], _Bits] = OrderedDict()
        self._partly: OrderedDict[tuple[str, str], _Bits] = OrderedDict()
        self._bytes = 0

    def is_known(self, table: str, match: str) -> bool:
        """Whether the word's bits are at hand, but for those of new passages."""
        return (table, match) in self._known

    def read_on(self, connection: sqlite3.Connection, table: str, match: str, corpus: Corpus, rows: int) -> int:
        """Read at most so many more of the passages that contain a word; returns how many it were. Once all are, the
        word is known.
        """
        if rows < 1 or self.is_known(table, match):
            return 0
        key = (table, match)
        with self._lock:
            before = self._partly.pop(key, _NOTHING)
        more = before
        if before.covered < corpus.newest:  # another search may have seen more than this one does
            more = _extended(connection, key, before, corpus.newest, rows)
        if more.covered == corpus.newest:
            self._keep(key, more)
        else:
            self._keep_part(key, more)
        return more.count - before.count

    def _keep_part(self, key: tuple[str, str], bits: _Bits) -> None:
        with self._lock:
            self._partly[key] = bits
            while len(self._partly) > MAX_PARTLY:
                self._partly.popitem(last=False)

    def added(
        self, connection: sqlite3.Connection, table: str, match: str, ids: NDArray[np.int64], corpus: Corpus
    ) -> NDArray[np.float64]:
        """The word's weight for those of the passages `ids` that contain it, else 0; shape (len(ids),)."""
        known = self._current(connection, (table, match), corpus)
        is_set: NDArray[np.uint8] = (known.bits[ids >> 3] >> (ids & 7).astype(np.uint8)) & 1
        return np.float64(idf(corpus.passages, known.count)) * is_set.astype(np.float64)

    def ids(self, connection: sqlite3.Connection, table: str, match: str, corpus: Corpus) -> NDArray[np.int64]:
        """The passages that contain the word, ascending."""
        bits = self._current(connection, (table, match), corpus).bits
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")[: corpus.newest + 1])

    def _current(self, connection: sqlite3.Connection, key: tuple[str, str], corpus: Corpus) -> _Bits:
        with self._lock:
            known = self._known.get(key, _NOTHING)
        if known.covered < corpus.newest:
            known = _extended(connection, key, known, corpus.newest)
            self._keep(key, known)
        return known

    def _keep(self, key: tuple[str, str], bits: _Bits) -> None:
        with self._lock:
            if key in self._known:
                self._bytes -= self._known.pop(key).bits.nbytes
            self._known[key] = bits
            self._bytes += bits.bits.nbytes
            while self._bytes > MAX_BYTES and len(self._known) > 1:
                self._bytes -= self._known.popitem(last=False)[1].bits.nbytes


def _extended(
    connection: sqlite3.Connection, key: tuple[str, str], known: _Bits, newest: int, rows: int | None = None
) -> _Bits:
    """`known` with the passages behind it, `rows` of them at most; keys are never used again, so set bits stay true."""
    table, match = key
    # one row of text instead of many of numbers: SQLite then walks them all without Python's lock
    (listed,) = connection.execute(
        f"""SELECT coalesce(group_concat(rowid), '') FROM
            (SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?)""",  # noqa: S608
        (match, known.covered, -1 if rows is None else rows),
    ).fetchone()
    ids = np.fromstring(listed, np.int64, sep=",")
    covered = newest if rows is None or len(ids) < rows else int(ids[-1])
    bits = np.zeros((covered >> 3) + 1, np.uint8)
    bits[: len(known.bits)] = known.bits
    np.bitwise_or.at(bits, ids >> 3, np.left_shift(np.uint8(1), (ids & 7).astype(np.uint8)))
    return _Bits(bits, covered, known.count + len(ids))

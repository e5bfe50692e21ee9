"""What is remembered of the full-text indexes, as numbers: how long each passage is, and which passages have a word.

FTS5 walks the list of a word in a tenth of a microsecond a passage, and ranks in five, so the ranking is done here.
"""

# ruff: noqa: S608
# only names of ours enter the SQL

import math
import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# --- how many words each passage has: what BM25 needs to know of all passages ----------------------------

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


# --- which passages contain a word, and how often --------------------------------------------------------

MAX_BYTES = 64 << 20
MAX_LISTS = 4_096
"""Most words are rare, and a list of theirs takes a hundred times its numbers: tens of thousands filled 60 MB."""
STALE_SHARE = 0.01
"""A list is read again when more passages than this share of all went since: it may count some of them."""
WORDS_OF = {"stem_index": "stem_words", "exact_index": "exact_words"}
"""Index -> the table that shows its words one by one."""

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class WordList:
    """Passages with a word, by key, and how often they have it: in their text, and with their context. Without counts
    they have it once.
    """

    ids: Ids
    in_text: NDArray[np.uint16] | None = None
    in_all: NDArray[np.uint16] | None = None
    covered: int = -1
    """The newest passage there was when the list was read."""
    gone: int = 0

    @property
    def nbytes(self) -> int:
        """Room in memory."""
        return self.ids.nbytes * (1 if self.in_text is None else 2)


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    words: WordList | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A word to be looked up in an index: an FTS5 expression, and the index's own terms where occurrences count."""

    table: str
    match: str
    terms: tuple[str, ...] = ()


class WordLists:
    """The lists asked for last. Safe to share between threads: a list is read by one while others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Wanted, _Entry] = OrderedDict()
        self._bytes = 0

    def of(self, connection: sqlite3.Connection, wanted: Wanted, corpus: Corpus) -> WordList:
        """The list as of `corpus`; it may hold passages that are gone."""
        with self._lock:
            entry = self._entries.setdefault(wanted, _Entry())
            self._entries.move_to_end(wanted)
        with entry.lock:
            before, entry.words = entry.words, _current(connection, wanted, entry.words, corpus)
            if before is not entry.words:
                self._account(wanted, entry, entry.words.nbytes - (before.nbytes if before else 0))
            return entry.words

    def _account(self, wanted: Wanted, entry: _Entry, more: int) -> None:
        with self._lock:
            if self._entries.get(wanted) is not entry:  # dropped while it was read
                return
            self._bytes += more
            while len(self._entries) > MAX_LISTS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
                dropped = self._entries.popitem(last=False)[1].words
                self._bytes -= dropped.nbytes if dropped else 0


def _current(connection: sqlite3.Connection, wanted: Wanted, known: WordList | None, corpus: Corpus) -> WordList:
    """`known`, brought up to date."""
    if known is None or corpus.gone - known.gone > STALE_SHARE * corpus.passages:
        return _read(connection, wanted, corpus)
    if known.covered >= corpus.newest:
        return known
    new = ids_behind(connection, wanted.table, wanted.match, known.covered)
    if len(new) and known.in_all is not None:
        return _read(connection, wanted, corpus)
    return WordList(np.concatenate([known.ids, new]), known.in_text, known.in_all, corpus.newest, known.gone)


def _read(connection: sqlite3.Connection, wanted: Wanted, corpus: Corpus) -> WordList:
    if not wanted.terms:
        return WordList(ids_behind(connection, wanted.table, wanted.match, -1), covered=corpus.newest, gone=corpus.gone)
    # one row of text instead of many of numbers: SQLite then walks them all without Python's lock
    (listed,) = connection.execute(
        f"""SELECT coalesce(group_concat(doc * 2 + (col = 'text')), '') FROM {WORDS_OF[wanted.table]}
            WHERE term IN ({", ".join("?" * len(wanted.terms))})""",
        wanted.terms,
    ).fetchone()
    found = np.fromstring(listed, np.int64, sep=",")
    ids, places = np.unique(found >> 1, return_inverse=True)
    in_all = np.bincount(places, minlength=len(ids)).astype(np.uint16)
    in_text = np.bincount(places, weights=found & 1, minlength=len(ids)).astype(np.uint16)
    return WordList(ids.astype(np.int32), in_text, in_all, corpus.newest, corpus.gone)


def ids_behind(connection: sqlite3.Connection, table: str, match: str, covered: int) -> Ids:
    """The passages behind `covered` that match an FTS5 expression, ascending."""
    (listed,) = connection.execute(
        f"SELECT coalesce(group_concat(rowid), '') FROM {table} WHERE {table} MATCH ? AND rowid > ?",
        (match, covered),
    ).fetchone()
    return np.fromstring(listed, np.int32, sep=",")


# --- which passages contain the common words of a query --------------------------------------------------
# For a common word it is cheaper to remember, as one bit per passage, which contain it, and to score it as if it stood
# there once. Common words weigh little, so little is lost.

MAX_BITS_BYTES = 64 << 20
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
            more = _read_more(connection, key, before, corpus.newest, rows)
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
            known = _read_more(connection, key, known, corpus.newest)
            self._keep(key, known)
        return known

    def _keep(self, key: tuple[str, str], bits: _Bits) -> None:
        with self._lock:
            if key in self._known:
                self._bytes -= self._known.pop(key).bits.nbytes
            self._known[key] = bits
            self._bytes += bits.bits.nbytes
            while self._bytes > MAX_BITS_BYTES and len(self._known) > 1:
                self._bytes -= self._known.popitem(last=False)[1].bits.nbytes


def _read_more(
    connection: sqlite3.Connection, key: tuple[str, str], known: _Bits, newest: int, rows: int | None = None
) -> _Bits:
    """`known` with the passages behind it, `rows` of them at most; keys are never used again, so set bits stay true."""
    table, match = key
    # one row of text instead of many of numbers: SQLite then walks them all without Python's lock
    (listed,) = connection.execute(
        f"""SELECT coalesce(group_concat(rowid), '') FROM
            (SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?)""",
        (match, known.covered, -1 if rows is None else rows),
    ).fetchone()
    ids = np.fromstring(listed, np.int64, sep=",")
    covered = newest if rows is None or len(ids) < rows else int(ids[-1])
    bits = np.zeros((covered >> 3) + 1, np.uint8)
    bits[: len(known.bits)] = known.bits
    np.bitwise_or.at(bits, ids >> 3, np.left_shift(np.uint8(1), (ids & 7).astype(np.uint8)))
    return _Bits(bits, covered, known.count + len(ids))

"""Which passages contain a word, and how often: read once from FTS5's index and remembered, as numbers.

FTS5 walks the list of a word in a tenth of a microsecond a passage, and ranks in five, so the ranking is done here.
"""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.sqlite.passage_lengths import Corpus

MAX_BYTES = 64 << 20
MAX_LISTS = 4_096
"""Most words are rare, and a list of theirs takes a hundred times its numbers: tens of thousands filled 60 MB."""
STALE_SHARE = 0.01
"""A list is read anew when more passages than this share of all went since: it may count some of them."""
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
    """A word to be looked up in an index: an FTS5 expression, and the index's own term where occurrences count."""

    table: str
    match: str
    term: str | None = None


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
    if wanted.term is None:
        return WordList(ids_behind(connection, wanted.table, wanted.match, -1), covered=corpus.newest, gone=corpus.gone)
    # one row of text instead of many of numbers: SQLite then walks them all without Python's lock
    (listed,) = connection.execute(
        f"SELECT coalesce(group_concat(doc * 2 + (col = 'text')), '') FROM {WORDS_OF[wanted.table]} WHERE term = ?",
        (wanted.term,),
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

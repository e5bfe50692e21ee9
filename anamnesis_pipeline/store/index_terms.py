"""The words of a query as the terms that an FTS5 index holds: asked of FTS5 itself, in an empty database."""

import sqlite3
import threading
from collections.abc import Mapping, Sequence

STEM_TOKENIZER = "porter unicode61 remove_diacritics 2"
# every category but separators and controls is part of a token, so that only spaces divide
EXACT_TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"
TOKENIZERS = {"stem_index": STEM_TOKENIZER, "exact_index": EXACT_TOKENIZER}
REMEMBERED = 20_000


class IndexTerms:
    """Terms by word, for each index. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._known: dict[tuple[str, str], tuple[str, ...]] = {}

    def of(self, table: str, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Word -> its terms in order; none for what is no word, several for what the index takes apart."""
        with self._lock:
            new = [word for word in words if (table, word) not in self._known]
            if new:
                if len(self._known) > REMEMBERED:
                    self._known.clear()
                self._known |= {(table, word): terms for word, terms in self._asked(table, list(words)).items()}
            return {word: self._known[table, word] for word in words}

    def _asked(self, table: str, words: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        connection = self._connection = self._connection or _scratch()
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {table} (rowid, word) VALUES (?, ?)", enumerate(words, 1))  # noqa: S608
        terms: list[list[str]] = [[] for _ in words]
        for number, term in connection.execute(f"SELECT doc, term FROM {table}_terms ORDER BY doc, offset"):  # noqa: S608
            terms[number - 1].append(term)
        connection.execute("ROLLBACK")
        return {word: tuple(found) for word, found in zip(words, terms, strict=True)}


def _scratch() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for table, tokenizer in TOKENIZERS.items():
        connection.execute(f'CREATE VIRTUAL TABLE {table} USING fts5 (word, tokenize = "{tokenizer}")')
        connection.execute(f"CREATE VIRTUAL TABLE {table}_terms USING fts5vocab ({table}, instance)")
    return connection

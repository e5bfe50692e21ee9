"""The words of a query as the terms that an FTS5 index holds: asked of FTS5 itself, in an empty database."""

import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise

from anamnesis_pipeline.parsing.text.languages import stemmed
from anamnesis_pipeline.parsing.text.unspaced_scripts import is_unspaced, paired, parted, phrase_of, terms_of_run

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


def stem_terms(text: str) -> str:
    """Return a text as FTS5 gets it for the index of stems."""
    return stemmed(paired(text))


# --- terms of the exact index ----------------------------------------------------------------------------

_OUTER = re.compile(r"^\W+|\W+$")
_ATOMS = re.compile(r"[\w./:-]+")
_PIECES = re.compile(r"[^._/:-]+")


def exact_terms(text: str) -> str:
    """The terms of `text`, lower case, separated by spaces.

    Each run between white space is trimmed of outer punctuation; so are the runs inside it between brackets, quotes
    and the like; each of these is followed by its pieces at ``. _ - / :``, and, when there are more than two, by the
    neighbouring pieces in pairs, with which `billing.py` is found in `src/billing.py:44`. A run of a script without
    spaces is its characters and their pairs, and parts what stands around it.
    """
    return " ".join(term for token in parted(text.lower()).split() for term in _terms_of(_trimmed(token)))


def exact_phrases(word: str) -> list[str]:
    """The alternatives by which `word` is looked up, each a sequence of terms separated by spaces."""
    phrases: list[str] = []
    for token in word.lower().split():
        if parted(token) != token:
            phrases += filter(None, [" ".join(phrase_of(exact_terms(token).split()))])
        elif trimmed := _OUTER.sub("", token):
            phrases.append(trimmed)
            if pairs := _pairs(trimmed):
                phrases.append(" ".join(pairs))
    return phrases


def _trimmed(token: str) -> str:
    return token if token.isalnum() or is_unspaced(token) else _OUTER.sub("", token)


def _terms_of(token: str) -> list[str]:
    if not token:
        return []
    if token.isascii() and token.isalnum():
        return [token]
    if is_unspaced(token):
        return terms_of_run(token)
    terms = [token]
    for match in _ATOMS.findall(token):
        atom = _OUTER.sub("", match)
        if atom != token and atom:
            terms.append(atom)
        pieces = _PIECES.findall(atom)
        if pieces != [atom]:
            terms += pieces
        terms += _pairs(atom)
    return terms


def _pairs(atom: str) -> list[str]:
    """Neighbouring pieces with what stands between them, when `atom` has three pieces or more."""
    spans = [match.span() for match in _PIECES.finditer(atom)]
    if len(spans) < 3:
        return []
    return [atom[start:end] for (start, _), (_, end) in pairwise(spans)]

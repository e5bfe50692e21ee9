"""Full text over passages: two FTS5 indexes, and candidates taken from a query's rarer words."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anamnesis_pipeline.model import ScoredPassage, Variant, Where
from anamnesis_pipeline.store.sqlite.columns import clean
from anamnesis_pipeline.store.sqlite.common_words import ROWS_READ_PER_SEARCH, CommonWords, Size
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.exact_terms import exact_phrases
from anamnesis_pipeline.store.sqlite.filters import condition

RARE_ROWS = 1_500
RARE_SHARE = 0.015
"""A word in more passages than the larger of both is common: ranking all it matches is what makes a query slow."""

RESCORED = 1_000
"""Best candidates by their rare words whose scores are completed with the common ones."""

FEW_ROWS = 20_000
"""Where a filter leaves at most so many passages, their common words are looked up one by one."""

REMEMBERED_WORDS = 20_000


@dataclass(frozen=True, slots=True)
class _Term:
    """One word of a query as an FTS5 expression, and in about how many passages it occurs."""

    match: str
    passages: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A search: which index, for what, how many."""

    table: str
    k: int
    where: Where
    terms: tuple[_Term, ...]


class SqliteTextIndex:
    """See `TextIndex`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._size = Size()
        self._counted: dict[tuple[str, str], int] = {}
        self._common = CommonWords()

    def matching(
        self, words: Sequence[str], k: int, where: Where, *, analyzer: str = "stem", variant: Variant = Variant.TEXT
    ) -> list[ScoredPassage]:
        """See `TextIndex.matching`."""
        asked = _Asked(f"{analyzer}_index", k, where, _terms(words, analyzer, variant))
        if not asked.terms or k < 1:
            return []
        found: list[ScoredPassage] = []
        with self._database.read() as connection:
            size = self._measured(connection)
            terms = [replace(t, passages=self._occurrences(connection, asked.table, t, size)) for t in asked.terms]
            terms = sorted((t for t in terms if t.passages), key=lambda t: t.passages)
            for count in _choices(terms, _rare(size)):
                found = self._ranked(connection, asked, size, terms[:count], terms[count:])
                if len(found) >= k or count == len(terms):
                    break
                if few := _few(connection, where):
                    return self._joined(connection, asked, size, found, few, terms[count:])
        return found

    def check(self) -> list[str]:
        """See `TextIndex.check`. Compares both indexes with the texts, in a copy: at 100,000 passages it takes 30 s."""
        problems = []
        with self._database.copied() as connection:
            for table in ("stem_index", "exact_index"):
                try:
                    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")
                except sqlite3.DatabaseError as exc:
                    problems.append(f"{table} does not match the passages: {exc}")
        return problems

    def _measured(self, connection: sqlite3.Connection) -> Size:
        """Newest key and number of passages; these and words are counted anew when the key moved by 1%."""
        (newest,) = connection.execute("SELECT coalesce(max(passage_id), 0) FROM passages").fetchone()
        with self._lock:
            if self._size.newest < 0 or abs(newest - self._size.newest) > 0.01 * self._size.newest:
                (passages,) = connection.execute("SELECT count(*) FROM passages").fetchone()
                self._size = Size(newest, passages)
                self._counted.clear()
            return replace(self._size, newest=newest)

    def _occurrences(self, connection: sqlite3.Connection, table: str, term: _Term, size: Size) -> int:
        """In how many passages a word occurs: counted while it is rare, else judged by how dense its first are.

        A zero is not remembered, since it would hide a passage just written.
        """
        key = (table, term.match)
        with self._lock:
            if key in self._counted:
                return self._counted[key]
        count, last = connection.execute(
            f"SELECT count(*), max(rowid) FROM (SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT ?)",
            (term.match, _rare(size) + 1),
        ).fetchone()
        if count > _rare(size):
            count = max(count, min(count * size.newest // last, size.passages))
        if count:
            with self._lock:
                if len(self._counted) >= REMEMBERED_WORDS:
                    self._counted.clear()
                self._counted[key] = count
        return int(count)

    def _ranked(
        self, connection: sqlite3.Connection, asked: _Asked, size: Size, chosen: Sequence[_Term], left: Sequence[_Term]
    ) -> list[ScoredPassage]:
        """The best that contain a word of `chosen`; the words of `left` count in their scores."""
        match = " OR ".join(term.match for term in chosen)
        found = _best(connection, asked, match, max(asked.k, RESCORED) if left else asked.k)
        if not left:
            return found
        ids = np.array([hit.passage_id for hit in found], dtype=np.int64)
        scores = np.array([hit.score for hit in found])
        unread = ROWS_READ_PER_SEARCH
        for term in left:
            if not self._common.is_known(asked.table, term.match):
                if unread <= 0:
                    continue
                unread -= term.passages
            scores += self._common.added(connection, asked.table, term.match, ids, size)
        order = np.argsort(-scores, kind="stable")[: asked.k]
        return [replace(found[i], score=float(scores[i])) for i in order]

    def _joined(
        self,
        connection: sqlite3.Connection,
        asked: _Asked,
        size: Size,
        found: Sequence[ScoredPassage],
        few: Mapping[int, str],
        left: Sequence[_Term],
    ) -> list[ScoredPassage]:
        """`found`, and of the few passages that the filter leaves those that contain a word of `left`."""
        others = np.array(sorted(few.keys() - {hit.passage_id for hit in found}), dtype=np.int64)
        scores = np.zeros(len(others))
        for term in left:
            scores += self._common.added(connection, asked.table, term.match, others, size)
        more = [
            ScoredPassage(int(passage_id), few[int(passage_id)], float(score))
            for passage_id, score in zip(others, scores, strict=True)
            if score > 0
        ]
        return sorted([*found, *more], key=lambda hit: -hit.score)[: asked.k]


def _rare(size: Size) -> int:
    """In how many passages a rare word may be."""
    return max(RARE_ROWS, int(RARE_SHARE * size.passages))


def _terms(words: Sequence[str], analyzer: str, variant: Variant) -> tuple[_Term, ...]:
    """Each distinct word as an expression in FTS5's query language."""
    unique = dict.fromkeys(clean(word).replace("\0", " ").strip() for word in words)
    if analyzer == "exact":
        phrases = dict.fromkeys(phrase for word in unique for phrase in exact_phrases(word))
        return tuple(_Term(_quoted(phrase)) for phrase in phrases)
    if analyzer != "stem":
        raise ValueError(f"analyzer {analyzer!r} is neither 'stem' nor 'exact'")
    column = "" if variant is Variant.CONTEXT else "{text} : "
    return tuple(_Term(column + _quoted(word)) for word in unique if word)


def _quoted(text: str) -> str:
    """`text` as an FTS5 string, which has no syntax inside."""
    return '"' + text.replace('"', '""') + '"'


def _choices(terms: Sequence[_Term], limit: int) -> list[int]:
    """How many of the words, rarest first, to look for, in turn, until enough is found: the rare, one more, all."""
    rare = sum(term.passages <= limit for term in terms) or 1
    return sorted({min(rare, len(terms)), min(rare + 1, len(terms)), len(terms)} - {0})


def _few(connection: sqlite3.Connection, where: Where) -> dict[int, str]:
    """Passage -> episode of all that pass a filter; empty when more than FEW_ROWS do."""
    terms, values = condition(where)
    rows = connection.execute(
        f"""SELECT p.passage_id, e.episode_id FROM episodes e JOIN passages p ON p.episode_key = e.episode_key
            WHERE {terms} LIMIT ?""",
        (*values, FEW_ROWS + 1),
    ).fetchall()
    return dict(rows) if len(rows) <= FEW_ROWS else {}


def _best(connection: sqlite3.Connection, asked: _Asked, match: str, limit: int) -> list[ScoredPassage]:
    """The best that pass the filter. FTS5 sorts first, so that only rows above the cut are looked up."""
    terms, values = condition(asked.where)
    rows = connection.execute(
        f"""SELECT f.rowid, e.episode_id, -f.rank FROM {asked.table} f
            CROSS JOIN passages p ON p.passage_id = f.rowid
            CROSS JOIN episodes e ON e.episode_key = p.episode_key
            WHERE {asked.table} MATCH ? AND {terms} ORDER BY f.rank LIMIT ?""",
        (match, *values, limit),
    )
    return [ScoredPassage(*row) for row in rows]

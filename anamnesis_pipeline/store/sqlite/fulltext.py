"""Full text over passages: two FTS5 indexes, and candidates taken from a query's rarer words."""

# ruff: noqa: D102, S608
# the contract documents them, see store/base.py; only names of ours enter the SQL

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import ScoredPassage, Variant, Where
from anamnesis_pipeline.store.sqlite.columns import clean
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.exact_terms import exact_phrases
from anamnesis_pipeline.store.sqlite.filters import condition

RARE_ROWS = 3_000
RARE_SHARE = 0.03
"""A word in more passages than the larger of both is common: ranking all it matches is what makes a query slow."""

COUNT_BEYOND_RARE = 4
"""Matches are counted up to this multiple of the limit, which is enough to tell common words apart."""

REMEMBERED_WORDS = 20_000


@dataclass(frozen=True, slots=True)
class _Term:
    """One word of a query as an FTS5 expression, and in how many passages it occurs."""

    match: str
    passages: int


class SqliteTextIndex:
    """See `TextIndex`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}
        self._live: tuple[int, int] = (-1, 0)

    def matching(
        self, words: Sequence[str], k: int, where: Where, *, analyzer: str = "stem", variant: Variant = Variant.TEXT
    ) -> list[ScoredPassage]:
        table, expressions = _expressions(words, analyzer, variant)
        if not expressions or k < 1:
            return []
        found: list[ScoredPassage] = []
        with self._database.read() as connection:
            limit = max(RARE_ROWS, int(RARE_SHARE * self._passages(connection)))
            terms = [_Term(e, self._occurrences(connection, table, e, limit)) for e in expressions]
            for chosen in _choices([t for t in terms if t.passages], limit):
                found = _ranked(connection, table, " OR ".join(t.match for t in chosen), k, where)
                if len(found) >= k:
                    break
        return found

    def check(self) -> list[str]:
        """See `TextIndex.check`. Compares both indexes with the texts; holds the write lock while it does."""
        problems = []
        for table in ("stem_index", "exact_index"):
            try:
                with self._database.write() as connection:
                    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")
            except StoreCorrupt as exc:
                problems.append(f"{table}: {exc}")
        return problems

    def _passages(self, connection: sqlite3.Connection) -> int:
        """About how many passages there are; counted again when the newest key moved by 1%."""
        (newest,) = connection.execute("SELECT coalesce(max(passage_id), 0) FROM passages").fetchone()
        at, live = self._live
        if at < 0 or abs(newest - at) > 0.01 * at:
            (live,) = connection.execute("SELECT count(*) FROM passages").fetchone()
            self._live = (newest, live)
        return live

    def _occurrences(self, connection: sqlite3.Connection, table: str, match: str, limit: int) -> int:
        """In how many passages `match` occurs, counted up to a bound.

        Remembered while the limit is the same and the word was common; a rare word is counted each time, since
        that costs little and a stale zero would hide a passage just written.
        """
        with self._lock:
            counted, at_limit = self._counted.get((table, match), (0, -1))
        if at_limit == limit:
            return counted
        (count,) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)",
            (match, COUNT_BEYOND_RARE * limit),
        ).fetchone()
        if count > limit:
            self._remember((table, match), count, limit)
        return int(count)

    def _remember(self, key: tuple[str, str], count: int, limit: int) -> None:
        with self._lock:
            if len(self._counted) >= REMEMBERED_WORDS:
                self._counted.clear()
            self._counted[key] = (count, limit)


def _expressions(words: Sequence[str], analyzer: str, variant: Variant) -> tuple[str, list[str]]:
    """The FTS5 table, and each distinct word as an expression in its query language."""
    unique = dict.fromkeys(clean(word).replace("\0", " ").strip() for word in words)
    if analyzer == "exact":
        phrases = dict.fromkeys(phrase for word in unique for phrase in exact_phrases(word))
        return "exact_index", [_quoted(phrase) for phrase in phrases]
    if analyzer != "stem":
        raise ValueError(f"analyzer {analyzer!r} is neither 'stem' nor 'exact'")
    column = "" if variant is Variant.CONTEXT else "{text} : "
    return "stem_index", [column + _quoted(word) for word in unique if word]


def _quoted(text: str) -> str:
    """`text` as an FTS5 string, which has no syntax inside."""
    return '"' + text.replace('"', '""') + '"'


def _choices(terms: Sequence[_Term], limit: int) -> list[list[_Term]]:
    """Which words to look for, in turn, until enough passages are found: the rare ones, one more, all."""
    ordered = sorted(terms, key=lambda term: term.passages)
    rare = sum(term.passages <= limit for term in ordered) or 1
    counts = sorted({min(rare, len(ordered)), min(rare + 1, len(ordered)), len(ordered)})
    return [ordered[:count] for count in counts if count]


def _ranked(connection: sqlite3.Connection, table: str, match: str, k: int, where: Where) -> list[ScoredPassage]:
    """The best k that pass the filter. FTS5 sorts first, so that only rows above the cut are looked up."""
    terms, values = condition(where)
    rows = connection.execute(
        f"""SELECT f.rowid, e.episode_id, -f.rank FROM {table} f
            CROSS JOIN passages p ON p.passage_id = f.rowid
            CROSS JOIN episodes e ON e.episode_key = p.episode_key
            WHERE {table} MATCH ? AND {terms} ORDER BY f.rank LIMIT ?""",
        (match, *values, k),
    )
    return [ScoredPassage(*row) for row in rows]

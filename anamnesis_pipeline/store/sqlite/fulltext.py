"""Full text over passages: two FTS5 indexes, their lists of passages by word, and BM25 over those lists."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage, Variant
from anamnesis_pipeline.parsing.text.languages import forms_of, splits_of
from anamnesis_pipeline.parsing.text.unspaced_scripts import parted, sought
from anamnesis_pipeline.store.contracts import TextIndex, TextProblem
from anamnesis_pipeline.store.index_terms import IndexTerms, exact_phrases
from anamnesis_pipeline.store.sqlite.connection import Database, problems_of
from anamnesis_pipeline.store.sqlite.filters import PassingPassages, condition
from anamnesis_pipeline.store.sqlite.text_rebuild import rebuild_text
from anamnesis_pipeline.store.sqlite.word_lists import (
    ROWS_READ_PER_LIST,
    CommonWords,
    Corpus,
    PassageLengths,
    Wanted,
    WordLists,
    idf,
    ids_behind,
)
from anamnesis_pipeline.store.values import indexed, json_list

RARE_ROWS = 5_000
"""A word in more passages than this is common: candidates are not taken from it while others are rare."""

COUNTED_ROWS = 3_000
"""Of a word in more passages than this it is not read how often each has it, but whether."""

RESCORED = 5_000
"""Best candidates by their rare words whose scores are completed with the common ones."""

LOOKED_UP = 16
"""Candidates first looked up beyond the wanted ones, since the filter may hide some."""

REMEMBERED_WORDS = 20_000

Ids = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Term:
    """One word of a query. `match`: as an FTS5 expression, in what is searched; `word`: the same in everything;
    `terms`: the index's own terms, any of which is the word, where each of its forms is one; `compound`: the word
    itself, where it may be one. It is in about so many `passages`, their context included.
    """

    match: str
    word: str
    terms: tuple[str, ...]
    compound: str = ""
    passages: int = 0


@dataclass(frozen=True, slots=True)
class _Search:
    """A search in one snapshot: which index, for what, how many, in what."""

    connection: sqlite3.Connection
    table: str
    in_text: bool
    k: int
    where: EpisodeFilter
    corpus: Corpus


class SqliteTextIndex(TextIndex):
    """Full text by FTS5."""

    def __init__(self, database: Database, few: PassingPassages) -> None:
        self._database = database
        self._few = few
        self._lock = threading.Lock()
        self._terms = IndexTerms()
        self._schema = 0
        self._counted_at: dict[str, tuple[int, int]] = {}
        self._counted: dict[tuple[str, str], int] = {}
        self._occurring: set[str] = set()
        self._absent: dict[tuple[str, str], tuple[int, int]] = {}
        self._forget_all()

    def _forget_all(self) -> None:
        self._lengths = {table: PassageLengths(table) for table in ("stem_index", "exact_index")}
        self._counted_at.clear()
        self._counted.clear()
        self._occurring.clear()
        self._absent.clear()
        self._lists = WordLists()
        self._common = CommonWords()

    @override
    def matching(
        self,
        words: Sequence[str],
        k: int,
        where: EpisodeFilter,
        *,
        analyzer: str = "stem",
        variant: Variant = Variant.TEXT,
    ) -> list[ScoredPassage]:
        table, in_text = _table_of(analyzer), analyzer == "stem" and variant is Variant.TEXT
        terms = self._asked(table, words, in_text)
        if not terms or k < 1:
            return []
        with self._database.read() as connection:
            search = self._search(connection, table, in_text, k, where)
            terms = [part for term in terms for part in self._parts(search, term)]
            return self._best(search, self._occurring_in(search, terms))

    @override
    def with_all(
        self, words: Sequence[str], k: int, where: EpisodeFilter, *, analyzer: str = "stem"
    ) -> list[ScoredPassage]:
        table, in_text = _table_of(analyzer), analyzer == "stem"
        asked = [self._asked(table, [piece], in_text) for word in words for piece in parted(word).split()]
        if not any(asked) or k < 1:
            return []
        with self._database.read() as connection:
            search = self._search(connection, table, in_text, k, where)
            there = [self._occurring_in(search, each) for each in asked if each]
            if not all(there):
                return []
            terms = list({term.match: term for each in there for term in each}.values())
            every = " AND ".join(f"({' OR '.join(term.match for term in each)})" for each in there)
            ids = ids_behind(connection, table, every, -1).astype(np.int64)
            ids = ids[: np.searchsorted(ids, search.corpus.newest, side="right")]
            return _passing(search, ids, self._scores(search, ids, terms, terms))

    @override
    def held_by_few(self, words: Sequence[str], most: int, where: EpisodeFilter) -> list[list[ScoredPassage]]:
        found: list[list[ScoredPassage]] = []
        with self._database.read() as connection:
            search = self._search(connection, "exact_index", False, most + 1, where)
            for terms in (self._asked("exact_index", [word], in_text=False) for word in words):
                passing = [] if self._has_more(search, terms) else self._best(search, self._occurring_in(search, terms))
                found.append(passing if len(passing) <= most else [])
        return found

    @override
    def unknown(self, words: Sequence[str]) -> list[str]:
        asked = {word: self._asked("stem_index", [word], in_text=True) for word in words}
        with self._database.read() as connection:
            search = self._search(connection, "stem_index", True, 0, EpisodeFilter())
            return [w for w, terms in asked.items() if terms and not self._occurs(search, terms[0].match)]

    @override
    def check(self) -> list[TextProblem]:
        with self._database.read() as connection:
            (passages,) = connection.execute("SELECT count(*) FROM passages").fetchone()
        return [TextProblem(problem) for problem in problems_of(self._database.path, passages)]

    @override
    def rebuild(self) -> Iterator[tuple[int, int]]:
        return rebuild_text(self._database)

    def _search(
        self, connection: sqlite3.Connection, table: str, in_text: bool, k: int, where: EpisodeFilter
    ) -> _Search:
        (schema,) = connection.execute("PRAGMA schema_version").fetchone()
        with self._lock:
            if schema != self._schema:  # also after a rebuild by another process
                self._forget_all()
                self._schema = schema
            lengths = self._lengths[table]
        corpus = lengths.corpus(connection)
        self._forget_counts(table, corpus)
        return _Search(connection, table, in_text, k, where, corpus)

    def _occurring_in(self, search: _Search, terms: Sequence[_Term]) -> list[_Term]:
        """Those words that passages have, with the number of these, rarest first."""
        counted = [replace(term, passages=self._occurrences(search, term.word)) for term in terms]
        return sorted((term for term in counted if term.passages), key=lambda term: term.passages)

    @staticmethod
    def _has_more(search: _Search, terms: Sequence[_Term]) -> bool:
        """Whether as many passages as are wanted have any of the words, known without all that have it: of those that
        most pass, the first few tell. A filter that hides nearly all would be asked for each.
        """
        if not terms or search.where.is_selective:
            return False
        passes, values = condition(search.where)
        rows = search.connection.execute(
            f"""SELECT 1 FROM {search.table} f CROSS JOIN passages p ON p.passage_id = f.rowid
                CROSS JOIN episodes e ON e.episode_key = p.episode_key
                WHERE {search.table} MATCH ? AND {passes} LIMIT ?""",
            (" OR ".join(term.match for term in terms), *values, search.k),
        )
        return len(rows.fetchall()) == search.k

    def _asked(self, table: str, words: Sequence[str], in_text: bool) -> list[_Term]:
        """Each distinct word that the index may know."""
        unique = list(dict.fromkeys(indexed(word).replace("\0", " ").strip() for word in words))
        asked: list[Sequence[str]]
        if table == "exact_index":
            asked = [[phrase] for phrase in dict.fromkeys(phrase for word in unique for phrase in exact_phrases(word))]
        else:
            asked = [forms_of(word) for word in dict.fromkeys(map(sought, unique))]
        return self._terms_of(table, asked, in_text)

    def _terms_of(self, table: str, asked: Sequence[Sequence[str]], in_text: bool) -> list[_Term]:
        """Each word that the index may know, given by its forms, the word itself first."""
        known = self._terms.of(table, [form for forms in asked for form in forms])
        found: list[_Term] = []
        for forms in asked:
            if own := [form for form in forms if known[form]]:
                word = f"({' OR '.join(map(_quoted, own))})"
                is_single = all(len(known[form]) == 1 for form in own)
                terms = tuple(dict.fromkeys(known[form][0] for form in own)) if is_single else ()
                compound = forms[0] if len(forms) > 1 else ""
                found.append(_Term(f"{{text}} : {word}" if in_text else word, word, terms, compound))
        return found

    def _parts(self, search: _Search, term: _Term) -> list[_Term]:
        """Return the words that a German compound is made of, where no passage has it and passages have these: those
        that most have (Koehn and Knight 2003, https://aclanthology.org/E03-1076/); else the term itself.
        """
        if not term.compound or self._occurrences(search, term.word):
            return [term]
        most, best = 0, [term]
        for split in splits_of(term.compound):
            parts = self._terms_of(search.table, [[form] for form in split], search.in_text)
            held = 1
            for part in parts:
                held = held and held * self._occurrences(search, part.word)
            if held > most:
                most, best = held, parts
        return best

    def _forget_counts(self, table: str, corpus: Corpus) -> None:
        """Words are counted again when the index grew or shrank by 1%."""
        with self._lock:
            newest, passages = self._counted_at.get(table, (-1, 0))
            moved = max(abs(corpus.newest - newest), abs(corpus.passages - passages))
            if newest < 0 or moved > 0.01 * passages:
                self._counted_at[table] = (corpus.newest, corpus.passages)
                for key in [key for key in self._counted if key[0] == table]:
                    del self._counted[key]
                if table == "stem_index":
                    self._occurring.clear()

    def _occurrences(self, search: _Search, word: str) -> int:
        """In how many passages a word occurs: counted while it is rare, else judged by how dense its first are."""
        table, corpus = search.table, search.corpus
        with self._lock:
            if (table, word) in self._counted:
                return self._counted[table, word]
            if self._absent.get((table, word)) == (corpus.newest, corpus.passages):
                return 0
        limit = max(RARE_ROWS, COUNTED_ROWS)
        count, last = search.connection.execute(
            f"SELECT count(*), max(rowid) FROM (SELECT rowid FROM {table} WHERE {table} MATCH ? LIMIT ?)",
            (word, limit + 1),
        ).fetchone()
        if count > limit:
            count = max(count, min(count * corpus.newest // last, corpus.passages))
        if count:
            with self._lock:
                if len(self._counted) >= REMEMBERED_WORDS:
                    self._counted.clear()
                self._counted[table, word] = count
        else:
            self._remember_absent(search, word)
        return int(count)

    def _remember_absent(self, search: _Search, match: str) -> None:
        """Note that no passage has a word. It holds until the index grows, since a passage never changes. To look takes
        a lookup in each segment of the index.
        """
        with self._lock:
            if len(self._absent) >= REMEMBERED_WORDS:
                self._absent.clear()
            self._absent[search.table, match] = (search.corpus.newest, search.corpus.passages)

    def _occurs(self, search: _Search, match: str) -> bool:
        """Whether any passage has a word; a yes is remembered as long as counts are."""
        with self._lock:
            if match in self._occurring:
                return True
            if self._absent.get((search.table, match)) == (search.corpus.newest, search.corpus.passages):
                return False
        sql = f"SELECT 1 FROM {search.table} WHERE {search.table} MATCH ? LIMIT 1"
        found = search.connection.execute(sql, (match,)).fetchone() is not None
        if found:
            with self._lock:
                if len(self._occurring) >= REMEMBERED_WORDS:
                    self._occurring.clear()
                self._occurring.add(match)
        else:
            self._remember_absent(search, match)
        return found

    def _best(self, search: _Search, terms: Sequence[_Term]) -> list[ScoredPassage]:
        """The best that contain any of `terms`, rarest first: of the rare ones, while those give enough. Where the
        filter leaves few passages, all of these are candidates.
        """
        found: list[ScoredPassage] = []
        if search.where.is_selective and (few := self._few.of(search.connection, search.where)) is not None:
            return self._of_few(search, few, terms)
        for count in _choices(terms, RARE_ROWS):
            found = _passing(search, *self._candidates(search, terms[:count], terms[count:]))
            if len(found) >= search.k or count == len(terms):
                break
            if (few := self._few.of(search.connection, search.where)) is not None:
                return self._of_few(search, few, terms)
        return found

    def _of_few(self, search: _Search, few: Ids, terms: Sequence[_Term]) -> list[ScoredPassage]:
        """The best of `few` that contain any of `terms`; words in very many passages are read when too few do."""
        found = _passing(search, few, self._scores(search, few, terms))
        return found if len(found) >= search.k else _passing(search, few, self._scores(search, few, terms, terms))

    def _candidates(self, search: _Search, chosen: Sequence[_Term], left: Sequence[_Term]) -> tuple[Ids, Scores]:
        """The passages with a word of `chosen`, ascending, and their scores; where `left` counts in these, too, only
        the best by `chosen`.
        """
        ids = _union(search.corpus, [self._passages_with(search, term)[0] for term in chosen])
        scores = self._scores(search, ids, chosen, chosen)
        if left and len(ids) > RESCORED:
            best = np.sort(_best_first(scores, RESCORED)[:RESCORED])
            ids, scores = ids[best], scores[best]
        return ids, scores + self._scores(search, ids, left)

    def _scores(self, search: _Search, ids: Ids, terms: Sequence[_Term], needed: Sequence[_Term] = ()) -> Scores:
        """BM25 of the passages `ids`, shape (len(ids),). A common word counts in the context, too: it is read once for
        both variants. One that was not read yet may be left out, unless it is `needed`.
        """
        scores = np.zeros(len(ids))
        once = search.corpus.saturated(ids, np.ones(len(ids)))
        unread = ROWS_READ_PER_LIST
        for term in terms:
            if not _is_common(term):
                places, added = self._added(search, ids, term)
                scores[places] += added
                continue
            if term not in needed:
                unread -= self._common.read_on(search.connection, search.table, term.word, search.corpus, unread)
                if not self._common.is_known(search.table, term.word):
                    continue
            scores += once * self._common.added(search.connection, search.table, term.word, ids, search.corpus)
        return scores

    def _added(self, search: _Search, ids: Ids, term: _Term) -> tuple[Ids, Scores]:
        """What a word that is not common adds to the scores, and at which places of the ascending `ids`."""
        having, counts = self._passages_with(search, term)
        weight = idf(search.corpus.passages, len(having))
        places = np.searchsorted(ids, having)
        held = places < len(ids)
        held[held] = ids[places[held]] == having[held]
        return places[held], weight * search.corpus.saturated(having[held], counts[held])

    def _passages_with(self, search: _Search, term: _Term) -> tuple[Ids, Scores]:
        """The passages with a word, ascending, and how often they have it; 1 for all where that is not counted."""
        corpus = search.corpus
        if _is_common(term):
            ids = self._common.ids(search.connection, search.table, term.match, corpus)
            return ids, np.ones(len(ids))
        counted = term.terms if term.passages <= COUNTED_ROWS else ()
        wanted = Wanted(search.table, term.word if counted else term.match, counted)
        words = self._lists.of(search.connection, wanted, corpus)
        ids = words.ids[: np.searchsorted(words.ids, corpus.newest, side="right")].astype(np.int64)
        if words.in_all is None or words.in_text is None:
            return ids, np.ones(len(ids))
        counts = (words.in_text if search.in_text else words.in_all)[: len(ids)]
        return ids[counts > 0], counts[counts > 0].astype(np.float64)


def _table_of(analyzer: str) -> str:
    if analyzer not in ("stem", "exact"):
        raise ValueError(f"analyzer {analyzer!r} is neither 'stem' nor 'exact'")
    return f"{analyzer}_index"


def _is_common(term: _Term) -> bool:
    return term.passages > max(RARE_ROWS, COUNTED_ROWS)


def _quoted(text: str) -> str:
    """`text` as an FTS5 string, which has no syntax inside."""
    return '"' + text.replace('"', '""') + '"'


def _choices(terms: Sequence[_Term], limit: int) -> list[int]:
    """How many of the words, rarest first, to look for, in turn, until enough is found: the rare, one more, all."""
    rare = sum(term.passages <= limit for term in terms) or 1
    return sorted({min(rare, len(terms)), min(rare + 1, len(terms)), len(terms)} - {0})


def _union(corpus: Corpus, lists: Sequence[Ids]) -> Ids:
    """What is in any of the lists, ascending. Room for all passages costs less than to sort what is in the lists."""
    is_in = np.zeros(corpus.newest + 1, bool)
    for ids in lists:
        is_in[ids] = True
    return np.flatnonzero(is_in)


def _passing(search: _Search, ids: Ids, scores: Scores) -> list[ScoredPassage]:
    """The k best with a score that pass the filter; of equals the older first."""
    terms, values = condition(search.where)
    found: list[ScoredPassage] = []
    start, wanted = 0, search.k + LOOKED_UP
    order = _best_first(scores, wanted)
    while start < len(order) and len(found) < search.k:
        if start + wanted > len(order) < len(ids):
            order = _best_first(scores, len(scores))
        places = order[start : start + wanted]
        rows = search.connection.execute(
            f"""SELECT p.passage_id, e.episode_id FROM json_each(?) j
                CROSS JOIN passages p ON p.passage_id = j.value
                CROSS JOIN episodes e ON e.episode_key = p.episode_key WHERE {terms}""",
            (json_list(ids[places].tolist()), *values),
        )
        passed = dict(rows.fetchall())
        found += [
            ScoredPassage(key, passed[key], score)
            for key, score in zip(ids[places].tolist(), scores[places].tolist(), strict=True)
            if key in passed and score > 0
        ]
        start, wanted = start + wanted, 4 * wanted
    return found[: search.k]


def _best_first(scores: Scores, k: int) -> NDArray[np.intp]:
    """Places of the k highest scores, best first; of equals the first one first."""
    if k >= len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    top = np.flatnonzero(scores >= least)
    return top[np.argsort(-scores[top], kind="stable")]

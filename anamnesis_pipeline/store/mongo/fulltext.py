"""Full text over passages: what `$search` finds, and what the index does not hold yet."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from typing_extensions import override

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import ScoredPassage, Variant, Where
from anamnesis_pipeline.parsing.text.unspaced_scripts import parted
from anamnesis_pipeline.store.contracts import TextIndex, TextProblem
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.mongo.client import SEARCHED_S, Collections, Database
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import condition
from anamnesis_pipeline.store.mongo.index_tail import IndexTail, Tail, live_rows, newest_seq
from anamnesis_pipeline.store.mongo.search_indexes import EXACT, STEM, UNSPACED, SearchIndex
from anamnesis_pipeline.store.mongo.space_docs import seq_counter
from anamnesis_pipeline.store.mongo.text_queries import (
    PassageTerms,
    Phrase,
    Statistics,
    TermCounts,
    TextQuery,
    in_one,
    statistics_of,
)
from anamnesis_pipeline.store.mongo.translation import IndexDown, asking

log = logging.getLogger(__name__)

MOST_SCANNED = 5_000
"""Passages that are read where no index answers: some 4 MB, and a second for the first search."""
MOST_PHRASES = 200
"""Words of a query that are looked for; Lucene takes 1,024 clauses, and each stands in four fields."""
ASKED_AT_ONCE = 40
CHECKED_FOR_S = 10.0
"""So long `check` waits for an index that is behind."""

PASSAGES = "passages"
OWN_TEXT = ("text", UNSPACED["text"])
"""What a passage says itself, without its context."""

T = TypeVar("T")
_Scores = dict[int, ScoredPassage]
"""By passage."""


@dataclass(frozen=True, slots=True)
class _Search:
    """A search: of what, how many, in what; `newest` is the newest change there was when it began."""

    query: TextQuery
    k: int
    where: Where
    newest: int


class MongoTextIndex(TextIndex):
    """Full text by `$search`."""

    def __init__(self, database: Database, index: SearchIndex) -> None:
        self._database = database
        self._index = index
        self._tail = IndexTail()
        self._terms = PassageTerms()
        self._counts = TermCounts(self._terms)

    def prepare(self) -> None:
        """Ask for the index where there is none. Until it is built passages are read while they are few, and searches
        by meaning answer.
        """
        try:
            self._index.ask_for(self._database)
        except AnamnesisError as exc:
            log.warning("Full text cannot be searched fast yet: %s", exc)

    @override
    def matching(
        self, words: Sequence[str], k: int, where: Where, *, analyzer: str = STEM, variant: Variant = Variant.TEXT
    ) -> list[ScoredPassage]:
        phrases = self._phrases(analyzer, words)
        if not phrases or k < 1:
            return []
        query = TextQuery((tuple(phrases[:MOST_PHRASES]),), _fields(analyzer, variant))
        return self._database.read(lambda tables: self._found(tables, query, k, where), within_s=SEARCHED_S)

    @override
    def with_all(self, words: Sequence[str], k: int, where: Where, *, analyzer: str = STEM) -> list[ScoredPassage]:
        pieces = dict.fromkeys(piece for word in words for piece in parted(word).split())
        groups = dict.fromkeys(tuple(found) for piece in pieces if (found := self._phrases(analyzer, [piece])))
        if not groups or k < 1:
            return []
        query = TextQuery(tuple(groups)[:MOST_PHRASES], _fields(analyzer, Variant.TEXT))
        return self._database.read(lambda tables: self._found(tables, query, k, where), within_s=SEARCHED_S)

    @override
    def held_by_few(self, words: Sequence[str], most: int, where: Where) -> list[list[ScoredPassage]]:
        found = [self.matching([word], most + 1, where, analyzer=EXACT) for word in words]
        return [few if len(few) <= most else [] for few in found]

    @override
    def unknown(self, words: Sequence[str]) -> list[str]:
        """Of so many words that it would take seconds, only the first are looked for."""
        asked = {word: found[0] for word in words[:MOST_PHRASES] if (found := self._phrases(STEM, [word]))}
        phrases = list(dict.fromkeys(asked.values()))
        known = self._database.read(lambda tables: self._known(tables, phrases), within_s=SEARCHED_S)
        return [word for word, phrase in asked.items() if phrase not in known]

    @override
    def check(self) -> list[TextProblem]:
        """Whether the index holds as many passages as there are, once it caught up."""
        over = time.monotonic() + CHECKED_FOR_S
        while (problem := self._database.read(self._problem)) is not None and time.monotonic() < over:
            time.sleep(0.1)
        return [problem] if problem is not None else []

    def _phrases(self, analyzer: str, words: Sequence[str]) -> list[Phrase]:
        found = [phrase for word in dict.fromkeys(words) for phrase in self._terms.phrases(analyzer, word)]
        return list(dict.fromkeys(found))

    def _found(self, tables: Collections, query: TextQuery, k: int, where: Where) -> list[ScoredPassage]:
        search = _Search(query, k, where, newest_seq(tables[PASSAGES]))
        if not search.newest:
            return []
        try:
            return self._by_index(tables, search)
        except IndexDown as down:
            return self._by_reading(tables, search, down)

    def _by_index(self, tables: Collections, search: _Search) -> list[ScoredPassage]:
        name, (tail, hits) = self._answer(
            tables, lambda name: self._asked(tables, name, search), lambda answer: bool(answer[1])
        )
        scores = {hit["_id"]: ScoredPassage(hit["_id"], hit["episode_id"], hit["score"]) for hit in hits}
        if not tail.is_empty:
            scores = self._in_tail(tables, name, search, tail, scores)
        return _best(scores.values(), search.k)

    def _asked(self, tables: Collections, name: str, search: _Search) -> tuple[Tail, list[Document]]:
        """What the index lacks, and what it finds that passes as it is now: a document that was changed or removed
        since is read as it is, so the server goes on until `k` pass.

        https://www.mongodb.com/docs/atlas/atlas-search/aggregation-stages/search/
        """
        passes = condition(search.where)
        stages: list[Document] = [
            {"$search": {"index": name, **search.query.operator(passes)}},
            *([{"$match": passes}] if passes else []),
            {"$limit": search.k},
            {"$project": {"episode_id": 1, "score": {"$meta": "searchScore"}}},
        ]
        with asking(name):
            tail = self._behind(tables, name, search.newest)
            return tail, tables[PASSAGES].search(stages)

    def _answer(self, tables: Collections, ask: Callable[[str], T], is_any: Callable[[T], bool]) -> tuple[str, T]:
        """The name of the index and what it answers; of one that took its place where it is there no more.

        :param is_any: whether an answer tells of any passage.
        :raises IndexDown: no index answers.
        """
        name = self._index.name(tables)
        try:
            answer = ask(name)
            if not is_any(answer) and (
                other := self._index.instead_of(name, tables, partial(self._holds, tables, name, 0))
            ):
                name = other
                answer = ask(name)
        except IndexDown:
            self._index.forget(name)
            self._tail.forget(name)
            raise
        return name, answer

    def _behind(self, tables: Collections, name: str, newest: int) -> Tail:
        unused_s = partial(tables.unused_s, seq_counter(PASSAGES))
        return self._tail.behind(name, newest, partial(self._holds, tables, name), unused_s)

    def _holds(self, tables: Collections, name: str, seq: int) -> bool:
        with asking(name):
            stages: list[Document] = [
                {"$search": {"index": name, "range": {"path": "seq", "gte": seq}}},
                {"$limit": 1},
                {"$project": {"_id": 1}},
            ]
            return bool(tables[PASSAGES].search(stages))

    def _in_tail(self, tables: Collections, name: str, search: _Search, tail: Tail, scores: _Scores) -> _Scores:
        """What the index has scored, and what it lacks. By an index that is new every word is a rare one: where it has
        fewer passages than are read here, these tell their words' rarity themselves, all of them.
        """
        fields = search.query.fields
        documents = tables[PASSAGES].find(tail.of(condition(search.where)), ("_id", "episode_id", *fields))
        if not documents:
            return scores
        known = self._counts.of(tables, name, search.query)
        is_new = known.passages < len(documents)
        found = self._scored(search.query, documents, None if is_new else known)
        read = {hit.passage_id: hit for hit in found}
        return scores | read if is_new else read | scores

    def _by_reading(self, tables: Collections, search: _Search, down: IndexDown) -> list[ScoredPassage]:
        fields = ("_id", "episode_id", *search.query.fields)
        documents = live_rows(tables, PASSAGES, search.where, fields, MOST_SCANNED)
        if documents is None:
            raise down
        return _best(self._scored(search.query, documents, None), search.k)

    def _scored(self, query: TextQuery, documents: Sequence[Document], known: Statistics | None) -> list[ScoredPassage]:
        """Those of these passages that match.

        :param known: None: what they tell themselves.
        """
        texts = self._terms.of(documents, query.fields)
        known = known or statistics_of(query, texts)
        scores = [query.score(each, known) for each in texts]
        return [
            ScoredPassage(document["_id"], document["episode_id"], score)
            for document, score in zip(documents, scores, strict=True)
            if score > 0
        ]

    def _known(self, tables: Collections, phrases: Sequence[Phrase]) -> set[Phrase]:
        """Those of these phrases that some passage's own text has."""
        newest = newest_seq(tables[PASSAGES])
        if not newest or not phrases:
            return set()
        try:
            _, (tail, found) = self._answer(
                tables, lambda name: self._known_by(tables, name, phrases, newest), lambda answer: bool(answer[1])
            )
            documents = [] if tail.is_empty else tables[PASSAGES].find(tail.of({}), ("_id", *OWN_TEXT))
        except IndexDown:
            all_there_is = live_rows(tables, PASSAGES, Where(include_superseded=True), ("_id", *OWN_TEXT), MOST_SCANNED)
            if all_there_is is None:
                raise
            found, documents = set(), all_there_is
        texts = [terms for each in self._terms.of(documents, OWN_TEXT) for terms in each.values()]
        left = [phrase for phrase in phrases if phrase not in found]
        return found | {phrase for phrase in left if any(phrase.count(terms) for terms in texts)}

    def _known_by(
        self, tables: Collections, name: str, phrases: Sequence[Phrase], newest: int
    ) -> tuple[Tail, set[Phrase]]:
        """What the index lacks, and those of these phrases that it has."""
        with asking(name):
            tail = self._behind(tables, name, newest)
            return tail, self._indexed(tables, name, phrases)

    def _indexed(self, tables: Collections, name: str, phrases: Sequence[Phrase]) -> set[Phrase]:
        found: set[Phrase] = set()
        for batch in batches(phrases, ASKED_AT_ONCE):
            pipelines: list[list[Document]] = [
                [
                    {"$search": {"index": name, "phrase": {"query": phrase.text, "path": list(OWN_TEXT)}}},
                    {"$limit": 1},
                    {"$project": {"_id": 0, "number": {"$literal": number}}},
                ]
                for number, phrase in enumerate(batch)
            ]
            found |= {batch[each["number"]] for each in tables[PASSAGES].search(in_one(PASSAGES, pipelines))}
        return found

    def _problem(self, tables: Collections) -> TextProblem | None:
        there = tables[PASSAGES].count({"seq": {"$gte": 0}})  # all of them, told by an index
        try:
            name, held = self._answer(tables, partial(self._total, tables), bool)
        except IndexDown as down:
            return TextProblem(str(down), "down")
        told = f"search index {name} holds {held:,} passages of {there:,}"
        return None if held == there else TextProblem(told, "behind")

    def _total(self, tables: Collections, name: str) -> int:
        """The passages that the index holds."""
        stage = {"index": name, "exists": {"path": "seq"}, "count": {"type": "total"}}
        with asking(name):
            (found,) = tables[PASSAGES].search([{"$searchMeta": stage}])
        return int(found["count"]["total"])


def _fields(analyzer: str, variant: Variant) -> tuple[str, ...]:
    if analyzer == EXACT:
        return ("terms",)
    return OWN_TEXT if variant is Variant.TEXT else (*OWN_TEXT, "context", UNSPACED["context"])


def _best(hits: Iterable[ScoredPassage], k: int) -> list[ScoredPassage]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.passage_id))[:k]

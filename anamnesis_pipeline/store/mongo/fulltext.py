"""Full text over passages: what `$search` finds, and what the index does not hold yet."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from typing_extensions import override

from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage, Variant
from anamnesis_pipeline.parsing.text.unspaced_scripts import parted
from anamnesis_pipeline.store.contracts import TextIndex, TextProblem
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.mongo.client import SEARCHED_S, Collections, Database
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.facets import condition
from anamnesis_pipeline.store.mongo.schema import seq_counter
from anamnesis_pipeline.store.mongo.search_indexes import (
    EXACT,
    STEM,
    UNSPACED,
    IndexTail,
    SearchIndex,
    Tail,
    live_rows,
    newest_seq,
)
from anamnesis_pipeline.store.mongo.text_queries import (
    PassageTerms,
    Phrase,
    Statistics,
    TermCounts,
    TextQuery,
    filtered,
    in_one,
    statistics_of,
)
from anamnesis_pipeline.store.mongo.translation import IndexDown, asking

log = logging.getLogger(__name__)

MAX_SCANNED = 5_000
"""Passages that are read where no index answers: some 4 MB, and a second for the first search."""
MAX_PHRASES = 200
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
        self,
        words: Sequence[str],
        k: int,
        where: EpisodeFilter,
        *,
        analyzer: str = STEM,
        variant: Variant = Variant.TEXT,
    ) -> list[ScoredPassage]:
        phrases = self._phrases(analyzer, words)
        if not phrases or k < 1:
            return []
        query = TextQuery((tuple(phrases[:MAX_PHRASES]),), _fields(analyzer, variant))
        return self._found(query, k, where)

    @override
    def with_all(
        self, words: Sequence[str], k: int, where: EpisodeFilter, *, analyzer: str = STEM
    ) -> list[ScoredPassage]:
        pieces = dict.fromkeys(piece for word in words for piece in parted(word).split())
        groups = dict.fromkeys(tuple(found) for piece in pieces if (found := self._phrases(analyzer, [piece])))
        if not groups or k < 1:
            return []
        query = TextQuery(tuple(groups)[:MAX_PHRASES], _fields(analyzer, Variant.TEXT))
        return self._found(query, k, where)

    @override
    def held_by_few(self, words: Sequence[str], most: int, where: EpisodeFilter) -> list[list[ScoredPassage]]:
        found = [self.matching([word], most + 1, where, analyzer=EXACT) for word in words]
        return [few if len(few) <= most else [] for few in found]

    @override
    def rebuild(self) -> Iterator[tuple[int, int]]:
        raise GiveUp(
            "MongoDB's search process keeps the full text and the vectors' indexes by itself, so there is nothing to "
            "rebuild; `anamnesis doctor` shows whether it is behind"
        )

    @override
    def unknown(self, words: Sequence[str]) -> list[str]:
        """Look only for the first words of a long text, which would take seconds."""
        asked = {word: found[0] for word in words[:MAX_PHRASES] if (found := self._phrases(STEM, [word]))}
        phrases = list(dict.fromkeys(asked.values()))
        known = self._known(phrases) if phrases else set()
        return [word for word, phrase in asked.items() if phrase not in known]

    @override
    def check(self) -> list[TextProblem]:
        """Whether the index holds as many passages as there are, once it caught up."""
        over = time.monotonic() + CHECKED_FOR_S
        while True:
            with self._database.read() as tables:
                there = tables[PASSAGES].count({"seq": {"$gte": 0}})  # all of them, told by an index
                try:
                    name, held = self._answer(tables, partial(_total, tables), bool)
                    told = f"search index {name} holds {held:,} passages of {there:,}"
                    problem = None if held == there else TextProblem(told, "behind")
                except IndexDown as down:
                    problem = TextProblem(str(down), "down")
            if problem is None or time.monotonic() >= over:
                return [] if problem is None else [problem]
            time.sleep(0.1)

    def _phrases(self, analyzer: str, words: Sequence[str]) -> list[Phrase]:
        found = [phrase for word in dict.fromkeys(words) for phrase in self._terms.phrases(analyzer, word)]
        return list(dict.fromkeys(found))

    def _found(self, query: TextQuery, k: int, where: EpisodeFilter) -> list[ScoredPassage]:
        passes, fields = condition(where), ("_id", "episode_id", *query.fields)
        with self._database.read(within_s=SEARCHED_S) as tables:
            newest = newest_seq(tables[PASSAGES])
            if not newest:
                return []

            def ask(name: str) -> tuple[Tail, list[Document]]:
                """Return what the index lacks, and what it finds that passes in its present form: a changed or removed
                document is read again, so the server continues until `k` pass.

                https://www.mongodb.com/docs/atlas/atlas-search/aggregation-stages/search/
                """
                stages: list[Document] = [
                    {"$search": {"index": name, **query.operator(passes)}},
                    *([{"$match": passes}] if passes else []),
                    {"$limit": k},
                    {"$project": {"episode_id": 1, "score": {"$meta": "searchScore"}}},
                ]
                with asking(name):
                    tail = self._behind(tables, name, newest)
                    return tail, tables[PASSAGES].search(stages)

            try:
                name, (tail, hits) = self._answer(tables, ask, lambda answer: bool(answer[1]))
                scores = {hit["_id"]: ScoredPassage(hit["_id"], hit["episode_id"], hit["score"]) for hit in hits}
                documents = [] if tail.is_empty else tables[PASSAGES].find(tail.of(passes), fields)
                if documents:
                    # by an index that is new every word is a rare one: where it has fewer passages than are read here,
                    # these tell their words' rarity themselves, all of them
                    known = self._counts.of(tables, name, query)
                    is_new = known.passages < len(documents)
                    read = self._scored(query, documents, None if is_new else known)
                    scores = scores | read if is_new else read | scores
            except IndexDown:
                all_there_is = live_rows(tables, PASSAGES, where, fields, MAX_SCANNED)
                if all_there_is is None:
                    raise
                scores = self._scored(query, all_there_is, None)
        return sorted(scores.values(), key=lambda hit: (-hit.score, hit.passage_id))[:k]

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

    def _scored(self, query: TextQuery, documents: Sequence[Document], known: Statistics | None) -> _Scores:
        """Return those of these passages that match.

        :param known: None: what they tell themselves.
        """
        texts = self._terms.of(documents, query.fields)
        known = known or statistics_of(query, texts)
        return {
            document["_id"]: ScoredPassage(document["_id"], document["episode_id"], score)
            for document, its in zip(documents, texts, strict=True)
            if (score := query.score(its, known)) > 0
        }

    def _known(self, phrases: Sequence[Phrase]) -> set[Phrase]:
        """Return those of these phrases that some passage's own text has."""
        fields = ("_id", *OWN_TEXT)
        with self._database.read(within_s=SEARCHED_S) as tables:
            newest = newest_seq(tables[PASSAGES])
            if not newest:
                return set()

            def ask(name: str) -> tuple[Tail, set[Phrase]]:
                held: set[Phrase] = set()
                with asking(name):
                    tail = self._behind(tables, name, newest)
                    for batch in batches(phrases, ASKED_AT_ONCE):
                        pipelines: list[list[Document]] = [
                            [
                                {"$search": {"index": name, "phrase": {"query": phrase.text, "path": list(OWN_TEXT)}}},
                                {"$limit": 1},
                                {"$project": {"_id": 0, "number": {"$literal": number}}},
                            ]
                            for number, phrase in enumerate(batch)
                        ]
                        held |= {batch[each["number"]] for each in tables[PASSAGES].search(in_one(PASSAGES, pipelines))}
                return tail, held

            try:
                _, (tail, found) = self._answer(tables, ask, lambda answer: bool(answer[1]))
                documents = [] if tail.is_empty else tables[PASSAGES].find(tail.of({}), fields)
            except IndexDown:
                all_there_is = live_rows(tables, PASSAGES, EpisodeFilter(include_superseded=True), fields, MAX_SCANNED)
                if all_there_is is None:
                    raise
                found, documents = set(), all_there_is
        texts = [terms for each in self._terms.of(documents, OWN_TEXT) for terms in each.values()]
        left = [phrase for phrase in phrases if phrase not in found]
        return found | {phrase for phrase in left if any(phrase.count(terms) for terms in texts)}


def _total(tables: Collections, name: str) -> int:
    """Return the number of passages that the index holds."""
    stage = {"index": name, "exists": {"path": "seq"}, "count": {"type": "total"}}
    with asking(name):
        (found,) = tables[PASSAGES].search([{"$searchMeta": stage}])
    return int(found["count"]["total"])


def _fields(analyzer: str, variant: Variant) -> tuple[str, ...]:
    if analyzer == EXACT:
        return ("terms",)
    return OWN_TEXT if variant is Variant.TEXT else (*OWN_TEXT, "context", UNSPACED["context"])


# --- how much a filter leaves, as the index of full text counts it ---------------------------------------


def leaves_few(tables: Collections, index: SearchIndex, where: EpisodeFilter, most: int) -> bool:
    """Whether at most so many passages pass, about; False where the index does not say."""
    try:
        name = index.name(tables)
        passing = _passing(tables, name, condition(where), most)
        if not passing and (other := index.instead_of(name, tables, lambda: bool(_passing(tables, name, {}, 1)))):
            passing = _passing(tables, other, condition(where), most)
    except IndexDown:
        return False
    return passing <= most


def _passing(tables: Collections, name: str, where: Filter, most: int) -> int:
    """How many pass, at least."""
    count = {"type": "lowerBound", "threshold": most}
    with asking(name):
        (found,) = tables[PASSAGES].search([{"$searchMeta": {"index": name, **filtered([], where), "count": count}}])
    return int(found["count"]["lowerBound"])

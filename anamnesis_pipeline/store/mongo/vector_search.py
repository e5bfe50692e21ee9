"""Nearest passages: what `$vectorSearch` finds, and what the index does not hold yet.

https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from bson.binary import Binary, BinaryVectorDtype
from numpy.typing import NDArray

from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.mongo.client import Collections
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import condition
from anamnesis_pipeline.store.mongo.schema import seq_counter
from anamnesis_pipeline.store.mongo.search_indexes import IndexTail, SearchIndex, Tail, live_rows, newest_seq
from anamnesis_pipeline.store.mongo.translation import IndexDown, asking

Vectors = NDArray[np.float32]
FLOAT32 = np.dtype("<f4")
"""The numbers are float16's, which SQLite stores, so that both backends hold and score the same. MongoDB indexes no
float16, so they are written as float32.
"""
_HEAD = 2
"""Bytes before the numbers of a packed vector: type and padding (the BSON vector format)."""

MAX_SCANNED = 20_000
"""Vectors that are read where no index answers: 30 MB at 384 dimensions."""
MAX_CANDIDATES = 10_000
"""More the server does not consider."""
FEW = 10_000
"""The server is to look at all that a filter leaves if it is at most so much, as MongoDB recommends for its exact
search (https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/).
"""
CANDIDATES_PER_RESULT = 20
MIN_CANDIDATES = 200
SPARE = 16
"""Results beyond the wanted ones: some of them were changed or removed since the index saw them."""
QUANTIZED_FACTOR = 4
"""Of a quantized index so many times more are asked for, since its order is a rough one."""
SCAN_ROWS = 4_096


def pack(vector: Vectors) -> Binary:
    """Return a vector as a packed BSON vector of float32, shape (dim,)."""
    return Binary.from_vector(vector, BinaryVectorDtype.FLOAT32)


def unpack(stored: Sequence[bytes], dim: int) -> Vectors:
    """Return the inverse, for several: shape (len(stored), dim)."""
    numbers = b"".join(memoryview(each)[_HEAD:] for each in stored)
    return np.frombuffer(numbers, FLOAT32).astype(np.float32).reshape(len(stored), dim)


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for in a collection of vectors. `vector` has shape (dim,); `few`: the server is to look at
    all that the filter leaves, since that is little, or since its index finds too little.
    """

    collection: str
    variant: str
    vector: Vectors
    k: int
    where: EpisodeFilter
    few: bool = False


class VectorSearch:
    """Searches the vectors of one space. Safe to share between threads."""

    def __init__(self, index: SearchIndex, *, quantized: bool) -> None:
        self._index = index
        self._quantized = quantized
        self._tails: dict[str, IndexTail] = {}

    def nearest(self, tables: Collections, question: Question) -> list[ScoredPassage]:
        """The k best that pass the filter, best first; read where no index answers.

        :raises IndexDown: none does, and there is too much to read.
        """
        has = {question.variant: {"$exists": True}}
        newest = newest_seq(tables[question.collection], has)
        if not newest:
            return []
        fields = ("_id", "episode_id", question.variant)
        try:
            name = self._index.name(tables)
            tail, found = self._behind_and_found(tables, name, question, newest)
            if not found and (
                other := self._index.instead_of(name, tables, lambda: self._is_there(tables, name, question))
            ):
                tail, found = self._behind_and_found(tables, other, question, newest)
            held = _held(found, tail)
            hits: Iterable[ScoredPassage]
            if self._quantized:
                hits = _scored(held, question)
            else:
                hits = [ScoredPassage(each["_id"], each["episode_id"], 2 * each["score"] - 1) for each in held]
            if tail.is_empty and len(held) == len(found):
                return best(hits, question.k)
            # What was written since the search began is read again: the index may have scored its former text.
            late = tables[question.collection].find({**tail.of(condition(question.where)), **has}, fields)
            return best([*_scored(late, question), *hits], question.k)
        except IndexDown:
            all_there_is = live_rows(
                tables, question.collection, question.where, fields, MAX_SCANNED, has=question.variant
            )
            if all_there_is is None:
                raise
            return best(_scored(all_there_is, question), question.k)

    def behind(self, tables: Collections, question: Question) -> Tail:
        """What the index lacks of a variant.

        :raises IndexDown: it does not say.
        """
        newest = newest_seq(tables[question.collection], {question.variant: {"$exists": True}})
        name = self._index.name(tables)
        tail = self._behind(tables, name, question, newest)
        if not tail.is_empty and (  # another process may have built it again, and dropped this one
            other := self._index.instead_of(name, tables, lambda: self._is_there(tables, name, question))
        ):
            return self._behind(tables, other, question, newest)
        return tail

    def _behind_and_found(
        self, tables: Collections, name: str, question: Question, newest: int
    ) -> tuple[Tail, list[Document]]:
        """Return what the index lacks, and what it finds: at least `k` that the tail does not tell better where there
        is so much. What was changed or removed since takes places, of an exact search too, and the graph may end early
        behind a filter.
        """
        tail = self._behind(tables, name, question, newest)
        few = question.few or tail.newest <= FEW  # each vector has its own `seq`
        found = self._asked(tables, name, question, few)
        is_all = few and tail.is_empty and len(found) < self._wanted(question)
        if len(_held(found, tail)) < question.k and not is_all:
            found = self._asked(tables, name, question, True, at_least=MAX_CANDIDATES)
        return tail, found

    def _behind(self, tables: Collections, name: str, question: Question, newest: int) -> Tail:
        tail = self._tails.setdefault(question.variant, IndexTail())
        try:
            unused_s = partial(tables.unused_s, seq_counter(question.collection))

            def holds(seq: int) -> bool:
                more = {"exact": True, "filter": {"seq": {"$gte": seq}}}
                return self._finds_any(tables, name, question, more)

            return tail.behind(name, newest, holds, unused_s)
        except IndexDown:
            self._index.forget(name)
            tail.forget(name)
            raise

    def _asked(
        self, tables: Collections, name: str, question: Question, exact: bool, at_least: int = 0
    ) -> list[Document]:
        passes = condition(question.where)
        fields = {"episode_id": 1, "seq": 1, "score": {"$meta": "vectorSearchScore"}}
        wanted = max(self._wanted(question), at_least)
        candidates = min(max(CANDIDATES_PER_RESULT * question.k, MIN_CANDIDATES, wanted), MAX_CANDIDATES)
        stage = {
            "index": name,
            "path": question.variant,
            "queryVector": pack(question.vector),
            "limit": wanted,
            **({"exact": True} if exact or wanted > candidates else {"numCandidates": candidates}),
            **({"filter": passes} if passes else {}),
        }
        stages: list[Document] = [
            {"$vectorSearch": stage},
            *([{"$match": passes}] if passes else []),
            {"$project": fields | ({question.variant: 1} if self._quantized else {})},
        ]
        try:
            with asking(name):
                return tables[question.collection].search(stages)
        except IndexDown:
            self._index.forget(name)
            raise

    def _wanted(self, question: Question) -> int:
        return (question.k + SPARE) * (QUANTIZED_FACTOR if self._quantized else 1)

    def _is_there(self, tables: Collections, name: str, question: Question) -> bool:
        """Whether the index exists and holds anything: one that was dropped finds nothing, too."""
        return self._finds_any(tables, name, question, {"numCandidates": 1})

    def _finds_any(self, tables: Collections, name: str, question: Question, more: Document) -> bool:
        stage = {"index": name, "path": question.variant, "queryVector": pack(question.vector), "limit": 1, **more}
        with asking(name):
            return bool(tables[question.collection].search([{"$vectorSearch": stage}, {"$project": {"_id": 1}}]))


def _held(found: Sequence[Document], tail: Tail) -> list[Document]:
    """Those of what an index found that reading the tail does not tell better."""
    return [each for each in found if each["seq"] <= tail.since or not tail.is_whole]


def _scored(documents: Sequence[Document], question: Question) -> Iterable[ScoredPassage]:
    """These passages with their cosines."""
    for page in batches(documents, SCAN_ROWS):
        scores = unpack([each[question.variant] for each in page], len(question.vector)) @ question.vector
        for each, score in zip(page, scores.tolist(), strict=True):
            yield ScoredPassage(each["_id"], each["episode_id"], score)


def best(hits: Iterable[ScoredPassage], k: int) -> list[ScoredPassage]:
    """The k best, best first, each once: as it comes first; of equals the older first."""
    unique: dict[int, ScoredPassage] = {}
    for hit in hits:
        unique.setdefault(hit.passage_id, hit)
    return sorted(unique.values(), key=lambda hit: (-hit.score, hit.passage_id))[:k]

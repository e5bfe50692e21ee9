"""How many passages have a term, as the search index counts: asked for only while there is a tail to be scored."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.passage_terms import PassageTerms
from anamnesis_pipeline.store.mongo.text_queries import FieldLengths, Statistics, TextQuery, lengths_of
from anamnesis_pipeline.store.mongo.translation import asking

KEPT_FOR_S = 20.0
"""Counts are used so long: the lists of a search, and the searches of a conversation, ask for the same words."""
NONE_FOR_S = 2.0
"""So long a term that no passage has is taken to have none: a first one changes most."""
COUNTED_AT_ONCE = 40
ALIKE = 1.1
"""Counts are used together where the passages were at most so many times as many for the one as for the other."""
SAMPLED = 100
"""Passages whose fields are taken to be like those of all."""

Key = tuple[str, str]
"""A term and a field."""


@dataclass(slots=True)
class _Kept:
    """What was counted since `began`, of so many passages; `none`: when a term had none."""

    began: float
    passages: int = 0
    lengths: dict[str, FieldLengths] = field(default_factory=dict)
    having: dict[Key, int] = field(default_factory=dict)
    none: dict[Key, float] = field(default_factory=dict)

    def goes_with(self, passages: int) -> bool:
        """Whether counts of so many passages can be used beside it."""
        return self.passages / ALIKE <= passages <= self.passages * ALIKE

    def has(self, key: Key, now: float) -> bool:
        """Whether a count is known."""
        return key in self.having or self.none.get(key, now - NONE_FOR_S) > now - NONE_FOR_S

    def keep(self, counts: dict[Key, int], now: float) -> None:
        """Take counts in."""
        self.having |= {key: count for key, count in counts.items() if count}
        self.none |= {key: now for key, count in counts.items() if not count}


class TermCounts:
    """The counts of terms asked for last. Safe to share between threads."""

    def __init__(self, terms: PassageTerms) -> None:
        self._terms = terms
        self._lock = threading.Lock()
        self._kept = _Kept(time.monotonic())

    def of(self, tables: Tables, index: str, query: TextQuery) -> Statistics:
        """What a query's phrases are to be scored with, so that it compares with the index's own scores.

        :raises IndexDown: the index does not answer.
        """
        pieces = {term: piece for each in query.phrases for term, piece in zip(each.terms, each.pieces, strict=True)}
        wanted = {(term, name): piece for term, piece in pieces.items() for name in query.fields}
        now = time.monotonic()
        kept = self._latest(now)
        if new := {key: piece for key, piece in wanted.items() if not kept.has(key, now)}:
            passages, counts = _counts(tables, index, new)
            if not kept.goes_with(passages):
                kept = self._anew(now, passages)
                if len(new) < len(wanted):
                    _, counts = _counts(tables, index, wanted)
            kept.keep(counts, now)
        if any(name not in kept.lengths for name in query.fields):
            kept.lengths |= self._lengths(tables, query.fields)
        return Statistics(kept.passages, kept.lengths, {key: kept.having.get(key, 0) for key in wanted})

    def _latest(self, now: float) -> _Kept:
        with self._lock:
            if now - self._kept.began <= KEPT_FOR_S:
                return self._kept
        return self._anew(now, 0)

    def _anew(self, now: float, passages: int) -> _Kept:
        with self._lock:
            self._kept = _Kept(now, passages)
            return self._kept

    def _lengths(self, tables: Tables, fields: Sequence[str]) -> dict[str, FieldLengths]:
        sample = tables["passages"].aggregate([{"$sample": {"size": SAMPLED}}, {"$project": dict.fromkeys(fields, 1)}])
        return lengths_of(fields, self._terms.of(sample, fields))


def _counts(tables: Tables, index: str, pieces: Mapping[Key, str]) -> tuple[int, dict[Key, int]]:
    """How many passages there are, and how many have each term in a field; few round trips.

    :param pieces: what each is asked for by.
    """
    asked: list[Document] = [{"exists": {"path": "seq"}}]
    asked += [{"phrase": {"query": piece, "path": name}} for (_, name), piece in pieces.items()]
    counts: list[int] = []
    for batch in batches(asked, COUNTED_AT_ONCE):
        pipelines = [_count(index, number, operator) for number, operator in enumerate(batch)]
        with asking(index):
            found = tables["passages"].search(in_one("passages", pipelines))
        totals = {each["number"]: int(each["count"]["total"]) for each in found}
        counts += [totals.get(number, 0) for number in range(len(batch))]
    return counts[0], dict(zip(pieces, counts[1:], strict=True))


def _count(index: str, number: int, operator: Document) -> list[Document]:
    """https://www.mongodb.com/docs/atlas/atlas-search/counting/"""
    return [
        {"$searchMeta": {"index": index, **operator, "count": {"type": "total"}}},
        {"$set": {"number": number}},
    ]


def in_one(collection: str, pipelines: Sequence[Sequence[dict[str, Any]]]) -> list[Document]:
    """Several pipelines over one collection as one, whose results come together:
    https://www.mongodb.com/docs/atlas/atlas-search/tutorial/search-with-unionwith/.
    """
    first, *others = pipelines
    return [*first, *({"$unionWith": {"coll": collection, "pipeline": list(each)}} for each in others)]

"""How many passages have a phrase, as the search index counts: asked for only while there is a tail to be scored."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.passage_terms import PassageTerms
from anamnesis_pipeline.store.mongo.search_refusals import asking
from anamnesis_pipeline.store.mongo.text_queries import FieldLengths, Phrase, Statistics, TextQuery, lengths_of

KEPT_FOR_S = 20.0
"""Counts are used so long: the lists of a search, and the searches of a conversation, ask for the same words."""
COUNTED_AT_ONCE = 40
ALIKE = 1.1
"""Counts are used together where the passages were at most so many times as many for the one as for the other."""
SAMPLED = 100
"""Passages whose fields are taken to be like those of all."""

Key = tuple[Phrase, str]


@dataclass(slots=True)
class _Kept:
    """What was counted since `began`, of so many passages."""

    began: float
    passages: int = 0
    lengths: dict[str, FieldLengths] = field(default_factory=dict)
    having: dict[Key, int] = field(default_factory=dict)

    def goes_with(self, passages: int) -> bool:
        """Whether counts of so many passages can be used beside it."""
        return self.passages / ALIKE <= passages <= self.passages * ALIKE


class PhraseCounts:
    """The counts of phrases asked for last. Safe to share between threads."""

    def __init__(self, terms: PassageTerms) -> None:
        self._terms = terms
        self._lock = threading.Lock()
        self._kept = _Kept(time.monotonic())

    def of(self, tables: Tables, index: str, query: TextQuery, since: int) -> Statistics:
        """What a query's phrases are to be scored with, so that it compares with the index's own scores.

        :param since: the index has what has no higher `seq`; 0: nobody knows what of it.
        :raises IndexDown: the index does not answer.
        """
        wanted = [(phrase, name) for phrase in query.phrases for name in query.fields]
        kept = self._latest()
        if new := [key for key in wanted if key not in kept.having]:
            passages, having = _counts(tables, index, new)
            if not kept.goes_with(passages):
                kept = self._anew(passages)
                if len(new) < len(wanted):
                    _, having = _counts(tables, index, wanted)
            kept.having |= {key: count for key, count in having.items() if count}  # a first passage changes most
        if any(name not in kept.lengths for name in query.fields):
            kept.lengths |= self._lengths(tables, query.fields, since)
        return Statistics(kept.passages, kept.lengths, {key: kept.having.get(key, 0) for key in wanted})

    def _latest(self) -> _Kept:
        with self._lock:
            if time.monotonic() - self._kept.began <= KEPT_FOR_S:
                return self._kept
        return self._anew(0)

    def _anew(self, passages: int) -> _Kept:
        with self._lock:
            self._kept = _Kept(time.monotonic(), passages)
            return self._kept

    def _lengths(self, tables: Tables, fields: Sequence[str], since: int) -> dict[str, FieldLengths]:
        indexed = {"seq": {"$lte": since}} if since else {}
        sample = tables["passages"].find(indexed, ("_id", *fields), order=[("seq", -1)], limit=SAMPLED)
        return lengths_of(fields, self._terms.of(sample, fields))


def _counts(tables: Tables, index: str, keys: Sequence[Key]) -> tuple[int, dict[Key, int]]:
    """How many passages there are, and how many have each phrase in a field; few round trips."""
    asked: list[Document] = [{"exists": {"path": "seq"}}]
    asked += [{"phrase": {"query": phrase.text, "path": name}} for phrase, name in keys]
    counts: list[int] = []
    for batch in batches(asked, COUNTED_AT_ONCE):
        pipelines = [_count(index, number, operator) for number, operator in enumerate(batch)]
        with asking(index):
            found = tables["passages"].search(in_one("passages", pipelines))
        totals = {each["number"]: int(each["count"]["total"]) for each in found}
        counts += [totals.get(number, 0) for number in range(len(batch))]
    return counts[0], dict(zip(keys, counts[1:], strict=True))


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

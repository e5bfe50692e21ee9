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
from anamnesis_pipeline.store.mongo.text_queries import Phrase, Statistics, TextQuery, mean_lengths

KEPT_FOR_S = 20.0
"""Counts are used so long: the lists of a search, and the searches of a conversation, ask for the same words."""
COUNTED_AT_ONCE = 40
SAMPLED = 100
"""Passages whose mean length is taken for that of all."""

Key = tuple[Phrase, str]


@dataclass(slots=True)
class _Kept:
    """What was counted since `began`."""

    began: float
    passages: int | None = None
    mean: dict[str, float] = field(default_factory=dict)
    having: dict[Key, int] = field(default_factory=dict)


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
        with self._lock:
            if time.monotonic() - self._kept.began > KEPT_FOR_S:
                self._kept = _Kept(time.monotonic())
            kept = self._kept
        wanted = [(phrase, name) for phrase in query.phrases for name in query.fields]
        new = [key for key in wanted if key not in kept.having]
        if kept.passages is None or new:
            counted = _counts(tables, index, new)
            kept.passages = counted.pop(None)
            found = {key: count for key, count in counted.items() if key is not None}
            kept.having |= {key: count for key, count in found.items() if count}  # a first passage changes most
        if any(name not in kept.mean for name in query.fields):
            kept.mean |= self._mean(tables, query.fields, since)
        return Statistics(kept.passages, kept.mean, {key: kept.having.get(key, 0) for key in wanted})

    def _mean(self, tables: Tables, fields: Sequence[str], since: int) -> dict[str, float]:
        indexed = {"seq": {"$lte": since}} if since else {}
        sample = tables["passages"].find(indexed, ("_id", *fields), order=[("seq", -1)], limit=SAMPLED)
        return mean_lengths(fields, self._terms.of(sample, fields))


def _counts(tables: Tables, index: str, keys: Sequence[Key]) -> dict[Key | None, int]:
    """How many passages have each phrase in a field, and (None) how many there are; few round trips."""
    asked: list[tuple[Key | None, Document]] = [(None, {"exists": {"path": "seq"}})]
    asked += [(key, {"phrase": {"query": key[0].text, "path": key[1]}}) for key in keys]
    counted: dict[Key | None, int] = {}
    for batch in batches(asked, COUNTED_AT_ONCE):
        pipelines = [_count(index, number, operator) for number, (_, operator) in enumerate(batch)]
        with asking(index):
            found = tables["passages"].search(in_one("passages", pipelines))
        totals = {each["number"]: int(each["count"]["total"]) for each in found}
        counted |= {key: totals.get(number, 0) for number, (key, _) in enumerate(batch)}
    return counted


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

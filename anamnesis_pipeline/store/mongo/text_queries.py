"""What is looked for in full text: as `$search` takes it, and as passages that it lacks are judged by.

Scores of both stand in one list, so these are computed as Lucene does:
https://www.mongodb.com/docs/atlas/atlas-search/score/get-details/.
"""

import math
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.parsing.text.unspaced_scripts import sought
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.index_terms import IndexTerms, exact_phrases
from anamnesis_pipeline.store.mongo.client import Collections
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.search_indexes import EXACT, STEM
from anamnesis_pipeline.store.mongo.translation import asking
from anamnesis_pipeline.store.values import indexed

K1, B = 1.2, 0.75
"""Lucene's constants."""

Terms = Sequence[str]
Texts = Mapping[str, Terms]
"""The terms of one passage, by field."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A word as it was asked for, and the terms that it comes to; several must stand one after another. `pieces` are
    what each term is asked for by.
    """

    text: str
    terms: tuple[str, ...]
    pieces: tuple[str, ...]

    def count(self, terms: Terms) -> int:
        """How often it stands in a text."""
        first, width = self.terms[0], len(self.terms)
        if width == 1:
            return terms.count(first)
        return sum(
            tuple(terms[start : start + width]) == self.terms for start, term in enumerate(terms) if term == first
        )


@dataclass(frozen=True, slots=True)
class TextQuery:
    """Passages that have some phrase of every group, in any of the fields."""

    groups: tuple[tuple[Phrase, ...], ...]
    fields: tuple[str, ...]

    @property
    def phrases(self) -> list[Phrase]:
        """Each phrase once."""
        return list(dict.fromkeys(phrase for group in self.groups for phrase in group))

    def operator(self, where: Filter) -> Document:
        """As an operator of `$search`."""
        # its words are data, and analyzed as the field is: https://www.mongodb.com/docs/atlas/atlas-search/phrase/
        path = list(self.fields)
        asked = [[{"phrase": {"query": phrase.text, "path": path}} for phrase in group] for group in self.groups]
        return filtered(list(map(any_of, asked)), where)

    def score(self, texts: Texts, known: "Statistics") -> float:
        """BM25 of a passage; 0 when it does not match."""
        counts = {
            (phrase, name): count
            for phrase in self.phrases
            for name in self.fields
            if (count := phrase.count(texts[name]))
        }
        held = {phrase for phrase, _ in counts}
        if not all(held.intersection(group) for group in self.groups):
            return 0.0
        return sum(
            sum(known.weight(term, name) for term in phrase.terms) * known.saturated(count, len(texts[name]), name)
            for (phrase, name), count in counts.items()
        )


@dataclass(frozen=True, slots=True)
class FieldLengths:
    """What is in a field: the part of all passages that have any terms there, and how many these have on average; None
    where none has any.
    """

    share: float
    mean: float | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """What BM25 wants to know of all passages: how many there are, what is in their fields, and how many have a term in
    one.
    """

    passages: int
    lengths: Mapping[str, FieldLengths]
    having: Mapping[tuple[str, str], int]

    def weight(self, term: str, field: str) -> float:
        """How much a term counts: the rarer among the passages that have the field, the more. A phrase counts as its
        terms together, however rare it is.
        """
        having = self.having.get((term, field), 0)
        filled = max(round(self.passages * self.lengths[field].share), having)
        return math.log(1 + (filled - having + 0.5) / (having + 0.5))

    def saturated(self, count: int, length: int, field: str) -> float:
        """Return the weight, in [0, 1), of `count` occurrences in a text of `length` terms."""
        return count / (count + K1 * (1 - B + B * length / (self.lengths[field].mean or length)))


def statistics_of(query: TextQuery, passages: Sequence[Texts]) -> Statistics:
    """Of passages that are all there are."""
    terms = dict.fromkeys(term for phrase in query.phrases for term in phrase.terms)
    having = {(term, name): sum(term in texts[name] for texts in passages) for term in terms for name in query.fields}
    return Statistics(len(passages), lengths_of(query.fields, passages), having)


def lengths_of(fields: Sequence[str], passages: Sequence[Texts]) -> dict[str, FieldLengths]:
    """What is in each field of these passages. Of one that none of them has, no more is known than that few have it."""
    lengths = {name: [len(texts[name]) for texts in passages if texts[name]] for name in fields}
    few = FieldLengths(1 / max(len(passages), 1), None)
    return {
        name: FieldLengths(len(each) / len(passages), sum(each) / len(each)) if each else few
        for name, each in lengths.items()
    }


# --- filters as clauses of $search -----------------------------------------------------------------------

_BOUNDS = {"$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


def any_of(operators: Sequence[Document]) -> Document:
    """What at least one of these operators finds, with the sum of their scores."""
    return operators[0] if len(operators) == 1 else {"compound": {"should": list(operators), "minimumShouldMatch": 1}}


def filtered(must: Sequence[Document], where: Filter) -> Document:
    """What every one of `must` finds that passes the filter, with the sum of their scores. Without both: everything."""
    required: list[Document] = []
    hidden: list[Document] = []
    for name, value in _terms(where):
        if name == "$nor":
            hidden += [filtered([], part) for part in value]
        elif name == "$or":
            required.append(any_of([filtered([], part) for part in value]))
        elif not isinstance(value, Mapping):
            required.append({"equals": {"path": name, "value": value}})
        elif (values := value.get("$nin")) is not None:
            hidden.append({"in": {"path": name, "value": values}})
        elif (values := value.get("$in")) is not None:
            required.append({"in": {"path": name, "value": values}})
        else:
            required.append({"range": {"path": name, **{_BOUNDS[bound]: limit for bound, limit in value.items()}}})
    clauses: Document = {"must": list(must)} if must else {}
    if required:
        clauses["filter"] = required
    if hidden:
        clauses["mustNot"] = hidden
    return {"compound": clauses} if clauses else {"exists": {"path": "seq"}}


def _terms(where: Filter) -> Iterable[tuple[str, Any]]:
    for name, value in where.items():
        if name == "$and":
            for part in value:
                yield from _terms(part)
        else:
            yield name, value


# --- passages and words as terms, for what the search index does not hold yet ----------------------------

REMEMBERED = 20_000
"""Texts whose terms are kept; a search looks at the newest passages, and the next one mostly at the same."""

_STEM_INDEX = "stem_index"
_PIECES = re.compile(r"[^\W_]+")

_Key = tuple[bool, str]
"""Whether the terms are exact ones, and the text."""


class PassageTerms:
    """Terms as FTS5 makes them, which is what `stem` means in every backend. Safe to share between threads."""

    def __init__(self) -> None:
        self._stems = IndexTerms()
        self._lock = threading.Lock()
        self._known: dict[_Key, Terms] = {}

    def phrases(self, analyzer: str, word: str) -> list[Phrase]:
        """Return the phrases that a word is looked up by, as alternatives; none if it is no word.

        :raises ValueError: there is no such analyzer.
        """
        if analyzer not in (STEM, EXACT):
            raise ValueError(f"analyzer {analyzer!r} is neither 'stem' nor 'exact'")
        text = indexed(word).replace("\0", " ").strip()
        if analyzer == EXACT:
            found = [(phrase, tuple(phrase.split())) for phrase in dict.fromkeys(exact_phrases(text))]
            return [Phrase(phrase, terms, terms) for phrase, terms in found]
        text = sought(text)
        terms = self._stems.of(_STEM_INDEX, [text])[text]
        pieces = tuple(_PIECES.findall(text))
        if len(pieces) != len(terms):  # the text is taken apart otherwise, e.g. at a stray accent
            pieces = terms
        return [Phrase(text, terms, pieces)] if terms else []

    def of(self, documents: Sequence[Document], fields: Sequence[str]) -> list[dict[str, Terms]]:
        """The terms of passages by field."""
        with self._lock:
            asked = dict.fromkeys(_key(document, name) for document in documents for name in fields)
            if any(key not in self._known for key in asked):
                if len(self._known) > REMEMBERED:
                    self._known = {key: self._known[key] for key in asked if key in self._known}
                new = [key for key in asked if key not in self._known]
                self._known |= {(is_exact, text): tuple(text.split()) for is_exact, text in new if is_exact}
                if texts := [text for is_exact, text in new if not is_exact]:
                    self._known |= {(False, text): its for text, its in self._stems.of(_STEM_INDEX, texts).items()}
            return [{name: self._known[_key(document, name)] for name in fields} for document in documents]


def _key(document: Document, name: str) -> _Key:
    """By the text itself: a database that was restored gives its keys to other passages."""
    return name == "terms", document.get(name, "")


# --- how many passages have a term, as the search index counts; asked only while there is a tail ---------

KEPT_FOR_S = 20.0
"""Seconds that counts are reused: the lists of a search, and the searches of a conversation, ask for the same words."""
NONE_FOR_S = 2.0
"""Seconds that a term without passages is taken to have none: the first one changes most."""
COUNTED_AT_ONCE = 40
ALIKE = 1.1
"""Counts are used together if the number of passages grew or shrank by at most this factor between them."""
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

    def of(self, tables: Collections, index: str, query: TextQuery) -> Statistics:
        """What a query's phrases are to be scored with, so that it compares with the index's own scores.

        :raises IndexDown: the index does not answer.
        """
        pieces = {term: piece for each in query.phrases for term, piece in zip(each.terms, each.pieces, strict=True)}
        wanted = {(term, name): piece for term, piece in pieces.items() for name in query.fields}
        now = time.monotonic()
        with self._lock:
            if now - self._kept.began > KEPT_FOR_S:
                self._kept = _Kept(now)
            kept = self._kept
        if new := {key: piece for key, piece in wanted.items() if not kept.has(key, now)}:
            passages, counts = _counts(tables, index, new)
            if not kept.goes_with(passages):
                with self._lock:
                    kept = self._kept = _Kept(now, passages)
                if len(new) < len(wanted):
                    _, counts = _counts(tables, index, wanted)
            kept.keep(counts, now)
        if any(name not in kept.lengths for name in query.fields):
            shown = {"$project": dict.fromkeys(query.fields, 1)}
            sample = tables["passages"].aggregate([{"$sample": {"size": SAMPLED}}, shown])
            kept.lengths |= lengths_of(query.fields, self._terms.of(sample, query.fields))
        return Statistics(kept.passages, kept.lengths, {key: kept.having.get(key, 0) for key in wanted})


def _counts(tables: Collections, index: str, pieces: Mapping[Key, str]) -> tuple[int, dict[Key, int]]:
    """How many passages there are, and how many have each term in a field; few round trips.

    :param pieces: what each is asked for by.
    """
    asked: list[Document] = [{"exists": {"path": "seq"}}]
    asked += [{"phrase": {"query": piece, "path": name}} for (_, name), piece in pieces.items()]
    counts: list[int] = []
    for batch in batches(asked, COUNTED_AT_ONCE):
        # https://www.mongodb.com/docs/atlas/atlas-search/counting/
        pipelines: list[list[Document]] = [
            [
                {"$searchMeta": {"index": index, **operator, "count": {"type": "total"}}},
                {"$set": {"number": number}},
            ]
            for number, operator in enumerate(batch)
        ]
        with asking(index):
            found = tables["passages"].search(in_one("passages", pipelines))
        totals = {each["number"]: int(each["count"]["total"]) for each in found}
        counts += [totals.get(number, 0) for number in range(len(batch))]
    return counts[0], dict(zip(pieces, counts[1:], strict=True))


def in_one(collection: str, pipelines: Sequence[Sequence[dict[str, Any]]]) -> list[Document]:
    """Several pipelines over one collection as one, whose results come together:
    https://www.mongodb.com/docs/atlas/atlas-search/tutorial/search-with-unionwith/.
    """
    first, *others = pipelines
    return [*first, *({"$unionWith": {"coll": collection, "pipeline": list(each)}} for each in others)]

"""What is looked for in full text: as `$search` takes it, and as passages that it lacks are judged by. Pure.

Scores of both stand in one list, so these are computed as Lucene does:
https://www.mongodb.com/docs/atlas/atlas-search/score/get-details/.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anamnesis_pipeline.store.mongo.collections import Document, Filter

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
        return filtered([any_of([self._asked(phrase) for phrase in group]) for group in self.groups], where)

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

    def _asked(self, phrase: Phrase) -> Document:
        """https://www.mongodb.com/docs/atlas/atlas-search/phrase/: its words are data, and analyzed as the field is."""
        return {"phrase": {"query": phrase.text, "path": list(self.fields)}}


@dataclass(frozen=True, slots=True)
class FieldLengths:
    """What is in a field: the part of all passages that have any terms there, and how many these have on average; None
    where nobody has any.
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
        """What so many occurrences in a text of so many terms are worth, in [0, 1)."""
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
    required, hidden = _clauses(where)
    clauses: Document = {"must": list(must)} if must else {}
    if required:
        clauses["filter"] = required
    if hidden:
        clauses["mustNot"] = hidden
    return {"compound": clauses} if clauses else {"exists": {"path": "seq"}}


def _clauses(where: Filter) -> tuple[list[Document], list[Document]]:
    """What must be met, and what must not."""
    required: list[Document] = []
    hidden: list[Document] = []
    for name, value in _terms(where):
        if name == "$nor":
            hidden += [filtered([], part) for part in value]
        elif isinstance(value, Mapping) and (values := value.get("$nin")) is not None:
            hidden.append({"in": {"path": name, "value": values}})
        else:
            required.append(_operator(name, value))
    return required, hidden


def _terms(where: Filter) -> Iterable[tuple[str, Any]]:
    for name, value in where.items():
        if name == "$and":
            for part in value:
                yield from _terms(part)
        else:
            yield name, value


def _operator(name: str, value: Any) -> Document:
    if name == "$or":
        return any_of([filtered([], part) for part in value])
    if not isinstance(value, Mapping):
        return {"equals": {"path": name, "value": value}}
    if (values := value.get("$in")) is not None:
        return {"in": {"path": name, "value": values}}
    return {"range": {"path": name, **{_BOUNDS[bound]: limit for bound, limit in value.items()}}}

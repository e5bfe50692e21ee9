"""One analyzed field of a search index: which rows have which terms, and BM25 as Lucene computes it.

Scoring: https://www.mongodb.com/docs/atlas/atlas-search/score/get-details/. Lucene keeps the length of a field in one
byte, so that lengths from 40 on are rounded down; what is removed leaves the figures at once, where Lucene waits for a
merge.
"""

import math
from collections.abc import Iterable, Sequence

from anamnesis_tests.support.mongo_server.search_analysis import Analyzer, Terms

K1, B = 1.2, 0.75
_EXACT_LENGTHS = 24
"""Lengths up to 23 and their distance to it up to 15 keep every bit (Lucene's SmallFloat.intToByte4)."""

Matches = dict[int, float]
"""Row and score."""


def kept_length(length: int) -> int:
    """The length that scores are computed with: its four highest bits above 24."""
    over = length - _EXACT_LENGTHS
    if over < 16:
        return length
    shift = over.bit_length() - 4
    return _EXACT_LENGTHS + (over >> shift << shift)


class TermField:
    """The terms of one path by one analyzer."""

    def __init__(self, analyze: Analyzer) -> None:
        self._analyze = analyze
        self._counts: dict[str, dict[int, int]] = {}
        self._terms: dict[int, Terms] = {}
        self._lengths: dict[int, int] = {}
        self._kept: dict[int, int] = {}
        self._total = 0

    def put(self, row: int, texts: Iterable[str]) -> None:
        """Keep what a row has now. Elements of an array follow each other without a gap, as in Lucene."""
        self.remove(row)
        terms = [term for text in texts for term in self._analyze(text)]
        if not terms:
            return
        self._terms[row], self._lengths[row] = terms, len(terms)
        self._kept[row] = kept_length(len(terms))
        self._total += len(terms)
        for term in terms:
            counts = self._counts.setdefault(term, {})
            counts[row] = counts.get(row, 0) + 1

    def remove(self, row: int) -> None:
        """Forget a row."""
        for term in set(self._terms.pop(row, ())):
            self._counts[term].pop(row, None)
            if not self._counts[term]:
                del self._counts[term]
        self._total -= self._lengths.pop(row, 0)
        self._kept.pop(row, None)

    def with_phrase(self, text: str) -> Matches:
        """Rows that have the terms of a query one after another."""
        asked = self._analyze(text)
        if len(asked) < 2:
            return self._scored(asked[0]) if asked else {}
        rows = set.intersection(*(set(self._counts.get(term, ())) for term in asked))
        weight = sum(self._idf(term) for term in asked)
        counted = {row: _occurrences(self._terms[row], asked) for row in rows}
        return {row: weight * self._saturated(row, count) for row, count in counted.items() if count}

    def _scored(self, term: str) -> Matches:
        weight = self._idf(term)
        return {row: weight * self._saturated(row, count) for row, count in self._counts.get(term, {}).items()}

    def _idf(self, term: str) -> float:
        having = len(self._counts.get(term, ()))
        return math.log(1 + (len(self._terms) - having + 0.5) / (having + 0.5))

    def _saturated(self, row: int, count: int) -> float:
        average = self._total / len(self._terms)
        return count / (count + K1 * (1 - B + B * self._kept[row] / average))


def _occurrences(terms: Sequence[str], asked: Sequence[str]) -> int:
    """How often `asked` occurs."""
    width = len(asked)
    return sum(terms[start : start + width] == asked for start in range(len(terms) - width + 1))

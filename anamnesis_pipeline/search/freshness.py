"""Of two statements on the same thing the newer comes first. Pure."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.search.dialogue import speaks, words_of
from anamnesis_pipeline.search.words import content_words

LOOKED_AT = 10
"""Ranks among which order is changed."""
STATEMENT_CHARS = 600
"""A longer text says many things, and names many."""
AKIN, ANSWERS, NAMES, BASE = 5.6, 11.0, 4.0, -10.3
"""Log odds that a newer statement corrects an older one: for their cosine, for how well the newer one answers the
question against the older one, at most BETTER, for naming what only the older one says, and for none. By
benchmarks/corrections.py, but for the constant: it is 3 higher than fitted, since what is stale misleads, and what is
true but second is still read.
"""
BETTER = 1.1
"""Of two newer statements the one that answers better than the older one is likelier its correction. One that answers
far better comes first without that. From 1.05 to 1.2 the pairs of benchmarks/reversals.py come out the same.
"""
MATTERS = 0.75
"""Least share of the best answer's late interaction that an older statement has: who answers less is no answer."""
STEM = 6
"""Letters by which words are compared: `editor` and `editors` are the same."""
_PRESENT = re.compile(
    r"\b(is|are|do|does|can|should|must|may|will|has|have|which|what|where|how|when|who)\b", re.IGNORECASE
)
_PAST = re.compile(r"\b(did|was|were|had|been|used to|ago|last|yesterday|happened|decided)\b", re.IGNORECASE)


def asks_what_holds(question: str) -> bool:
    """Whether a question is about how things are, and not about what happened: then what is newer answers it."""
    return bool(_PRESENT.search(question)) and not _PAST.search(question)


@dataclass(frozen=True, slots=True)
class Statement:
    """What is shown of a hit. `answers` is its late interaction with the question and `vector` of unit length; None: it
    is not embedded. `stands_alone`: it was posted, recorded or written down, and is no run of a transcript. `corrects`:
    it was kept as a correction.
    """

    text: str
    when: datetime
    project: str
    stands_alone: bool
    answers: float | None
    vector: NDArray[np.float32] | None
    corrects: bool = False


def newer_first(question: str, statements: Sequence[Statement]) -> list[int]:
    """The order in which to show them, as indexes: each before the older one that it seems to correct. The likeliest
    such pairs are taken first, and a statement belongs to one of them, unless it was kept as a correction: that may
    correct several.
    """
    order = list(range(len(statements)))
    paired: set[int] = set()
    for odds, newer, older in sorted(_corrections(question, statements[:LOOKED_AT]), reverse=True):
        if odds < 0 or older in paired or (newer in paired and not statements[newer].corrects):
            continue
        paired |= {newer, older}
        place, ahead = order.index(newer), order.index(older)
        if ahead < place:
            order.insert(ahead, order.pop(place))
    return order


def _corrections(question: str, seen: Sequence[Statement]) -> Iterator[tuple[float, int, int]]:
    """The log odds, index and index of each newer statement and each older one that it could correct."""
    best = max((each.answers for each in seen if each.answers is not None), default=0.0)
    asked = words_of(question)
    told = [speaks(each.text, asked) for each in seen]
    for (n, newer), (o, older) in itertools.permutations(enumerate(seen), 2):
        if older.answers is None or older.answers < MATTERS * best or not _comparable(newer, older):
            continue
        if told[o] and not told[n]:  # nobody else corrects what the one said whom the question names
            continue
        if (both := measures(question, newer, older)) is not None:
            yield float(np.dot((AKIN, ANSWERS, NAMES), both)) + BASE, n, o


def _comparable(newer: Statement, older: Statement) -> bool:
    """Whether the one can correct the other at all. What a session said is corrected only by what is meant to."""
    short = max(len(newer.text), len(older.text)) <= STATEMENT_CHARS
    alone = newer.stands_alone and (older.stands_alone or newer.corrects)
    return newer.when > older.when and newer.project == older.project and short and alone


def names_what_only(older: str, newer: str, question: str) -> bool:
    """Whether the newer text has a word that carries meaning of the older one which the question does not have: who
    corrects something often names what held before ("8080 collided with the proxy").
    """
    return bool((_stems(older) - _stems(question)) & _stems(newer))


def _stems(text: str) -> set[str]:
    return {word[:STEM].removesuffix("s") for word in content_words(text)}


def measures(question: str, newer: Statement, older: Statement) -> tuple[float, float, float] | None:
    """Their cosine, how well the newer one answers against the older one, and whether it names what only the older one
    says; None: at least one is not embedded.
    """
    if newer.vector is None or older.vector is None or newer.answers is None or older.answers is None:
        return None
    answers = min(BETTER, newer.answers / older.answers) if older.answers > 0 else 1.0
    names = names_what_only(older.text, newer.text, question)
    return float(np.dot(newer.vector, older.vector)), answers, float(names)

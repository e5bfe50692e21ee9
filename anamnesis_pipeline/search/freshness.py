"""Put the newer of two statements about the same thing first. Pure."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import EpisodeFilter, Space
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.dialogue import speaks, words_of
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store

LOOKED_AT = 10
"""Ranks that may be reordered."""
STATEMENT_CHARS = 600
"""A longer text states many things."""
AKIN, ANSWERS, NAMES, BASE = 5.6, 11.0, 4.0, -10.3
"""Log odds that a newer statement corrects an older one: weights of their cosine, of the newer one's answer relative to
the older one's (at most BETTER), and of naming words of the older one only; then the constant. Fitted by
benchmarks/corrections.py, except for the constant: it is 3 higher, since stale statements mislead, and a true statement
in second place is still read.
"""
BETTER = 1.1
"""A newer statement that answers better than the older one is more likely its correction. One that answers far better
comes first anyway. From 1.05 to 1.2 the pairs of benchmarks/reversals.py come out the same.
"""
MATTERS = 0.75
"""Minimum late interaction of an older statement, as a share of the best one's; below it, it is no answer."""
STEM = 6
"""Letters by which words are compared: `editor` and `editors` are the same."""
_PRESENT = re.compile(
    r"\b(is|are|do|does|can|should|must|may|will|has|have|which|what|where|how|when|who)\b", re.IGNORECASE
)
_PAST = re.compile(r"\b(did|was|were|had|been|used to|ago|last|yesterday|happened|decided)\b", re.IGNORECASE)


def asks_what_holds(question: str) -> bool:
    """Return whether a question is about the present state, not past events: then newer statements answer it."""
    return bool(_PRESENT.search(question)) and not _PAST.search(question)


@dataclass(frozen=True, slots=True)
class Statement:
    """The shown text of a hit. `answers` is its late interaction with the question, `vector` has unit length; None: not
    embedded. `stands_alone`: it was posted, recorded or written down, not part of a transcript. `corrects`: it was
    stored as a correction.
    """

    text: str
    when: datetime
    project: str
    stands_alone: bool
    answers: float | None
    vector: NDArray[np.float32] | None
    corrects: bool = False


def newer_first(question: str, statements: Sequence[Statement]) -> list[int]:
    """Return the display order as indexes: each statement before the older one that it probably corrects. The likeliest
    pairs are applied first. A statement is in one pair only, unless it was stored as a correction.
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
    """Yield (log odds, index, index) for each newer statement and each older one that it could correct."""
    best = max((each.answers for each in seen if each.answers is not None), default=0.0)
    asked = words_of(question)
    told = [speaks(each.text, asked) for each in seen]
    for (n, newer), (o, older) in itertools.permutations(enumerate(seen), 2):
        if older.answers is None or older.answers < MATTERS * best or not _comparable(newer, older):
            continue
        if told[o] and not told[n]:  # only the speaker whom the question names can correct themselves
            continue
        if (both := measures(question, newer, older)) is not None:
            yield float(np.dot((AKIN, ANSWERS, NAMES), both)) + BASE, n, o


def _comparable(newer: Statement, older: Statement) -> bool:
    """Return whether `newer` can correct `older` at all. Only an explicit correction corrects a session's text."""
    short = max(len(newer.text), len(older.text)) <= STATEMENT_CHARS
    alone = newer.stands_alone and (older.stands_alone or newer.corrects)
    return newer.when > older.when and newer.project == older.project and short and alone


def names_what_only(older: str, newer: str, question: str) -> bool:
    """Return whether the newer text has a content word of the older one that the question lacks: corrections often name
    the former state ("8080 collided with the proxy").
    """
    return bool((_stems(older) - _stems(question)) & _stems(newer))


def _stems(text: str) -> set[str]:
    return {word[:STEM].removesuffix("s") for word in content_words(text)}


def measures(question: str, newer: Statement, older: Statement) -> tuple[float, float, float] | None:
    """Return (cosine, newer one's answer relative to the older one's, whether it names words of the older one only);
    None: at least one is not embedded.
    """
    if newer.vector is None or older.vector is None or newer.answers is None or older.answers is None:
        return None
    answers = min(BETTER, newer.answers / older.answers) if older.answers > 0 else 1.0
    names = names_what_only(older.text, newer.text, question)
    return float(np.dot(newer.vector, older.vector)), answers, float(names)


# --- backlog ---------------------------------------------------------------------------------------------

# Notes on pending files and passages, so that an early answer is not taken for a complete one.

EMBEDDING = "embedding: "
"""Prefix of a note on passages without vectors."""


def embedding_notes(store: Store, space: Space) -> list[str]:
    """Note the passages that only full-text search finds yet, for `SearchAnswer.degraded`; cheap while few wait."""
    waiting = sum(store.vectors.pending_sources(space.key).values())
    return [f"{EMBEDDING}no vectors yet of {counted(waiting, 'passage')}, found by words alone"] if waiting else []


def backlog_notes(store: Store, mode: Mode) -> list[str]:
    """Return one line each for `SearchAnswer.degraded` on what is not read or not embedded yet."""
    if not store.episodes.count(EpisodeFilter()):
        return ["reading: nothing is stored yet"]
    notes = []
    if unread := len(store.parts.unread_sources()):
        notes.append(
            f"reading: not finished in {unread:,} of {counted(len(store.files.log_sources()), 'source')} of logs"
        )
    space = store.spaces.active()
    if mode is not Mode.EXACT and space is not None:
        progress = store.vectors.progress(space.key)
        if missing := progress.passages - progress.passages_done:
            notes.append(f"{EMBEDDING}no vectors yet of {missing:,} of {counted(progress.passages, 'passage')}")
    return notes

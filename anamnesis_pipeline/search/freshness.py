"""Of two statements on the same thing the newer comes first. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

LOOKED_AT = 10
"""Ranks among which order is changed."""
STATEMENT_CHARS = 600
"""A longer text says many things, and a word of change in it may be about any."""
AKIN, SAME_SUBJECT = 0.3, 0.65
"""Least cosine between an older statement and a newer one that tells of a change, or does not."""
TELLS = 0.15
"""What a word of change is worth against cosines, when it is asked which newer statement is meant."""
NEAR = 0.3
"""Least share of the older one's similarity to the question that the newer one has."""
_PRESENT = re.compile(
    r"\b(is|are|do|does|can|should|must|may|will|has|have|which|what|where|how|when|who)\b", re.IGNORECASE
)
_PAST = re.compile(r"\b(did|was|were|had|been|used to|ago|last|yesterday|happened|decided)\b", re.IGNORECASE)
_CHANGE = re.compile(
    r"""\b(now|no[ ]longer|any[ ]?more|instead|since|from[ ]now[ ]on|today|again|went[ ](back[ ])?to
    | (was|were|is|are|been|we|i)[ ](shut|given|moved|switched|migrated|replaced|rewritten|changed|dropped|removed
        |retired|raised|lowered|lifted|cut|shortened|extended|widened|upgraded|renamed|deprecated|rebuilt)
    | (moved|switched|migrated|changed|rewritten|rebuilt)[ ](to|in|from|over|on)
    | replaced|replaces|gave[ ]up|given[ ]away|shut[ ]down|turned[ ]out|superseded|gone)\b""",
    re.IGNORECASE | re.VERBOSE,
)


def asks_what_holds(question: str) -> bool:
    """Whether a question is about how things are, and not about what happened: then what is newer answers it."""
    return bool(_PRESENT.search(question)) and not _PAST.search(question)


@dataclass(frozen=True, slots=True)
class Statement:
    """What is shown of a hit. `similarity` is its cosine to the question and `vector` of unit length; None: it is not
    embedded. `stands_alone`: it was posted, recorded or written down, and is no run of a transcript.
    """

    text: str
    when: datetime
    project: str
    stands_alone: bool
    similarity: float | None
    vector: NDArray[np.float32] | None


def newer_first(statements: Sequence[Statement]) -> list[int]:
    """The order in which to show them, as indexes: each before the older one that it seems to correct. That is so if,
    among the first, each is what is nearest to the other.
    """
    seen = statements[:LOOKED_AT]
    order = list(range(len(statements)))
    for index, newer in enumerate(seen):
        older = _nearest(newer, seen, is_older=True)
        if older is None or _nearest(seen[older], seen, is_older=False) != index or not _corrects(newer, seen[older]):
            continue
        place, ahead = order.index(index), order.index(older)
        if ahead < place:
            order.insert(ahead, order.pop(place))
    return order


def _nearest(one: Statement, others: Sequence[Statement], *, is_older: bool) -> int | None:
    """The older, or newer, statement on the same project that is most like this one."""
    found = [
        (_kinship(other, one) if is_older else _kinship(one, other) + TELLS * _tells_of_change(other), index)
        for index, other in enumerate(others)
        if _comparable(one, other) and (other.when < one.when if is_older else other.when > one.when)
    ]
    return max(found)[1] if found else None


def _comparable(one: Statement, other: Statement) -> bool:
    short = max(len(one.text), len(other.text)) <= STATEMENT_CHARS
    alone = one.stands_alone and other.stands_alone
    return short and alone and one.project == other.project and one.vector is not None and other.vector is not None


def _corrects(newer: Statement, older: Statement) -> bool:
    if newer.similarity is None or older.similarity is None or newer.similarity < NEAR * older.similarity:
        return False
    return _kinship(older, newer) >= (AKIN if _tells_of_change(newer) else SAME_SUBJECT)


def _kinship(one: Statement, other: Statement) -> float:
    return float(np.dot(one.vector, other.vector)) if one.vector is not None and other.vector is not None else -1.0


def _tells_of_change(statement: Statement) -> bool:
    return _CHANGE.search(statement.text) is not None

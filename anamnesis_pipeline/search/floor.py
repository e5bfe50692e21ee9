"""Whether anything found answers a question at all, judged by what questions on other things find. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from anamnesis_pipeline.embeddings.registry import MINILM
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.search.fusion import Ranking

NEAR, KNOWN, NEITHER = 1.5, 6.0, -5.4
"""Weights of a logistic regression over 198 prompts to real logs, half of them about other people's work (benchmarks/
silence.py, the split `dev`): how near the nearest passages are, which share of the words is known, and the constant."""
UNASKED_LEAST = 0.5
"""What is said without being asked for needs so much: of the prompts on other people's work 5% reach it, of the others
90%; in the split `test`, 3% and 91%."""
ASKED_LEAST = -1.6
"""Who searches gets what reaches this: 20% of the former, 99% of the latter; in the split `test`, 21% and 99%. An
answer that is missed costs more than one that is not wanted, so only what is clearly unrelated falls."""
STRONG_LEAST = 3.0
"""From here on a hit is a strong one. What each word is worth stands in benchmarks/README.md, under silence."""
UNKNOWN_MOST = 0.5
"""A question in another language has only words that are not stored; more than half of them count as half."""
SPREAD_LEAST = 0.005
"""Of cosines: with few passages stored, the questions on other things may all be about as far from them."""


class Confidence(StrEnum):
    """How sure it is that a hit answers, in words."""

    STRONG = "strong"
    FAIR = "fair"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a question found. `nearest`: name of each dense list -> its best cosine. `unknown`: share of the question's
    words that nothing stored has, in [0, 1].
    """

    nearest: Mapping[str, float]
    unknown: float


@dataclass(frozen=True, slots=True)
class Level:
    """What questions on other things find in a space: the mean and the standard deviation of the best cosine of each
    dense list, and the mean share of unknown words.
    """

    means: Mapping[str, float]
    spreads: Mapping[str, float]
    unknown: float


BUILT_IN = {
    MINILM: Level(
        {"dense_text": 0.257, "dense_context": 0.219}, {"dense_text": 0.056, "dense_context": 0.062}, unknown=0.454
    )
}
"""Model -> its level in a memory of 3,128 passages, for a space that is not measured yet."""


def level_of(found: Sequence[Evidence]) -> Level:
    """The level that questions on other things, at least one, make."""
    lists = [name for name in found[0].nearest if all(name in each.nearest for each in found)]
    best = {name: np.array([each.nearest[name] for each in found]) for name in lists}
    return Level(
        {name: float(cosines.mean()) for name, cosines in best.items()},
        {name: float(cosines.std()) for name, cosines in best.items()},
        float(np.mean([min(each.unknown, UNKNOWN_MOST) for each in found])),
    )


def nearness(cosine: float, level: Level, name: str) -> float | None:
    """By how many standard deviations a cosine is above those of a dense list; None: it is not in the level."""
    if name not in level.means:
        return None
    return (cosine - level.means[name]) / max(level.spreads[name], SPREAD_LEAST)


def confidence(found: Evidence, level: Level) -> float | None:
    """How sure it is that something answers, as log odds; None where no vector was compared."""
    near = [above for name, best in found.nearest.items() if (above := nearness(best, level, name)) is not None]
    if not near:
        return None
    known = level.unknown - min(found.unknown, UNKNOWN_MOST)
    return NEITHER + NEAR * sum(near) / len(near) + KNOWN * known


def in_words(found: Evidence | None, level: Level | None, cosine: float | None) -> Confidence:
    """The confidence in one hit: that of the whole answer, or of the hit alone, whichever is less. Where no vectors
    tell, it is fair.

    :param found: what the question found.
    :param cosine: of the hit's best passage; None: it has no vector, or none was compared.
    """
    whole = confidence(found, level) if found is not None and level is not None else None
    if found is None or level is None or whole is None:
        return Confidence.FAIR
    alone = None if cosine is None else confidence(replace(found, nearest={f"dense_{Variant.TEXT}": cosine}), level)
    if min(whole, whole if alone is None else alone) < ASKED_LEAST:
        return Confidence.WEAK
    return Confidence.STRONG if alone is not None and min(whole, alone) >= STRONG_LEAST else Confidence.FAIR


def nearest_of(rankings: Sequence[Ranking]) -> dict[str, float]:
    """The best cosine of each dense list that found anything."""
    return {r.name: r.passages[0].score for r in rankings if r.passages and r.name.startswith("dense")}


def says_nothing(rankings: Sequence[Ranking], sure: float | None, least: float) -> bool:
    """Whether nothing found is near enough: the confidence is below `least`. What holds literal tokens of the question
    always is near enough.
    """
    literal = any(ranking.name == "exact" and ranking.passages for ranking in rankings)
    return sure is not None and sure < least and not literal

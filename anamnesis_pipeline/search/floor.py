"""The relevance threshold: whether any hit answers a question, compared with the hits of unrelated questions. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, pstdev

from anamnesis_pipeline.embeddings.registry import MINILM
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.search.fusion import Ranking

NEAR, KNOWN, NEITHER = 1.5, 6.0, -5.4
"""Weights of a logistic regression over 198 prompts to real logs, half of them about other people's work (benchmarks/
silence.py, the split `dev`): nearness of the nearest passages, share of known words, and the constant."""
MIN_UNASKED = 0.5
"""Threshold for unrequested quotes: of the prompts on other people's work 5% reach it, of the others 90%; in the split
`test`, 3% and 91%."""
MIN_ASKED = -1.6
"""Threshold of a search: 20% of the former reach it, 99% of the latter; in the split `test`, 21% and 99%. A missed
answer costs more than an unwanted one, so only clearly unrelated hits are dropped."""
MIN_STRONG = 3.0
"""Threshold of a strong hit. The meaning of each level is in benchmarks/README.md, under silence."""
UNKNOWN_MOST = 0.5
"""A question in another language has only unknown words; a share above half counts as half."""
MIN_SPREAD = 0.005
"""Minimum spread of cosines: with few stored passages, all unrelated questions may be about equally far from them."""


class Confidence(StrEnum):
    """Confidence that a hit answers, in words."""

    STRONG = "strong"
    FAIR = "fair"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The matches of a question. `nearest`: name of each dense list -> its best cosine. `unknown`: share of the
    question's words that no stored text has, in [0, 1].
    """

    nearest: Mapping[str, float]
    unknown: float


@dataclass(frozen=True, slots=True)
class Level:
    """Null-query baseline of a space, from unrelated questions: mean and standard deviation of the best cosine of each
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
"""Model -> its baseline in a memory of 3,128 passages, for a space that is not measured yet."""


def level_of(found: Sequence[Evidence]) -> Level:
    """Return the baseline from at least one unrelated question."""
    lists = [name for name in found[0].nearest if all(name in each.nearest for each in found)]
    best = {name: [each.nearest[name] for each in found] for name in lists}
    return Level(
        {name: fmean(cosines) for name, cosines in best.items()},
        {name: pstdev(cosines) for name, cosines in best.items()},
        fmean(min(each.unknown, UNKNOWN_MOST) for each in found),
    )


def nearness(cosine: float, level: Level, name: str) -> float | None:
    """Return the standard deviations by which a cosine exceeds a list's baseline; None: the list has no baseline."""
    if name not in level.means:
        return None
    return (cosine - level.means[name]) / max(level.spreads[name], MIN_SPREAD)


def confidence(found: Evidence, level: Level) -> float | None:
    """Return the log odds that something answers; None if no vector was compared."""
    near = [above for name, best in found.nearest.items() if (above := nearness(best, level, name)) is not None]
    if not near:
        return None
    known = level.unknown - min(found.unknown, UNKNOWN_MOST)
    return NEITHER + NEAR * sum(near) / len(near) + KNOWN * known


def in_words(
    found: Evidence | None, level: Level | None, cosine: float | None, weak_below: float = MIN_ASKED
) -> Confidence:
    """Return the confidence in one hit: the lower of the whole answer's and the hit's own. Without vectors it is fair.

    :param found: matches of the question.
    :param cosine: of the hit's best passage; None: it has no vector, or none was compared.
    :param weak_below: the threshold of a weak hit.
    """
    whole = confidence(found, level) if found is not None and level is not None else None
    if found is None or level is None or whole is None:
        return Confidence.FAIR
    alone = None if cosine is None else confidence(replace(found, nearest={f"dense_{Variant.TEXT}": cosine}), level)
    if min(whole, whole if alone is None else alone) < weak_below:
        return Confidence.WEAK
    return Confidence.STRONG if alone is not None and min(whole, alone) >= MIN_STRONG else Confidence.FAIR


def nearest_of(rankings: Sequence[Ranking]) -> dict[str, float]:
    """Return the best cosine of each dense list with results."""
    return {r.name: r.passages[0].score for r in rankings if r.passages and r.name.startswith("dense")}


def says_nothing(rankings: Sequence[Ranking], sure: float | None, least: float) -> bool:
    """Return whether the confidence is below `least`. A match of the question's literal tokens always suffices."""
    literal = any(ranking.name == "exact" and ranking.passages for ranking in rankings)
    return sure is not None and sure < least and not literal

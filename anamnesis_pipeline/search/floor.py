"""Whether anything found answers a question at all. Pure."""

from collections.abc import Mapping, Sequence

from anamnesis_pipeline.search.fusion import Ranking

LATE, TEXT, CONTEXT, REST = 7.0, 9.4, 6.7, -10.4
"""Weights of a logistic regression over 198 prompts to real logs, half of them about other people's work (benchmarks/
silence.py, the split `dev`): the best score by late interaction and the best cosines of text and of text in context."""
UNASKED_LEAST = 0.2
"""What is said without being asked for needs so much: of the prompts on other people's work 5% reach it, of the others
91%."""
ASKED_LEAST = -1.0
"""Who searches gets what reaches this: 20% of the former, 98% of the latter."""


def confidence(rankings: Sequence[Ranking], late: Mapping[int, float]) -> float | None:
    """How sure it is that something answers, as log odds; None where no vector was compared."""
    best = {ranking.name: ranking.passages[0].score for ranking in rankings if ranking.passages}
    if not late or "dense_text" not in best or "dense_context" not in best:
        return None
    return LATE * max(late.values()) + TEXT * best["dense_text"] + CONTEXT * best["dense_context"] + REST


def says_nothing(rankings: Sequence[Ranking], late: Mapping[int, float], least: float) -> bool:
    """Whether nothing found is near enough: the confidence is below `least`. What holds literal tokens of the question
    always is near enough.
    """
    sure = confidence(rankings, late)
    literal = any(ranking.name == "exact" and ranking.passages for ranking in rankings)
    return sure is not None and sure < least and not literal

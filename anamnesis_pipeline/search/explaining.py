"""Explain the effect of each stage of a search. Pure."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.search.floor import nearness
from anamnesis_pipeline.search.fusion import FUSION_DEPTH, explain
from anamnesis_pipeline.search.ranker import Question, Ranked

Explanation = dict[str, object]


def hit_explanation(
    question: Question,
    ranked: Ranked,
    passage_id: int,
    cosine: float | None,
    company: float,
    factors: Mapping[str, float],
    reread: float | None = None,
) -> Explanation:
    """Explain one hit: its rank and score in each list that has it, and the effect of every later stage.

    :param passage_id: the passage shown of the hit.
    :param reread: its score by the cross-encoder.
    """
    stages: Explanation = {"factors": {name: round(factor, 4) for name, factor in factors.items()}}
    if passage_id in ranked.late:
        rank = 1 + sum(score > ranked.late[passage_id] for score in ranked.late.values())
        stages["late"] = {"rank": rank, "score": round(ranked.late[passage_id], 6)}
    if (voice := ranked.told.factors.get(passage_id, 1.0)) != 1.0:
        stages["voice"] = round(voice, 4)
    if reread is not None:
        stages["rerank"] = round(reread, 6)
    if company:
        stages["company"] = round(company, 4)
    if ranked.sure is not None:
        stages["confidence"] = round(ranked.sure, 4)
    if question.level is not None and cosine is not None:
        above = nearness(cosine, question.level, f"dense_{Variant.TEXT}")
        if above is not None:
            stages["nearness"] = round(above, 4)
    return {**explain(ranked.rankings, passage_id), "stages": stages}


def answer_explanation(
    question: Question, judged: Ranked, cleared: int, shown: int, numbers: Mapping[str, float]
) -> Explanation:
    """Explain a whole answer: the candidates of each list, and the episodes that each later stage left out.

    :param judged: before the relevance threshold.
    :param cleared: episodes that reached it.
    :param shown: groups after near-duplicate collapsing.
    :param numbers: those of the ranking that are not the defaults.
    """
    floor, times = question.query.profile.floor, question.times
    lists: Explanation = {}
    for ranking in judged.rankings:
        first = [
            {"episode_id": found.episode_id, "score": round(found.score, 6)}
            for found in ranking.passages[:FUSION_DEPTH]
        ]
        lists[ranking.name] = {"weight": ranking.weight, "found": len(ranking.passages), "first": first}
    named: Explanation | None = None
    if times is not None:
        named = {
            "words": times.words,
            "relation": times.relation.value,
            "certain": times.certain,
            "since": _utc(times.since),
            "until": _utc(times.until),
        }
    return {
        "lists": lists,
        "ranking": dict(numbers),
        "time": named,
        "confidence": None if judged.sure is None else round(judged.sure, 4),
        "floor": round(floor, 4) if math.isfinite(floor) else None,
        "candidates": len(judged.best),
        "below_floor": len(judged.best) - cleared,
        "folded": cleared - shown,
    }


def _utc(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

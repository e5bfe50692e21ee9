"""Factors on a score: an episode's value, its trust, and its age. Pure."""

import math
from datetime import datetime, timedelta

from anamnesis_pipeline.model import RESERVED_SOURCES, EpisodeHead
from anamnesis_pipeline.search.profiles import Decay, Profile
from anamnesis_pipeline.search.retention import Curve, retention, trust_of
from anamnesis_pipeline.search.time_expressions import TimeReference
from anamnesis_pipeline.search.trust import trust_factor
from anamnesis_pipeline.store.memory_layers import AGING, layer_of

LOW_VALUE_FACTOR = 0.9
"""On the score of routine episodes, unless only literal tokens were asked for."""
CORRECTION = "correction"
PRIORITY_TAGS = frozenset({"critical", CORRECTION})
PRIORITY_FACTOR = 1.5
TIME_FACTOR = 2.0
"""Of an episode of the time that the question names (benchmarks/ranking.md)."""
NEAR = timedelta(minutes=3)
"""For a time known to the second, nearer episodes come first: up to twice that factor, falling by e per span."""
CANONICAL_FACTOR = 1.2
"""For an episode that was merged from others."""


def factors_of(head: EpisodeHead, least_value: float, times: TimeReference | None = None) -> dict[str, float]:
    """Return name of a boost -> factor, for those that apply. `times`: the time that the question names."""
    found = {"trust": trust_factor(head)}
    if times is not None and _is_within(head, times):
        nearness = 0.0 if times.moment is None else math.exp(-abs(head.timestamp - times.moment) / NEAR)
        found["time"] = TIME_FACTOR * (1 + nearness)
    is_client = head.source in RESERVED_SOURCES  # the value in its metadata is the client's, not our judgement
    value = None if is_client else head.metadata.get("value")
    if isinstance(value, int | float) and value < least_value:
        found["value"] = LOW_VALUE_FACTOR
    if PRIORITY_TAGS & set(head.tags):
        found["priority"] = PRIORITY_FACTOR
    elif head.metadata.get("consolidated_from"):
        found["priority"] = CANONICAL_FACTOR
    return {name: factor for name, factor in found.items() if factor != 1.0}


def aged(score: float, head: EpisodeHead, profile: Profile, now: datetime) -> float:
    """Return the score of an episode at its age; lasting episodes do not age."""
    if profile.decay is Decay.NONE or layer_of(head, now) not in AGING:
        return score
    days = max(0.0, (now - head.timestamp).total_seconds() / 86_400)
    if profile.decay is Decay.MULTIPLICATIVE:
        return score * (0.5 + 0.5 * math.exp2(-days / profile.half_life_days))
    if profile.decay is Decay.ADDITIVE:
        return score + 0.3 * math.exp(-days / profile.scale_days)
    curve, half_life = Curve(profile.decay.value), timedelta(days=profile.half_life_days)
    kept = retention(timedelta(days=days), trust_of(head), head.retrieval_count, curve, half_life)
    return score * (0.5 + 0.5 * kept)


def _is_within(head: EpisodeHead, times: TimeReference) -> bool:
    if times.session_id and head.session_id != times.session_id:
        return False
    when = head.timestamp
    return (times.since is None or when >= times.since) and (times.until is None or when < times.until)

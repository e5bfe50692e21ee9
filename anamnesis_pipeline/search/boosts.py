"""Factors on a score: an episode's value, its trust, and its age. Pure."""

import math
from datetime import datetime, timedelta

from anamnesis_pipeline.model import RESERVED_SOURCES, EpisodeHead
from anamnesis_pipeline.search.profiles import PROFILES, Decay, Profile
from anamnesis_pipeline.search.retention import Curve, retention, trust_of
from anamnesis_pipeline.search.time_expressions import TimeReference
from anamnesis_pipeline.search.trust import trust_factor
from anamnesis_pipeline.store.memory_layers import AGING, layer_of

CORRECTION = "correction"
PRIORITY_TAGS = frozenset({"critical", CORRECTION})
DECAY_WEIGHTS = {Decay.ADDITIVE: 0.3}
"""How much age counts where a query does not say; 0.5 for the other forms."""
NEAR = timedelta(minutes=3)
"""For a time known to the second, nearer episodes come first: up to twice that factor, falling by e per span."""


def factors_of(
    head: EpisodeHead,
    least_value: float,
    times: TimeReference | None = None,
    profile: Profile = PROFILES["default"],
) -> dict[str, float]:
    """Return name of a boost -> factor, for those that apply. `times`: the time that the question names."""
    found = {"trust": trust_factor(head, profile.curated, profile.chat)}
    if times is not None and _is_within(head, times):
        nearness = 0.0 if times.moment is None else math.exp(-abs(head.timestamp - times.moment) / NEAR)
        found["time"] = profile.named_time * (1 + nearness)
    is_client = head.source in RESERVED_SOURCES  # the value in its metadata is the client's, not our judgement
    value = None if is_client else head.metadata.get("value")
    if isinstance(value, int | float) and value < least_value:
        found["value"] = profile.routine
    if PRIORITY_TAGS & set(head.tags):
        found["priority"] = profile.priority
    elif head.metadata.get("consolidated_from"):
        found["priority"] = profile.merged
    return {name: factor for name, factor in found.items() if factor != 1.0}


def aged(score: float, head: EpisodeHead, profile: Profile, now: datetime) -> float:
    """Return the score of an episode at its age; lasting episodes do not age."""
    if profile.decay is Decay.NONE or layer_of(head, now) not in AGING:
        return score
    days = max(0.0, (now - head.timestamp).total_seconds() / 86_400)
    weight = DECAY_WEIGHTS.get(profile.decay, 0.5) if profile.decay_weight is None else profile.decay_weight
    if profile.decay is Decay.MULTIPLICATIVE:
        return score * (1 - weight + weight * math.exp2(-days / profile.half_life_days))
    if profile.decay is Decay.ADDITIVE:
        return score + weight * math.exp(-days / profile.scale_days)
    curve, half_life = Curve(profile.decay.value), timedelta(days=profile.half_life_days)
    kept = retention(timedelta(days=days), trust_of(head), head.retrieval_count, curve, half_life)
    return score * (1 - weight + weight * kept)


def _is_within(head: EpisodeHead, times: TimeReference) -> bool:
    if times.session_id and head.session_id != times.session_id:
        return False
    when = head.timestamp
    return (times.since is None or when >= times.since) and (times.until is None or when < times.until)

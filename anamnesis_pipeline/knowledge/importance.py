"""How important a memory is, explained factor by factor as engram does. Pure; it ranks nothing (decision 19)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from anamnesis_pipeline.model import HOLDING, Episode, EpisodeHead
from anamnesis_pipeline.search.retention import Curve, half_life_of, retention, trust_of, value_of
from anamnesis_pipeline.store.memory_layers import Layer, layer_of

MAX_CONFIRMED, CONFIRMED = 0.2, 0.05
"""Most that confirmations count, and how much the first ones do: min(MAX_CONFIRMED, CONFIRMED ln(1 + n)), as a share of
the most.
"""
MANY_ACCESSES = 20
"""Accesses that count in full."""
ACTIVATION_DECAY = 0.5
_LAYERS = {
    Layer.WORKING: 0.2,
    Layer.EPISODIC: 0.4,
    Layer.CODEBASE: 0.6,
    Layer.SEMANTIC: 0.8,
    Layer.PROCEDURAL: 1.0,
}
_REACTIONS = {"correction": 1.0, "interruption": 0.5}


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of the importance: its weight, its value in [0, 1], their product, and what it means."""

    name: str
    weight: float
    value: float
    contribution: float
    means: str


@dataclass(frozen=True, slots=True)
class Importance:
    """The sum of the factors' contributions, in [0, 1]."""

    score: float
    factors: tuple[Factor, ...]


def importance_of(episode: Episode, now: datetime, confirmations: int, changes: int) -> Importance:
    """Return the importance of an episode.

    :param confirmations: independent sessions, or instances, that say the same.
    :param changes: how often its status changed.
    """
    age, trust = now - episode.timestamp, trust_of(episode)
    accesses = episode.retrieval_count + episode.read_count
    signals = episode.metadata.get("value_signals")
    told = signals if isinstance(signals, dict) else {}
    days = half_life_of(trust).total_seconds() / 86_400
    confirmed = min(MAX_CONFIRMED, CONFIRMED * math.log1p(confirmations)) / MAX_CONFIRMED
    stable = 1 / (1 + changes) if episode.status in HOLDING else 0.0
    layer = layer_of(episode, now)
    given = (
        ("base", 0.25, value_of(episode), "What was learned or written down in it."),
        ("access", 0.12, min(1.0, math.log1p(accesses) / math.log1p(MANY_ACCESSES)), f"Found or read {accesses}×."),
        (
            "recency",
            0.12,
            retention(age, trust, curve=Curve.L2),
            f"Its half-life is {days:.1f} days, by its trust.",
        ),
        (
            "emotional_valence",
            0.08,
            max((worth for name, worth in _REACTIONS.items() if name in told), default=0.0),
            "Whether the user corrected or interrupted Claude; the mood of words is not measured.",
        ),
        ("stability", 0.08, stable, "It holds, and its status seldom changed." if stable else "It does not hold."),
        ("layer", 0.15, _LAYERS[layer], f"It is in the layer {layer.value}."),
        ("source_trust", 0.10, trust, "Who says it: a person, an instance, a session, a file, or derived text."),
        ("confirmations", 0.10, confirmed, f"Other sessions or instances that say the same: {confirmations}."),
        ("activation", 0.0, _activation(accesses, age.total_seconds() / 86_400), "ACT-R's, shown and not counted."),
    )
    factors = tuple(Factor(n, weight, round(v, 4), round(weight * v, 4), means) for n, weight, v, means in given)
    return Importance(round(sum(each.contribution for each in factors), 4), factors)


def _activation(accesses: int, days: float) -> float:
    """Return ACT-R's base-level activation as a probability, for accesses spread evenly over the age (Petrov 2006)."""
    uses = accesses + 1  # it was written once
    level = math.log(uses / (1 - ACTIVATION_DECAY)) - ACTIVATION_DECAY * math.log(max(days, 1e-3))
    return 1 / (1 + math.exp(-level))


def witness_of(episode: Episode | EpisodeHead) -> tuple[str, str]:
    """Return who says it: a session, an instance, or documents, all of which count as one, since copies and clones of a
    file are no independent sources.
    """
    if episode.session_id:
        return ("session", episode.session_id)
    is_document = "lines" in episode.metadata
    return ("documents", "") if is_document else ("instance", episode.instance)


def confirming(episode: Episode, others: Iterable[EpisodeHead]) -> dict[tuple[str, str], EpisodeHead]:
    """Return witness -> the first of `others` that it says, without the episode's own witness."""
    found: dict[tuple[str, str], EpisodeHead] = {}
    for other in others:
        if (witness := witness_of(other)) != witness_of(episode) and other.episode_id != episode.episode_id:
            found.setdefault(witness, other)
    return found

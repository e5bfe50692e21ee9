"""Named ranking profiles: a number for each stage; 0 or none switches it off. Pure values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from anamnesis_pipeline.search.floor import MIN_ASKED, MIN_UNASKED
from anamnesis_pipeline.search.fusion import FUSION_DEPTH, RRF_K
from anamnesis_pipeline.search.trust import CHAT_FACTOR, CURATED_FACTOR


class Decay(StrEnum):
    """How age lowers a score; lasting memories do not age."""

    NONE = "none"
    MULTIPLICATIVE = "multiplicative"
    """score x (1 - weight + weight x 2^(-age / half life)), weight 0.5, as engram does."""
    ADDITIVE = "additive"
    """score + weight x exp(-age / scale), weight 0.3, as claude-self-reflect does."""
    L2 = "l2"
    """score x (1 - weight + weight x retention), weight 0.5; retention also depends on trust and on how often it was
    shown (`retention.py`).
    """
    HUBER = "huber"
    ELASTIC = "elastic"


@dataclass(frozen=True, slots=True)
class Profile:
    """How much each stage counts. The figures behind the numbers stand in benchmarks/ranking.md."""

    late: float = 0.7
    """Weight of the late interaction order; that of the fused lists is 1."""
    sharpness: float = 2.0
    """How fast a score falls with the distance of its late interaction from the best."""
    neighbours: float = 0.1
    """Share of the better neighbour's score that a passage gets."""
    company: float = 0.5
    """Co-occurrence boost: share of the scores of the same conversation that an episode gets."""
    literal: float = 2.0
    """Weight of the list of literal tokens: an identifier in a question means exactly itself."""
    boosts: bool = True
    """Whether trust, value and priority count."""
    newer_first: bool = True
    """Whether the newer of two statements on the same thing comes first."""
    curated_first: bool = False
    """Whether curated memories precede everything else."""
    floor: float = MIN_ASKED
    """Confidence (`floor.confidence`) below which a question gets no hits."""
    weak_below: float = MIN_ASKED
    """Confidence below which a hit is weak."""
    all_words: bool = True
    """Whether such a question still gets the hits with all its words."""
    rerank: bool = True
    """Whether a configured cross-encoder reorders the first hits."""
    rrf_k: int = RRF_K
    depth: int = FUSION_DEPTH
    curated: float = CURATED_FACTOR
    chat: float = CHAT_FACTOR
    routine: float = 0.9
    """Factor on the score of routine episodes, unless only literal tokens were asked for."""
    priority: float = 1.5
    merged: float = 1.2
    """Factor for an episode that was merged from others."""
    named_time: float = 2.0
    """Factor for an episode of the time that the question names."""
    named_speaker: float = 1.7
    """Factor for posted turns whose speaker the question names, by a conditional logit over LoCoMo's development
    conversations.
    """
    voices: float = 1.0
    """Exponent of the factors by whose words a passage of a transcript holds (`dialogue.voice_factors`)."""
    decay: Decay = Decay.NONE
    decay_weight: float | None = None
    """How much age counts, in [0, 1]; None: as much as the form of `decay` has it."""
    half_life_days: float = 30.0
    scale_days: float = 90.0


PROFILES = {
    "default": Profile(),
    "facts": Profile(curated_first=True),
    "recent": Profile(decay=Decay.MULTIPLICATIVE),
    "context": Profile(floor=MIN_UNASKED, all_words=False, rerank=False),
    "plain": Profile(late=0, neighbours=0, company=0, boosts=False, newer_first=False, floor=-math.inf, rerank=False),
}
"""`facts`: current facts, from curated texts. `recent`: recent events. `context`: quotes for a session's start.
`plain`: the fused lists alone.
"""


def tuned(profile: Profile, numbers: Mapping[str, float]) -> Profile:
    """Return a profile with the numbers of the setting `ranking`. What a profile sets itself stays.

    :param numbers: name of a field -> value. `floor` is also the threshold of weak hits.
    """
    if not numbers:
        return profile
    usual = PROFILES["default"]
    changes: dict[str, Any] = {
        name: value for name, value in numbers.items() if getattr(profile, name) == getattr(usual, name)
    }
    return replace(profile, weak_below=numbers.get("floor", profile.weak_below), **changes)

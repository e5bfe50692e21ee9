"""The memory layer of an episode, by its kind, age, reads and value. Pure.

Layers are computed, not stored: an episode changes layer without a run over all episodes.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, EpisodeHead


class Layer(StrEnum):
    """The layers, as engram names them."""

    WORKING = "working"
    """From the last half hour, and hardly read yet."""
    EPISODIC = "episodic"
    """What happened."""
    SEMANTIC = "semantic"
    """Lasting knowledge: written down to be remembered, or proven useful."""
    PROCEDURAL = "procedural"
    """How something is done."""
    CODEBASE = "codebase"


AGING = frozenset({Layer.WORKING, Layer.EPISODIC})
"""Layers whose scores age may lower; all others last."""
WORKING_FOR = timedelta(minutes=30)
WORKING_BELOW = 2
"""Reads from which an episode leaves the working layer."""
PROVEN_READS = 5
PROVEN_VALUE = 2.8
"""Minimum value: 0.7 of the 4 points of a section written down to be remembered."""
LASTING_KINDS = frozenset(
    {
        "document",
        "section",
        "preference",
        "decision",
        "fact",
        "topic",
        "record",
        "rolling",
        "correction",
        "lesson",
        "error",
        "skill_idea",
        "absent",
    }
)
PINNED = "pinned"
"""Tag of episodes that a person wants to keep: no automatic change touches them."""
LASTING_TAGS = frozenset({PINNED, "canonical"})
CODE, PROCEDURE = "code", "procedure"


def layer_of(episode: Episode | EpisodeHead, now: datetime) -> Layer:
    """Return the layer of an episode."""
    if episode.kind == CODE:
        return Layer.CODEBASE
    if PROCEDURE in (episode.kind, episode.metadata.get("type") if episode.kind == "record" else ""):
        return Layer.PROCEDURAL
    if is_lasting(episode) or _is_proven(episode):
        return Layer.SEMANTIC
    is_new = now - episode.timestamp < WORKING_FOR and episode.read_count < WORKING_BELOW
    return Layer.WORKING if is_new else Layer.EPISODIC


def is_lasting(episode: Episode | EpisodeHead) -> bool:
    """Return whether it was written down to be remembered, or marked as lasting."""
    return episode.kind in LASTING_KINDS or bool(LASTING_TAGS & set(episode.tags)) or "trust" in episode.metadata


def _is_proven(episode: Episode | EpisodeHead) -> bool:
    """Return whether reads and value prove an episode. A `value` that a client posted is not our judgement."""
    value = episode.metadata.get("value") if episode.source not in RESERVED_SOURCES else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value >= PROVEN_VALUE and episode.read_count >= PROVEN_READS

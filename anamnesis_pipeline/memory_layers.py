"""In which layer of memory an episode is: told by what it is, how old, how often read, and what it is worth. Pure.

No layer is stored: an episode moves on the moment it may, without a run that would have to look at every one.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, EpisodeHead


class Layer(StrEnum):
    """The layers, as engram names them."""

    WORKING = "working"
    """Of the last half hour, and hardly read yet."""
    EPISODIC = "episodic"
    """What happened."""
    SEMANTIC = "semantic"
    """What holds: what was written down to be remembered, and what proved worth it."""
    PROCEDURAL = "procedural"
    """How something is done."""
    CODEBASE = "codebase"


AGING = frozenset({Layer.WORKING, Layer.EPISODIC})
"""What age may lower the score of; everything else lasts."""
WORKING_FOR = timedelta(minutes=30)
WORKING_BELOW = 2
"""Times read with which an episode is no longer only at work."""
PROVEN_READS = 5
PROVEN_VALUE = 2.8
"""Points of value: 0.7 of the 4 that a section has which was written down to be remembered."""
LASTING_KINDS = frozenset(
    {
        "document", "section", "preference", "decision", "fact", "topic", "record", "rolling", "correction", "lesson",
        "error",
    }
)  # fmt: skip
LASTING_TAGS = frozenset({"pinned", "canonical"})
CODE, PROCEDURE = "code", "procedure"


def layer_of(episode: Episode | EpisodeHead, now: datetime) -> Layer:
    """The layer that an episode is in."""
    if episode.kind == CODE:
        return Layer.CODEBASE
    if PROCEDURE in (episode.kind, episode.metadata.get("type") if episode.kind == "record" else ""):
        return Layer.PROCEDURAL
    if is_lasting(episode) or _is_proven(episode):
        return Layer.SEMANTIC
    is_new = now - episode.timestamp < WORKING_FOR and episode.read_count < WORKING_BELOW
    return Layer.WORKING if is_new else Layer.EPISODIC


def is_lasting(episode: Episode | EpisodeHead) -> bool:
    """Whether it was written down to be remembered, or somebody said that it is to last."""
    return episode.kind in LASTING_KINDS or bool(LASTING_TAGS & set(episode.tags)) or "trust" in episode.metadata


def _is_proven(episode: Episode | EpisodeHead) -> bool:
    """What a client posted under the name of a value is the client's own, and no judgement of ours."""
    value = episode.metadata.get("value") if episode.source not in RESERVED_SOURCES else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value >= PROVEN_VALUE and episode.read_count >= PROVEN_READS

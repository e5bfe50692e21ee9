"""The trust in a hit, and its weight in the ranking. Pure."""

from enum import StrEnum

from anamnesis_pipeline.model import CHAT, CHAT_ANSWER, RECORD_KIND, RESERVED_SOURCES, Episode, EpisodeHead, Trust

TRANSCRIPT = "transcript"
"""The tier of sessions, below those of documents."""
CURATED_FACTOR = 1.06
"""On the score of curated texts. Fused scores of the first two places of every list are 22 to 21 (`fusion.RRF_K`), so
this gains one place and never two at the top."""
CHAT_TIER = "chat"
"""The lowest tier: a model's text made from the others."""
CHAT_FACTOR = 0.8
_POSTED = RESERVED_SOURCES[0]
_WRITTEN = frozenset({"document", RECORD_KIND})
_VERBATIM = frozenset({"exchange", "subagent"})
"""Kinds whose text is the transcript's own; others are derived."""


class Authority(StrEnum):
    """Which of several contradicting hits is right, the highest first."""

    AUTHORITATIVE = "authoritative"
    """Written to be remembered, and still there: the current state."""
    ARBITRATION = "arbitration"
    """Verbatim and whole text of a session: it settles what was said then."""
    ROUTING = "routing"
    """Everything else: it shows where to look."""


def tier_of(episode: Episode | EpisodeHead) -> str:
    """Return `curated`, `file`, `transcript` or `chat`; empty for posted episodes, regardless of their metadata."""
    if episode.source == _POSTED:
        return ""
    if episode.kind == CHAT_ANSWER and episode.source == CHAT:
        return CHAT_TIER
    trust = episode.metadata.get("trust")
    if isinstance(trust, str) and trust in set(Trust):
        return trust
    return TRANSCRIPT if episode.session_id else ""


def is_logged(episode: Episode | EpisodeHead) -> bool:
    """Return whether an episode is from a session's log, and was not posted, uploaded or chatted."""
    return bool(episode.session_id) and episode.source not in RESERVED_SOURCES


def is_written(episode: Episode | EpisodeHead) -> bool:
    """Return whether an episode was written to be read: posted, part of a document, or drawn from a log by an LLM."""
    return episode.source == _POSTED or episode.kind in _WRITTEN


def authority_of(episode: Episode | EpisodeHead, *, is_whole: bool = False) -> Authority:
    """Return the authority of an episode in a contradiction.

    :param is_whole: its whole text is shown, not only a summary and an excerpt.
    """
    tier = tier_of(episode)
    if tier == Trust.CURATED and episode.status == "active" and episode.source not in RESERVED_SOURCES:
        return Authority.AUTHORITATIVE
    return Authority.ARBITRATION if is_whole and tier == TRANSCRIPT and episode.kind in _VERBATIM else Authority.ROUTING


def trust_factor(episode: Episode | EpisodeHead, curated: float = CURATED_FACTOR, chat: float = CHAT_FACTOR) -> float:
    """Return the factor on the score of an episode."""
    return {Trust.CURATED: curated, CHAT_TIER: chat}.get(tier_of(episode), 1.0)

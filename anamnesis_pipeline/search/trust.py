"""How far a hit may be relied on, and what that counts in the ranking. Pure."""

from enum import StrEnum

from anamnesis_pipeline.document_model import Trust
from anamnesis_pipeline.model import CHAT, CHAT_ANSWER, RESERVED_SOURCES, Episode, EpisodeHead

TRANSCRIPT = "transcript"
"""The tier of what was said in a session, below those of documents."""
CURATED_FACTOR = 1.06
"""On the score of what was written down to be remembered. Fused scores of the first two places of every list are 22 to
21 (`fusion.RRF_K`), so this wins what differs by one place and nothing that differs by two at the top."""
CHAT_TIER = "chat"
"""The lowest tier: what a model made of the others."""
CHAT_FACTOR = 0.8
_POSTED = RESERVED_SOURCES[0]
_VERBATIM = frozenset({"exchange", "subagent"})
"""Kinds whose text is the transcript's own; others were made of it."""


class Authority(StrEnum):
    """Which of several hits that disagree holds, the highest first."""

    AUTHORITATIVE = "authoritative"
    """Written down to be remembered, and still standing there: it is what holds now."""
    ARBITRATION = "arbitration"
    """What was said in a session, word for word and whole: it settles what was said then."""
    ROUTING = "routing"
    """Everything else: it says where to look."""


def tier_of(episode: Episode | EpisodeHead) -> str:
    """`curated`, `file`, `transcript` or `chat`; empty for what somebody posted, whatever its metadata says."""
    if episode.source == _POSTED:
        return ""
    if episode.kind == CHAT_ANSWER and episode.source == CHAT:
        return CHAT_TIER
    trust = episode.metadata.get("trust")
    if isinstance(trust, str) and trust in set(Trust):
        return trust
    return TRANSCRIPT if episode.session_id else ""


def is_logged(episode: Episode | EpisodeHead) -> bool:
    """Return whether an episode is of a session's log, and not of what clients post, upload or chat."""
    return bool(episode.session_id) and episode.source not in RESERVED_SOURCES


def authority_of(episode: Episode | EpisodeHead, *, is_whole: bool = False) -> Authority:
    """What an episode counts where another one says otherwise.

    :param is_whole: all of its text is shown, not only a summary and an excerpt.
    """
    tier = tier_of(episode)
    if tier == Trust.CURATED and episode.status == "active":
        return Authority.AUTHORITATIVE
    return Authority.ARBITRATION if is_whole and tier == TRANSCRIPT and episode.kind in _VERBATIM else Authority.ROUTING


def trust_factor(episode: Episode | EpisodeHead) -> float:
    """What the score of an episode is multiplied with."""
    return {Trust.CURATED: CURATED_FACTOR, CHAT_TIER: CHAT_FACTOR}.get(tier_of(episode), 1.0)

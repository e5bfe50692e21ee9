"""The contract of what a store keeps of consolidation: which episodes stand for which others, and what is to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from anamnesis_pipeline.model import Episode, Passage


class Regime(StrEnum):
    """How an episode came to stand for others."""

    SESSION = "session"
    """It is the newest of a session that says the same; found by a rule, anew whenever the session changes."""
    MERGE = "merge"
    """An LLM wrote it of the others."""


@dataclass(frozen=True, slots=True)
class ChangedSession:
    """A session in which something came, changed or went since it was last settled; `noted` counts how often."""

    session_id: str
    noted: int


@dataclass(frozen=True, slots=True)
class Link:
    """That `canonical` stands for an episode. Once `undone`, no run links the episode again."""

    episode_id: str
    canonical: str
    regime: Regime
    undone: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """How many episodes one write superseded, and how many it made active again."""

    superseded: int = 0
    revived: int = 0


@dataclass(frozen=True, slots=True)
class Unsuperseded:
    """Ids of the episodes that are active again, and of the merged one that went for it; None: there was none."""

    restored: tuple[str, ...]
    retired: str | None = None


class ConsolidationRecords(Protocol):
    """Links between episodes. They outlive the rows of the episodes that they hide: one that is written anew is hidden
    again. When the episode that stands for others is removed, those are active again at once; when the text of one that
    was merged changes or goes, the merged episode, which quotes it, goes in the same transaction.
    """

    def changed(self, limit: int) -> list[ChangedSession]:
        """Sessions to settle, by id; those with an episode that lacks vectors in the active space wait."""

    def changed_count(self) -> int:
        """Sessions to settle, those that wait included."""

    def note_all(self) -> None:
        """Let every session be settled anew: the rule is another one now."""

    def links(self, episode_ids: Sequence[str]) -> dict[str, Link]:
        """Episode id -> its link, undone ones included; for those that have one."""

    def settle(self, session: ChangedSession, canonical_of: Mapping[str, str | None]) -> Settlement:
        """Write which episode of a session stands for each of these, None: none does any more. Links of a merge, undone
        ones and episodes that somebody else superseded stay as they are. The session is settled, unless something
        happened to it since `session` was read. One transaction, idempotent.
        """

    def merge(self, merged: Episode, passages: Sequence[Passage], members: Sequence[Episode]) -> bool:
        """Write an episode that stands for `members`. False, having written nothing, when one of these is not
        active, or has another text than it had, or was unsuperseded before, or the id exists.
        """

    def unsupersede(self, episode_id: str) -> Unsuperseded:
        """Undo a link, for good: of an episode that another of its session stands for, that one; of a merged one, or of
        one of those that it was made of, all of the merge.

        :raises EpisodeNotFound: no such id, or nothing of it is superseded by consolidation.
        """

    def counts(self) -> dict[str, int]:
        """Regime -> episodes that are hidden by it; `undone`: links that somebody undid."""

"""The contract of what a store keeps and reads for the context of sessions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from anamnesis_pipeline.model import Episode

SESSIONS_KEPT = 2_000
"""Sessions of which it is known what they were shown; of more, those that asked last."""
SHOWN_KEPT = 300
"""Items remembered of one session, the latest ones."""
SESSION_EXPIRES = timedelta(days=30)
"""What was shown to a session that did not ask for so long is forgotten."""
TAGGED_AMONG = 2_000
"""Episodes of a tag that are looked through for those of one project, the latest that were stored: what a read costs
does not grow with what is stored."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An item that a session has seen. `passage_id`: the passage that it showed; None: it showed something else."""

    episode_id: str
    passage_id: int | None = None


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """What a session was shown, oldest first, and when it lost what it had before (a compaction); None: never."""

    shown: tuple[Shown, ...] = ()
    restarted_at: datetime | None = None


class ContextRecords(Protocol):
    """What sessions were shown, and the latest of a project. Bounded by the constants above, whatever is asked."""

    def session(self, session_id: str) -> SessionMemory:
        """What this session was shown since it began, or was restarted."""

    def show(self, session_id: str, items: Sequence[Shown], when: datetime) -> set[str]:
        """Note that a session sees these now; the ids of those that it had not seen. Of two calls at once, one gets
        an id. What is beyond the bounds is forgotten.
        """

    def restart(self, session_id: str, when: datetime) -> None:
        """Forget what a session was shown: its context was emptied."""

    def has_project(self, project: str) -> bool:
        """Whether there is an episode of a project, superseded or not; cheap."""

    def newest(self, project: str, kind: str, limit: int, before: datetime | None = None) -> list[Episode]:
        """The newest active episodes of one project and kind, by (timestamp, id), newest first; `before` is exclusive.
        Costs what is returned, not what is stored.
        """

    def newest_tagged(self, project: str, tag: str, limit: int) -> list[Episode]:
        """The newest active episodes of a project with this tag, among the TAGGED_AMONG of the tag that were stored
        last; newest first.
        """

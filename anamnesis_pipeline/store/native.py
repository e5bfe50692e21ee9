"""What rules call of the subjects that each engine still has in a form of its own: whole episodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from anamnesis_pipeline.model import Episode, Passage

Status = tuple[str, str | None]
"""`active` or `superseded`, and the episode that supersedes, if any."""


class Native(Protocol):
    """Work within the transaction of `tables`, which are those of the engine."""

    def set_status(self, tables: Any, status_of: Mapping[str, Status]) -> None:
        """Let stored episodes have these statuses. Superseded ones keep the time since when they are."""

    def rewrite_episode(self, tables: Any, episode: Episode, passages: Sequence[Passage]) -> None:
        """Write an episode that is stored. A merged episode that quotes another text of it goes."""

    def remove_episodes(self, tables: Any, episode_ids: Iterable[str]) -> None:
        """Remove those of these episodes that are stored, with all that hangs on them; no tombstone stays."""

    def drop_session_records(self, tables: Any, sessions: Iterable[tuple[str, str]]) -> None:
        """Remove every revision of the records that these sessions (source, id) are in."""

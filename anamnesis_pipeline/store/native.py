"""What rules call of the subjects that each engine still has in a form of its own: whole episodes."""

from collections.abc import Iterable
from typing import Any, Protocol


class Native(Protocol):
    """Work within the transaction of `tables`, which are those of the engine."""

    def remove_episodes(self, tables: Any, episode_ids: Iterable[str]) -> None:
        """Remove those of these episodes that are stored, with all that hangs on them; no tombstone stays."""

    def drop_session_records(self, tables: Any, sessions: Iterable[tuple[str, str]]) -> None:
        """Remove every revision of the records that these sessions (source, id) are in."""

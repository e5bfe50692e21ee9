"""Whole episodes in SQLite, as rules call them."""

from collections.abc import Iterable

from anamnesis_pipeline.store.sqlite import episodes
from anamnesis_pipeline.store.sqlite.engine import SqliteTables


class SqliteNative:
    """See `Native`."""

    def remove_episodes(self, tables: SqliteTables, episode_ids: Iterable[str]) -> None:
        """See `Native`."""
        for episode_id in episode_ids:
            episodes.remove_episode(tables.connection, episode_id)

    def drop_session_records(self, tables: SqliteTables, sessions: Iterable[tuple[str, str]]) -> None:
        """See `Native`."""
        for source, session_id in sessions:
            episodes.drop_session_records(tables.connection, source, session_id)

"""Whole episodes in MongoDB, as rules call them."""

from collections.abc import Iterable

from anamnesis_pipeline.store.mongo import episode_writes
from anamnesis_pipeline.store.mongo.engine import MongoTables


class MongoNative:
    """See `Native`."""

    def remove_episodes(self, tables: MongoTables, episode_ids: Iterable[str]) -> None:
        """See `Native`."""
        episode_writes.remove_episodes(tables.collections, episode_ids)

    def drop_session_records(self, tables: MongoTables, sessions: Iterable[tuple[str, str]]) -> None:
        """See `Native`."""
        episode_writes.drop_session_records(tables.collections, sessions)

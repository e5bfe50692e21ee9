"""Whole episodes in MongoDB, as rules call them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.store.mongo import episode_writes
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_docs import CHANGED_FIELDS, change, status_fields
from anamnesis_pipeline.store.native import Status
from anamnesis_pipeline.store.values import instant


class MongoNative:
    """See `Native`."""

    def set_status(self, tables: MongoTables, status_of: Mapping[str, Status]) -> None:
        """See `Native`."""
        now = instant(datetime.now(UTC))
        held = list(tables.collections["episodes"].among("_id", status_of, CHANGED_FIELDS))
        change(tables.collections, held, lambda each: status_fields(each, *status_of[each["_id"]], now))

    def rewrite_episode(self, tables: MongoTables, episode: Episode, passages: Sequence[Passage]) -> None:
        """See `Native`."""
        episode_writes.drop_outdated_merges(tables.collections, {episode.episode_id: episode.raw_exchange})
        episode_writes.write_documents(tables.collections, [(episode, passages)])

    def remove_episodes(self, tables: MongoTables, episode_ids: Iterable[str]) -> None:
        """See `Native`."""
        episode_writes.remove_episodes(tables.collections, episode_ids)

    def drop_session_records(self, tables: MongoTables, sessions: Iterable[tuple[str, str]]) -> None:
        """See `Native`."""
        episode_writes.drop_session_records(tables.collections, sessions)

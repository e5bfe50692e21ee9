"""Whole episodes in SQLite, as rules call them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from anamnesis_pipeline.model import Episode, Passage
from anamnesis_pipeline.store.native import Status
from anamnesis_pipeline.store.sqlite import episode_rows, episodes, passage_rows, pending
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.values import instant


class SqliteNative:
    """See `Native`."""

    def set_status(self, tables: SqliteTables, status_of: Mapping[str, Status]) -> None:
        """See `Native`."""
        now = instant(datetime.now(UTC))
        tables.connection.executemany(
            f"{episode_rows.SET_STATUS} WHERE episode_id = ?3",
            [(*status, episode_id, now) for episode_id, status in status_of.items()],
        )

    def rewrite_episode(self, tables: SqliteTables, episode: Episode, passages: Sequence[Passage]) -> None:
        """See `Native`."""
        episodes.drop_merge(tables.connection, episode.episode_id, unless=episode.raw_exchange)
        episode_key = episode_rows.write_episode(tables.connection, episode, passages)
        passage_rows.write_passages(tables.connection, episode_key, passages)
        pending.refresh(tables.connection, [episode_key])

    def remove_episodes(self, tables: SqliteTables, episode_ids: Iterable[str]) -> None:
        """See `Native`."""
        for episode_id in episode_ids:
            episodes.remove_episode(tables.connection, episode_id)

    def drop_session_records(self, tables: SqliteTables, sessions: Iterable[tuple[str, str]]) -> None:
        """See `Native`."""
        for session in sessions:
            episodes.drop_session_records(tables.connection, *session)

"""Counts over all episodes in SQLite; see `OverviewRecords`."""

from anamnesis_pipeline.memory_layers import LASTING_KINDS, LASTING_TAGS, WORKING_BELOW
from anamnesis_pipeline.store.overview_base import SourceState, Tally
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import json_list, moment

_TALLY = """SELECT count(*), coalesce(sum(status = 'active'), 0),
        coalesce(sum(status = 'active' AND (edited > 0 OR kind IN (SELECT value FROM json_each(:kinds))
            OR episode_key IN (SELECT episode_key FROM episode_tags
                WHERE tag IN (SELECT value FROM json_each(:tags))))), 0),
        coalesce(sum(superseded_by IS NOT NULL), 0), coalesce(sum(retrieval_count >= :confirmed), 0),
        coalesce(sum(retrieval_count), 0)
    FROM episodes"""


class SqliteOverview:
    """See `OverviewRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def sources(self) -> dict[str, SourceState]:
        """See `OverviewRecords.sources`."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT source, count(*), max(timestamp) FROM episodes GROUP BY source")
            return {source: SourceState(count, moment(newest)) for source, count, newest in rows}

    def tally(self) -> Tally:
        """See `OverviewRecords.tally`."""
        given = {
            "kinds": json_list(sorted(LASTING_KINDS)), "tags": json_list(sorted(LASTING_TAGS)),
            "confirmed": WORKING_BELOW,
        }  # fmt: skip
        with self._database.read() as connection:
            return Tally(*connection.execute(_TALLY, given).fetchone())

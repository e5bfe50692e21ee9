"""Counts over all episodes in SQLite; see `OverviewRecords`."""

# ruff: noqa: S608
# only names of ours enter the SQL

from datetime import date

from anamnesis_pipeline.memory_layers import LASTING_KINDS, LASTING_TAGS, WORKING_BELOW
from anamnesis_pipeline.model import EXCLUDED, Where
from anamnesis_pipeline.store.overview_base import EVERYTHING, Census, SourceCounts, SourceState, Tally
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.filters import condition
from anamnesis_pipeline.store.values import json_list, moment

_TALLY = """SELECT count(*), coalesce(sum(status = 'active'), 0),
        coalesce(sum(status = 'active' AND (edited > 0 OR kind IN (SELECT value FROM json_each(:kinds))
            OR episode_key IN (SELECT episode_key FROM episode_tags
                WHERE tag IN (SELECT value FROM json_each(:tags))))), 0),
        coalesce(sum(superseded_by IS NOT NULL), 0), coalesce(sum(read_count >= :confirmed), 0),
        coalesce(sum(retrieval_count), 0)
    FROM episodes"""


_COUNTS = {
    "files": "SELECT count(*) FROM files WHERE {of}",
    "files_gone": "SELECT count(*) FROM files WHERE gone AND {of}",
    "files_unread": f"""SELECT count(*) FROM files
        WHERE unread <> '' AND unread NOT GLOB '{EXCLUDED}*' AND NOT gone AND {{of}}""",
    "bytes": 'SELECT coalesce(sum("offset"), 0) FROM files WHERE {of}',
    "lines": "SELECT coalesce(sum(lines), 0) FROM files WHERE {of}",
    "unparsed_lines": "SELECT coalesce(sum(lines - max(parsed_lines, 0)), 0) FROM files WHERE {of}",
    "messages": "SELECT count(*) FROM messages WHERE canonical = '' AND {of}",
    "occurrences": "SELECT count(*) FROM occurrences WHERE {of}",
    "dead_letters": "SELECT count(*) FROM dead_letters WHERE {of}",
    "exchanges": "SELECT count(*) FROM (SELECT DISTINCT source, exchange_id FROM parts WHERE {of})",
    "parts": "SELECT count(*) FROM parts WHERE {of}",
    "open_parts": "SELECT count(*) FROM parts WHERE closed = 0 AND {of}",
    "kept_away": """SELECT count(*) FROM (
            SELECT part_id FROM parts WHERE held_by IS NOT NULL
            UNION SELECT p.part_id FROM tombstones t JOIN parts p ON p.part_id = t.episode_id
        ) JOIN parts USING (part_id)
        WHERE NOT EXISTS (SELECT 1 FROM episodes e WHERE e.episode_id = part_id) AND {of}""",
    "summaries": "SELECT count(*) FROM parts WHERE summarized_hash IS NOT NULL AND {of}",
    "episodes": "SELECT count(*) FROM episodes WHERE {of}",
    "passages": "SELECT coalesce(sum(passages), 0) FROM episodes WHERE {of}",
}
"""Each reads an index or the small `files` table, never texts."""


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

    def census(self, where: Where = EVERYTHING) -> Census:
        """See `OverviewRecords.census`."""
        terms, values = condition(where)
        of = f"FROM episodes e WHERE {terms}"
        with self._database.read() as connection:
            episodes, retrievals = connection.execute(
                f"SELECT count(*), coalesce(sum(e.retrieval_count), 0) {of}", values
            ).fetchone()
            projects, instances = (
                dict(connection.execute(f"SELECT e.{name}, count(*) {of} GROUP BY 1 ORDER BY 2 DESC, 1", values))
                for name in ("project", "instance")
            )
        return Census(episodes, retrievals, projects, instances)

    def counts(self, source: str | None = None) -> SourceCounts:
        """See `OverviewRecords.counts`."""
        of = "1" if source is None else "source = :source"
        with self._database.read() as connection:
            return SourceCounts(
                **{
                    name: connection.execute(sql.format(of=of), {"source": source}).fetchone()[0]
                    for name, sql in _COUNTS.items()
                }
            )

    def days(self, where: Where) -> dict[date, int]:
        """See `OverviewRecords.days`."""
        terms, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT substr(e.timestamp, 1, 10), count(*) FROM episodes e WHERE {terms}
                    GROUP BY 1 ORDER BY 1""",
                values,
            )
            return {date.fromisoformat(day): count for day, count in rows}

    def most_read(self, where: Where, limit: int) -> list[str]:
        """See `OverviewRecords.most_read`."""
        terms, values = condition(where)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT e.episode_id FROM episodes e WHERE e.read_count > 0 AND {terms}
                    ORDER BY e.read_count DESC, e.last_retrieved DESC, e.episode_id LIMIT ?""",
                (*values, limit),
            )
            return [name for (name,) in rows]

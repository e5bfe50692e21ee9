"""Removing texts for good, and writing them anew, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from anamnesis_pipeline.model import Episode, Part, Passage
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.forget_base import CachedReply, Selection
from anamnesis_pipeline.store.records import llm, typed
from anamnesis_pipeline.store.records.files import of_files
from anamnesis_pipeline.store.records.parts import PART_FIELDS, publication_hash, read_part, read_parts, write_parts
from anamnesis_pipeline.store.records.summaries import rewrite_summary
from anamnesis_pipeline.store.sqlite import episode_rows, passage_rows, pending
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.sqlite.episodes import drop_merge, drop_session_records
from anamnesis_pipeline.store.sqlite.scrubbing import Scrubbing
from anamnesis_pipeline.store.values import instant, json_list
from anamnesis_pipeline.summary_model import Summary

PARTS_PER_WRITE = 50
"""A part is at most some 4,000 characters, so a write stays short."""

_OF_EPISODES = {
    "id": "e.episode_id", "session": "t.session_id", "project": "e.project", "time": "e.timestamp", "path": "t.path",
    "source": "e.source",
}  # fmt: skip
_OF_PARTS = {
    "id": "p.part_id", "session": "p.session_id", "project": "p.project", "time": "p.started_at",
    "source": "p.source",
    "path": "s.root || CASE WHEN s.folder IN ('', '.') THEN '' ELSE '/' || s.folder END || '/' || p.path",
}  # fmt: skip
"""Where the two kinds of rows have what a `Selection` filters by. The path of a part is relative to its source."""


class SqliteForgetting:
    """See `ForgetRecords`."""

    def __init__(self, database: Database, scrubbing: Scrubbing) -> None:
        self._database = database
        self.scrub = scrubbing.scrub

    def matching(self, what: Selection) -> list[str]:
        """See `ForgetRecords.matching`."""
        of_episodes, episode_values = _condition(what, _OF_EPISODES)
        of_parts, part_values = _condition(what, _OF_PARTS)
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT e.episode_id, e.timestamp FROM episodes e JOIN episode_texts t USING (episode_key)
                        WHERE {of_episodes}
                    UNION SELECT p.part_id, p.started_at FROM parts p JOIN sources s ON s.key = p.source
                        WHERE {of_parts} AND p.part_id NOT IN (SELECT episode_id FROM episodes)
                    ORDER BY 2 DESC, 1""",
                (*episode_values, *part_values),
            )
            return [key for key, _ in rows]

    def forgotten(self, keys: Sequence[str]) -> set[str]:
        """See `ForgetRecords.forgotten`."""
        with self._database.read() as connection:
            return typed.forbidden(SqliteTables(connection), keys)

    def has_forgotten(self, begin: str = "") -> bool:
        """See `ForgetRecords.has_forgotten`."""
        with self._database.read() as connection:
            query = (
                "SELECT 1 FROM tombstone_keys WHERE message_key >= ?1 AND message_key < ?1 || char(0x10FFFF) LIMIT 1"
            )
            return connection.execute(query, (begin,)).fetchone() is not None

    def aliases_of(self, keys: Sequence[str]) -> dict[str, str]:
        """See `ForgetRecords.aliases_of`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT key, canonical FROM messages
                    WHERE canonical <> '' AND canonical IN (SELECT value FROM json_each(?))""",
                (json_list(keys),),
            )
            return dict(rows.fetchall())

    def bury(self, keys_of: Mapping[str, Iterable[str]]) -> None:
        """See `ForgetRecords.bury`."""
        now = instant(datetime.now(UTC))
        for batch in batches([(key, episode_id) for episode_id, keys in keys_of.items() for key in ("", *keys)]):
            with self._database.write() as connection:
                connection.executemany(
                    "INSERT INTO tombstones (episode_id, deleted_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    [(episode_id, now) for _, episode_id in batch],
                )
                connection.executemany(
                    "INSERT INTO tombstone_keys VALUES (?, ?) ON CONFLICT DO NOTHING", [row for row in batch if row[0]]
                )

    def parts(self, part_ids: Sequence[str]) -> list[Part]:
        """See `ForgetRecords.parts`."""
        with self._database.read() as connection:
            return sorted(read_parts(SqliteTables(connection), part_ids).values(), key=lambda part: part.part_id)

    def parts_of_files(self, files: Iterable[tuple[str, str]]) -> list[Part]:
        """See `ForgetRecords.parts_of_files`."""
        with self._database.read() as connection:
            rows = of_files(SqliteTables(connection)["parts"], set(files), PART_FIELDS)
            return sorted(map(read_part, rows), key=lambda part: (part.source, part.path, part.ordinal, part.part_id))

    def parts_after(self, part_id: str, limit: int) -> list[Part]:
        """See `ForgetRecords.parts_after`."""
        with self._database.read() as connection:
            parts = SqliteTables(connection)["parts"]
            rows = parts.find({"part_id": {"$gt": part_id}}, PART_FIELDS, order=["part_id"], limit=limit)
            return list(map(read_part, rows))

    def replace_parts(self, parts: Sequence[Part], *, resummarize: bool = False) -> int:
        """See `ForgetRecords.replace_parts`."""
        replaced = 0
        for batch in batches(parts, PARTS_PER_WRITE):
            with self._database.write() as connection:
                part_ids = [part.part_id for part in batch]
                llm.void(SqliteTables(connection), part_ids)
                if resummarize:
                    llm.withdraw(SqliteTables(connection), part_ids)
                    _delete(connection, "summaries", part_ids)
                replaced += sum(_replace_part(connection, part, resummarize=resummarize) for part in batch)
        return replaced

    def remove_parts(self, part_ids: Sequence[str]) -> int:
        """See `ForgetRecords.remove_parts`."""
        removed = 0
        for batch in batches(part_ids, PARTS_PER_WRITE):
            with self._database.write() as connection:
                llm.withdraw(SqliteTables(connection), batch)
                _delete(connection, "summaries", batch)
                removed += _delete(connection, "parts", batch)
        return removed

    def remove_file(self, source: str, path: str) -> None:
        """See `ForgetRecords.remove_file`."""
        with self._database.write() as connection:
            for table in ("frames", "dead_letters", "sightings", "buried_sections", "files"):
                connection.execute(f"DELETE FROM {table} WHERE source = ? AND path = ?", (source, path))

    def rewrite_episode(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """See `ForgetRecords.rewrite_episode`."""
        episode, passages = episode_values.storable(episode), episode_values.storable_passages(passages)
        with self._database.write() as connection:
            row = connection.execute(
                "SELECT raw_exchange FROM episodes JOIN episode_texts USING (episode_key) WHERE episode_id = ?",
                (episode.episode_id,),
            ).fetchone()
            if row is None:
                return False
            if row[0] != episode.raw_exchange:
                llm.void(SqliteTables(connection), [episode.episode_id])
                drop_merge(connection, episode.episode_id)
            episode_key = episode_rows.write_episode(connection, episode, passages)
            passage_rows.write_passages(connection, episode_key, passages)
            pending.refresh(connection, [episode_key])
        return True

    def rewrite_summary(self, before: Summary, after: Summary) -> bool:
        """See `ForgetRecords.rewrite_summary`."""
        with self._database.write() as connection:
            return rewrite_summary(SqliteTables(connection), before, after)

    def replies_after(self, key: str, limit: int) -> list[CachedReply]:
        """See `ForgetRecords.replies_after`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT key, reply, backend, model FROM llm_replies WHERE key > ? ORDER BY key LIMIT ?", (key, limit)
            )
            return [CachedReply(*row) for row in rows]

    def keeps(self) -> list[str]:
        """See `ForgetRecords.keeps`."""
        return []


def _condition(what: Selection, column: Mapping[str, str]) -> tuple[str, list[str]]:
    """The filters as SQL over one of the two kinds of rows, and their values in order."""
    terms: list[tuple[str, tuple[str, ...]]] = []
    if what.ids is not None:
        terms.append((f"{column['id']} IN (SELECT value FROM json_each(?))", (json_list(what.ids),)))
    if what.session_id:
        terms.append((f"{column['session']} = ?", (what.session_id,)))
    if what.path:
        path, folder = column["path"], f"{what.path.rstrip('/')}/"
        terms.append((f"({path} = ? OR substr({path}, 1, length(?)) = ?)", (what.path, folder, folder)))
    if what.sources is not None:
        terms.append((f"{column['source']} IN (SELECT value FROM json_each(?))", (json_list(what.sources),)))
    if what.projects:
        terms.append((f"{column['project']} IN (SELECT value FROM json_each(?))", (json_list(what.projects),)))
    if what.since is not None:
        terms.append((f"{column['time']} >= ?", (instant(what.since),)))
    if what.until is not None:
        terms.append((f"{column['time']} < ?", (instant(what.until),)))
    sql = " AND ".join(term for term, _ in terms) or "1"
    return sql, [value for _, values in terms for value in values]


def _delete(connection: sqlite3.Connection, table: str, part_ids: Sequence[str]) -> int:
    return connection.execute(
        f"DELETE FROM {table} WHERE part_id IN (SELECT value FROM json_each(?))", (json_list(part_ids),)
    ).rowcount


def _replace_part(connection: sqlite3.Connection, part: Part, *, resummarize: bool) -> bool:
    """A summary that stays is noted as being of the new text: it is the same text under other masks. One of an even
    older text goes: nobody reads it any more.
    """
    row = connection.execute("SELECT content_hash FROM parts WHERE part_id = ?", (part.part_id,)).fetchone()
    if row is None:
        return False
    connection.execute(
        "UPDATE summaries SET content_hash = ? WHERE part_id = ? AND content_hash = ?",
        (part.content_hash, part.part_id, row[0]),
    )
    connection.execute(
        "DELETE FROM summaries WHERE part_id = ? AND content_hash <> ?", (part.part_id, part.content_hash)
    )
    write_parts(SqliteTables(connection), [part])
    connection.execute("UPDATE parts SET published_hash = NULL WHERE part_id = ?", (part.part_id,))
    drop_session_records(connection, part.source, part.session_id)
    if resummarize:
        connection.execute(
            "UPDATE parts SET summarized_hash = NULL, wanted_hash = ? WHERE part_id = ?",
            (publication_hash(part.content_hash, None), part.part_id),
        )
    return True

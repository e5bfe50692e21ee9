"""Sources, file cursors, archive frames, message keys and parts in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from anamnesis_pipeline.archive_model import ArchiveFrame, DeadLetter
from anamnesis_pipeline.message_keys import agent_key
from anamnesis_pipeline.model import EXCLUDED, FileCursor, Part, Source
from anamnesis_pipeline.store import part_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.ingest_base import ParsedChunk, SourceCounts
from anamnesis_pipeline.store.records.archive import ArchiveRecords, NewFrames
from anamnesis_pipeline.store.sqlite import message_rows, part_rows, session_rows, typed_rows
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway, SqliteTables
from anamnesis_pipeline.store.sqlite.part_rows import PART_COLUMNS
from anamnesis_pipeline.store.sqlite.schema import INCOMPLETE
from anamnesis_pipeline.store.sqlite.session_notes import IS_OPEN
from anamnesis_pipeline.store.sqlite.summary_records import SqliteSummaries
from anamnesis_pipeline.store.sqlite.summary_rows import read_summary
from anamnesis_pipeline.store.values import clean, instant, json_list
from anamnesis_pipeline.summary_model import Summary

FILE_COLUMNS = """source, path, device, inode, size, mtime_ns, head_hash, head_bytes, "offset", generation, lines,
    parsed_lines, parser_state, gone, version, first_mtime_ns, unread"""
VANISHED = """SELECT f.* FROM files f WHERE f.gone AND EXISTS (
    SELECT 1 FROM sightings s WHERE s.source = f.source AND s.path = f.path AND s.present)"""
"""Files that are gone and whose sections still count as present."""
_PAGE = 50
"""Parts decompressed at a time while looking for some that no tombstone forbids."""

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


class SqliteIngest(ArchiveRecords, SqliteSummaries):
    """See `IngestRecords`."""

    def __init__(self, database: Database) -> None:
        super().__init__(SqliteGateway(database))
        self._database = database

    def put_sources(self, sources: Sequence[Source]) -> int:
        """See `IngestRecords.put_sources`."""
        new = 0
        for batch in batches(sources):
            with self._database.write() as connection:
                new += sum(_put_source(connection, source) for source in batch)
        return new

    def sources(self) -> list[Source]:
        """See `IngestRecords.sources`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT key, machine, root, folder, kind, spec FROM sources ORDER BY key"
            ).fetchall()
        return [Source(*row) for row in rows]

    def cursors(self, source: str) -> dict[str, FileCursor]:
        """See `IngestRecords.cursors`."""
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {FILE_COLUMNS} FROM files WHERE source = ? ORDER BY path", (source,))
            return {row[1]: read_cursor(row) for row in rows}

    def cursor(self, source: str, path: str) -> FileCursor | None:
        """See `IngestRecords.cursor`."""
        with self._database.read() as connection:
            query = f"SELECT {FILE_COLUMNS} FROM files WHERE source = ? AND path = ?"
            row = connection.execute(query, (source, path)).fetchone()
            return read_cursor(row) if row else None

    def incomplete_files(self) -> list[FileCursor]:
        """See `IngestRecords.incomplete_files`."""
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {FILE_COLUMNS} FROM files WHERE {INCOMPLETE} ORDER BY source, path")
            return list(map(read_cursor, rows))

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        """See `IngestRecords.commit_crawl`."""
        with self._database.write() as connection:
            return _commit_crawl(connection, before, after, frame)

    def commit_crawls(self, crawled: Sequence[tuple[FileCursor | None, FileCursor, ArchiveFrame | None]]) -> list[bool]:
        """See `IngestRecords.commit_crawls`."""
        done: list[bool] = []
        for batch in batches(crawled, MAX_ROWS_PER_WRITE // 2):
            with self._database.write() as connection:
                done += [_commit_crawl(connection, *each) for each in batch]
        return done

    def mark_gone(self, source: str, paths: Iterable[str]) -> int:
        """See `IngestRecords.mark_gone`."""
        newly = 0
        for batch in batches(sorted(set(paths))):
            with self._database.write() as connection:
                newly += connection.execute(
                    """UPDATE files SET gone = 1, version = version + 1
                        WHERE source = ? AND gone = 0 AND path IN (SELECT value FROM json_each(?))""",
                    (source, json_list(batch)),
                ).rowcount
        return newly

    def known_keys(self, keys: Sequence[str], reader: tuple[str, str] | None = None) -> set[str]:
        """See `IngestRecords.known_keys`."""
        with self._database.read() as connection:
            return message_rows.read_known(connection, keys, reader) | typed_rows.forbidden(connection, keys)

    def claims_near(self, entries: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `IngestRecords.claims_near`."""
        with self._database.read() as connection:
            return typed_rows.claims_near(connection, entries)

    def part(self, part_id: str) -> Part | None:
        """See `IngestRecords.part`."""
        with self._database.read() as connection:
            row = connection.execute(
                f"""SELECT {PART_COLUMNS} FROM parts
                    WHERE part_id = ? AND part_id NOT IN (SELECT episode_id FROM tombstones)""",
                (part_id,),
            ).fetchone()
        return None if row is None else part_values.read_part(row)

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        """See `IngestRecords.commit_parsed`.

        A key that another file came to own, or that was tombstoned, since the chunk was parsed also means that
        another run was faster: written anyway, the same message would end up in two parts.
        """
        before, after = chunk.before, chunk.after
        with self._database.write() as connection:
            if stored_version(connection, before) != before.version or _is_contested(connection, chunk):
                return False
            write_cursor(connection, replace(after, version=before.version + 1))
            message_rows.write_messages(connection, chunk)
            for part in chunk.parts:
                part_rows.write_part(connection, part)
            session_rows.place_agents(connection, (part.session_id for part in chunk.parts))
        return True

    def session_start(self, session_id: str) -> tuple[str, str] | None:
        """See `IngestRecords.session_start`."""
        with self._database.read() as connection:
            return session_rows.session_start(connection, session_id)

    def projects_of(self, part_ids: Sequence[str]) -> set[str]:
        """See `IngestRecords.projects_of`."""
        with self._database.read() as connection:
            return session_rows.projects_of(connection, part_ids)

    def move_parts(self, source: str, paths: Sequence[str], cwd: str, before: str, after: str) -> int:
        """See `IngestRecords.move_parts`."""
        moved, last = 0, MAX_ROWS_PER_WRITE
        while last == MAX_ROWS_PER_WRITE and before != after:
            with self._database.write() as connection:
                last = session_rows.move_parts(connection, source, paths, cwd, clean(before), clean(after))
            moved += last
        return moved

    def name_agent(self, source: str, path: str, agent_type: str, origin: str) -> int:
        """See `IngestRecords.name_agent`."""
        named, last = 0, MAX_ROWS_PER_WRITE
        while last == MAX_ROWS_PER_WRITE:
            with self._database.write() as connection:
                last = connection.execute(
                    f"""UPDATE parts SET agent_type = ?3, origin = ?4, published_hash = NULL WHERE part_id IN (
                        SELECT part_id FROM parts
                        WHERE source = ?1 AND path = ?2 AND (agent_type, origin) <> (?3, ?4)
                        LIMIT {MAX_ROWS_PER_WRITE})""",
                    (source, path, clean(agent_type), clean(origin)),
                ).rowcount
            named += last
        return named

    def renew_session(self, session_id: str) -> int:
        """See `IngestRecords.renew_session`."""
        renewed, last = 0, MAX_ROWS_PER_WRITE
        while last == MAX_ROWS_PER_WRITE:
            with self._database.write() as connection:
                last = connection.execute(
                    f"""UPDATE parts SET published_hash = NULL WHERE part_id IN (
                        SELECT part_id FROM parts WHERE session_id = ? AND published_hash IS NOT NULL
                        LIMIT {MAX_ROWS_PER_WRITE})""",
                    (session_id,),
                ).rowcount
            renewed += last
        return renewed

    def link_agents(self, source: str) -> int:
        """See `IngestRecords.link_agents`."""
        linked, unlinked = 0, "source = ? AND kind = 'subagent' AND origin = ''"
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT DISTINCT session_id, agent_id FROM parts WHERE {unlinked}", (source,))
            agents = {agent_key(session_id, agent_id): (session_id, agent_id) for session_id, agent_id in rows}
            calls = message_rows.read_calls(connection, agents)
        for batch in batches(list(calls.items())):
            with self._database.write() as connection:
                for key, call in batch:
                    linked += connection.execute(
                        f"""UPDATE parts SET origin = ?, published_hash = NULL
                            WHERE {unlinked} AND session_id = ? AND agent_id = ?""",
                        (call, source, *agents[key]),
                    ).rowcount
        return linked

    def dead_letters(self, source: str | None = None, limit: int = 1_000) -> list[DeadLetter]:
        """See `IngestRecords.dead_letters`."""
        with self._database.read() as connection:
            return message_rows.read_dead_letters(connection, source, limit)

    def close_idle_parts(self, source: str, ended_before: datetime) -> int:
        """See `IngestRecords.close_idle_parts`."""
        closed, last = 0, MAX_ROWS_PER_WRITE
        while last == MAX_ROWS_PER_WRITE:
            with self._database.write() as connection:
                last = connection.execute(
                    f"""UPDATE parts SET closed = 1 WHERE part_id IN (
                        SELECT part_id FROM parts WHERE source = ? AND closed = 0 AND ended_at < ?
                        LIMIT {MAX_ROWS_PER_WRITE})""",
                    (source, instant(ended_before)),
                ).rowcount
            closed += last
        return closed

    def unfinished_sources(self, ended_before: datetime) -> set[str]:
        """See `IngestRecords.unfinished_sources`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT source FROM files WHERE parsed_lines < lines
                    UNION SELECT source FROM parts WHERE closed = 0 AND ended_at < ?
                    UNION SELECT source FROM unsettled UNION SELECT source FROM ({VANISHED})
                    UNION SELECT source FROM session_notes n JOIN sources s ON s.key = n.source
                        WHERE noted > 0 AND s.kind LIKE 'claude%' AND NOT {IS_OPEN}""",
                (instant(ended_before),),
            )
            return _with_unpublished(connection, {source for (source,) in rows})

    def unread_sources(self) -> set[str]:
        """See `IngestRecords.unread_sources`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT source FROM files WHERE parsed_lines < lines
                    UNION SELECT key FROM sources WHERE kind LIKE 'claude%' AND key NOT IN (SELECT source FROM files)"""
            )
            return _with_unpublished(connection, {source for (source,) in rows})

    def parts_to_publish(self, source: str, limit: int) -> list[tuple[Part, Summary | None]]:
        """See `IngestRecords.parts_to_publish`. A summary of an earlier version of the part counts as none."""
        found: list[tuple[Part, Summary | None]] = []
        with self._database.read() as connection:
            for part in _unpublished(connection, source):
                if len(found) == limit:
                    break
                if not _is_forbidden(connection, part):
                    summary = read_summary(connection, part.part_id)
                    found.append((part, summary if summary and summary.content_hash == part.content_hash else None))
        return found

    def counts(self, source: str | None = None) -> SourceCounts:
        """See `IngestRecords.counts`."""
        of = "1" if source is None else "source = :source"
        with self._database.read() as connection:
            return SourceCounts(
                **{
                    name: connection.execute(sql.format(of=of), {"source": source}).fetchone()[0]
                    for name, sql in _COUNTS.items()
                }
            )


_UNPUBLISHED = "published_hash IS NOT wanted_hash AND held_by IS NULL"


def _commit_crawl(
    connection: sqlite3.Connection, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None
) -> bool:
    stored = stored_version(connection, after)
    if stored != (before.version if before else None):
        return False
    frames = NewFrames(SqliteTables(connection), [] if frame is None else [(after.source, after.path, frame)])
    if frame is not None and not frames.accept(after.source, after.path, frame):
        return False
    version = (stored or 0) + 1
    write_cursor(connection, after if after.version == version else replace(after, version=version))
    frames.write()
    return True


def _put_source(connection: sqlite3.Connection, source: Source) -> bool:
    is_new = connection.execute("SELECT 1 FROM sources WHERE key = ?", (source.key,)).fetchone() is None
    connection.execute(
        """INSERT INTO sources (key, machine, root, folder, kind, spec) VALUES (?, ?, ?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET machine = excluded.machine, root = excluded.root,
                folder = excluded.folder, kind = excluded.kind, spec = excluded.spec""",
        (source.key, source.machine, source.root, source.folder, source.kind, source.spec),
    )
    return is_new


def read_cursor(row: Sequence[Any]) -> FileCursor:
    """A row of `FILE_COLUMNS`."""
    source, path, device, inode, *middle, gone, version, first_mtime_ns, unread = row
    values: list[Any] = [source, path, int(device), int(inode), *middle, bool(gone), version, first_mtime_ns, unread]
    return FileCursor(*values)


def stored_version(connection: sqlite3.Connection, cursor: FileCursor) -> int | None:
    """The version of a file's cursor; None when there is none."""
    row = connection.execute(
        "SELECT version FROM files WHERE source = ? AND path = ?", (cursor.source, cursor.path)
    ).fetchone()
    return None if row is None else int(row[0])


def write_cursor(connection: sqlite3.Connection, cursor: FileCursor) -> None:
    """Insert or replace a file's cursor, but for when it was first seen."""
    connection.execute(
        f"""INSERT INTO files ({FILE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (source, path) DO UPDATE SET device = excluded.device, inode = excluded.inode,
                size = excluded.size, mtime_ns = excluded.mtime_ns, head_hash = excluded.head_hash,
                head_bytes = excluded.head_bytes, "offset" = excluded."offset", generation = excluded.generation,
                lines = excluded.lines, parsed_lines = excluded.parsed_lines, parser_state = excluded.parser_state,
                gone = excluded.gone, version = excluded.version,
                unread = excluded.unread""",
        (cursor.source, cursor.path, str(cursor.device), str(cursor.inode), cursor.size, cursor.mtime_ns,
         cursor.head_hash, cursor.head_bytes, cursor.offset, cursor.generation, cursor.lines, cursor.parsed_lines,
         cursor.parser_state, cursor.gone, cursor.version, cursor.first_mtime_ns, clean(cursor.unread)),
    )  # fmt: skip


def _is_contested(connection: sqlite3.Connection, chunk: ParsedChunk) -> bool:
    keys = json_list(chunk.keys)
    owned = message_rows.is_owned_by_another(connection, chunk.keys, (chunk.before.source, chunk.before.path))
    forbidden = connection.execute(
        "SELECT 1 FROM tombstone_keys WHERE message_key IN (SELECT value FROM json_each(?))", (keys,)
    ).fetchone()
    deleted = connection.execute(
        "SELECT 1 FROM tombstones WHERE episode_id IN (SELECT value FROM json_each(?))",
        (json_list(part.part_id for part in chunk.parts),),
    ).fetchone()
    return bool(owned or forbidden or deleted) or not typed_rows.are_open(connection, chunk.aliases)


def _with_unpublished(connection: sqlite3.Connection, sources: set[str]) -> set[str]:
    """These sources and all that `parts_to_publish` lists something of."""
    rows = connection.execute(f"SELECT DISTINCT source FROM parts WHERE {_UNPUBLISHED}")
    waiting = {source for (source,) in rows.fetchall()} - sources
    return sources | {
        source
        for source in waiting
        if any(not _is_forbidden(connection, part) for part in _unpublished(connection, source))
    }


def _unpublished(connection: sqlite3.Connection, source: str) -> Iterator[Part]:
    """Parts whose episode is missing or old, newest first, read as they are asked for."""
    rows = connection.execute(
        f"""SELECT {PART_COLUMNS} FROM parts
            WHERE source = ? AND {_UNPUBLISHED}
            ORDER BY ended_at DESC, part_id DESC""",
        (source,),
    )
    while page := rows.fetchmany(_PAGE):
        yield from map(part_values.read_part, page)


def _is_forbidden(connection: sqlite3.Connection, part: Part) -> bool:
    """Whether a tombstone holds the part's id, or every message of it."""
    if connection.execute("SELECT 1 FROM tombstones WHERE episode_id = ?", (part.part_id,)).fetchone():
        return True
    keys = json_list({s.message_key for s in part.segments})
    alive = connection.execute(
        "SELECT 1 FROM json_each(?) WHERE value NOT IN (SELECT message_key FROM tombstone_keys) LIMIT 1", (keys,)
    ).fetchone()
    return bool(part.segments) and alive is None

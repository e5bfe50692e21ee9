"""Which archive frames count, who owns a message and where its copies are, in SQLite."""

import sqlite3
from collections.abc import Sequence

from anamnesis_pipeline.model import ArchiveFrame, Occurrence
from anamnesis_pipeline.store.sqlite.columns import json_list
from anamnesis_pipeline.store.sqlite.connection import Database

_SELECT_FRAMES = """SELECT generation, first_line, lines, archive_offset, archive_bytes, revision FROM frames
    WHERE source = ? AND path = ? AND generation = ? AND first_line + lines > ? ORDER BY first_line"""


class SqliteArchive:
    """The part of `IngestRecords` that is about the archive and what its lines hold."""

    _database: Database

    def frames(self, source: str, path: str, generation: int, from_line: int = 0) -> list[ArchiveFrame]:
        """See `IngestRecords.frames`."""
        with self._database.read() as connection:
            return _frames(connection, source, path, generation, from_line)

    def replace_frames(
        self, source: str, path: str, generation: int, revision: int, frames: Sequence[ArchiveFrame]
    ) -> bool:
        """See `IngestRecords.replace_frames`."""
        with self._database.write() as connection:
            stored = _frames(connection, source, path, generation)
            if not _stands_for(frames, stored, revision):
                return False
            connection.executemany(
                """UPDATE frames SET archive_offset = ?, archive_bytes = ?, revision = ?
                    WHERE source = ? AND path = ? AND generation = ? AND first_line = ?""",
                [(f.archive_offset, f.archive_bytes, f.revision, source, path, generation, f.first_line)
                 for f in frames],
            )  # fmt: skip
        return True

    def occurrences_of(self, keys: Sequence[str]) -> list[tuple[str, Occurrence]]:
        """See `IngestRecords.occurrences_of`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT source, message_key, path, line FROM occurrences
                    WHERE message_key IN (SELECT value FROM json_each(?)) ORDER BY source, path, line, message_key""",
                (json_list(keys),),
            )
            return [(source, Occurrence(key, path, line)) for source, key, path, line in rows]

    def owners(self, keys: Sequence[str]) -> dict[str, tuple[str, str]]:
        """See `IngestRecords.owners`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT key, source, path FROM messages WHERE key IN (SELECT value FROM json_each(?))",
                (json_list(keys),),
            )
            return {key: (source, path) for key, source, path in rows}


def insert_frame(connection: sqlite3.Connection, source: str, path: str, frame: ArchiveFrame) -> None:
    """Let a frame that was just archived count."""
    connection.execute(
        """INSERT INTO frames (source, path, generation, first_line, lines, archive_offset, archive_bytes, revision)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (source, path, frame.generation, frame.first_line, frame.lines, frame.archive_offset, frame.archive_bytes,
         frame.revision),
    )  # fmt: skip


def _frames(
    connection: sqlite3.Connection, source: str, path: str, generation: int, from_line: int = 0
) -> list[ArchiveFrame]:
    rows = connection.execute(_SELECT_FRAMES, (source, path, generation, from_line))
    return [ArchiveFrame(*row) for row in rows]


def _stands_for(frames: Sequence[ArchiveFrame], stored: Sequence[ArchiveFrame], revision: int) -> bool:
    """Whether `frames` hold the very lines of the stored ones, which are of this revision, one revision later."""
    return (
        bool(stored)
        and {f.revision for f in stored} == {revision}
        and {f.revision for f in frames} == {revision + 1}
        and [(f.generation, f.first_line, f.lines) for f in frames]
        == [(f.generation, f.first_line, f.lines) for f in stored]
    )

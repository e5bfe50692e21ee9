"""Which archive frames count, who owns a message and where its copies are, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from anamnesis_pipeline.archive_model import ArchiveBase, ArchiveFrame
from anamnesis_pipeline.model import Occurrence
from anamnesis_pipeline.store.frame_values import hold_the_lines_of
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import json_list

_COLUMNS = """generation, first_line, lines, archive_offset, archive_bytes, revision, mark,
    base_source, base_path, base_generation, base_revision, base_offset, base_bytes"""
_SELECT_FRAMES = f"""SELECT {_COLUMNS} FROM frames
    WHERE source = ? AND path = ? AND generation = ? AND first_line + lines > ? ORDER BY first_line"""
_SELECT_BASE = """SELECT held.source, held.path, held.generation, held.revision,
        MIN(held.archive_offset), SUM(held.archive_bytes)
    FROM frames AS head JOIN frames AS held
        ON held.source = head.source AND held.path = head.path AND held.generation = head.generation
        AND held.first_line < :first_line + :lines AND held.first_line + held.lines > :first_line
    WHERE head.mark <> '' AND head.mark = :mark
        AND (head.source, head.path, head.generation) <> (:source, :path, :generation)
        AND NOT EXISTS (
            SELECT 1 FROM frames AS own WHERE own.source = head.source AND own.path = head.path
                AND own.generation = head.generation AND own.base_source IS NOT NULL)
    GROUP BY held.source, held.path, held.generation
    ORDER BY SUM(held.lines) DESC, held.source, held.path, held.generation LIMIT 1"""


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
            if not hold_the_lines_of(frames, stored, revision) or _leaning(connection, source, path, generation):
                return False
            connection.execute(
                "DELETE FROM frames WHERE source = ? AND path = ? AND generation = ?", (source, path, generation)
            )
            for frame in frames:
                insert_frame(connection, source, path, frame)
        return True

    def archive_base(
        self, source: str, path: str, generation: int, mark: str, first_line: int, lines: int
    ) -> ArchiveBase | None:
        """See `IngestRecords.archive_base`."""
        with self._database.read() as connection:
            if _leaning(connection, source, path, generation):
                return None
            row = connection.execute(
                _SELECT_BASE,
                {"source": source, "path": path, "generation": generation, "first_line": first_line, "lines": lines,
                 "mark": mark or _mark(connection, source, path, generation)},
            ).fetchone()  # fmt: skip
        return None if row is None else ArchiveBase(*row)

    def leaning(self, source: str, path: str, generation: int) -> list[tuple[str, str, int]]:
        """See `IngestRecords.leaning`."""
        with self._database.read() as connection:
            return _leaning(connection, source, path, generation)

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
    """Let a frame that was archived count."""
    base = astuple(frame.base) if frame.base else (None,) * 6
    connection.execute(
        f"INSERT INTO frames (source, path, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (source, path, frame.generation, frame.first_line, frame.lines, frame.archive_offset, frame.archive_bytes,
         frame.revision, frame.mark, *base),
    )  # fmt: skip


def may_lean(connection: sqlite3.Connection, source: str, path: str, frame: ArchiveFrame) -> bool:
    """Whether the base of a new frame, if it has one, is still of the revision that was read, and leans on nothing
    itself; and nothing leans on the frame's own generation. Otherwise neither could ever be rewritten.
    """
    if (base := frame.base) is None:
        return True
    found = connection.execute(
        """SELECT min(revision), max(revision), count(base_source) FROM frames
            WHERE source = ? AND path = ? AND generation = ?""",
        (base.source, base.path, base.generation),
    )
    is_base_still = found.fetchone() == (base.revision, base.revision, 0)
    return is_base_still and not _leaning(connection, source, path, frame.generation)


def _mark(connection: sqlite3.Connection, source: str, path: str, generation: int) -> str:
    row = connection.execute(
        "SELECT mark FROM frames WHERE source = ? AND path = ? AND generation = ? AND first_line = 0",
        (source, path, generation),
    ).fetchone()
    return str(row[0]) if row else ""


def _leaning(connection: sqlite3.Connection, source: str, path: str, generation: int) -> list[tuple[str, str, int]]:
    rows = connection.execute(
        """SELECT DISTINCT source, path, generation FROM frames
            WHERE base_source = ? AND base_path = ? AND base_generation = ? ORDER BY source, path, generation""",
        (source, path, generation),
    )
    return [(str(source), str(path), int(generation)) for source, path, generation in rows]


def _frames(
    connection: sqlite3.Connection, source: str, path: str, generation: int, from_line: int = 0
) -> list[ArchiveFrame]:
    rows = connection.execute(_SELECT_FRAMES, (source, path, generation, from_line))
    return [_frame(*row) for row in rows]


def _frame(
    generation: int, first_line: int, lines: int, offset: int, size: int, revision: int, mark: str, *base: Any
) -> ArchiveFrame:
    leaning = None if base[0] is None else ArchiveBase(*base)
    return ArchiveFrame(generation, first_line, lines, offset, size, revision, mark, leaning)

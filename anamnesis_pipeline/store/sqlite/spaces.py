"""The embedding spaces in SQLite."""

# ruff: noqa: D102, S608
# the contract documents them, see store/base.py; only names of ours enter the SQL

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.store.base import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.sqlite import pending
from anamnesis_pipeline.store.sqlite.columns import json_list
from anamnesis_pipeline.store.sqlite.connection import Database

_COLUMNS = """key, model_id, dim, generation, query_prefix, passage_prefix, pooling, "precision", variants, status"""


class SqliteSpaces:
    """See `SpaceRecords`. `index_dir` holds the index files that `drop` removes."""

    def __init__(self, database: Database, index_dir: Path) -> None:
        self._database = database
        self._index_dir = index_dir

    def put(self, space: Space) -> bool:
        with self._database.write() as connection:
            row = connection.execute(
                f"""INSERT INTO spaces ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                    ON CONFLICT (key) DO NOTHING RETURNING space_id""",
                (space.key, space.model_id, space.dim, space.generation, space.query_prefix, space.passage_prefix,
                 space.pooling, space.precision, json_list(space.variants), space.status),
            ).fetchone()  # fmt: skip
            if row is None:
                return False
            connection.executemany("INSERT INTO space_variants VALUES (?, ?)", [(row[0], v) for v in space.variants])
            pending.expect_everything(connection, row[0])
        return True

    def all(self) -> list[Space]:
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM spaces ORDER BY space_id").fetchall()
        return [_read_row(row) for row in rows]

    def active(self) -> Space | None:
        with self._database.read() as connection:
            row = connection.execute(f"SELECT {_COLUMNS} FROM spaces WHERE status = 'active'").fetchone()
        return None if row is None else _read_row(row)

    def activate(self, key: str) -> bool:
        """See `SpaceRecords.activate`.

        :raises GiveUp: no such space.
        """
        with self._database.write() as connection:
            space_id, status = _known(connection, key)
            if status == "active":
                return True
            has_active = connection.execute("SELECT 1 FROM spaces WHERE status = 'active'").fetchone()
            if has_active and connection.execute("SELECT 1 FROM pending WHERE space_id = ?", (space_id,)).fetchone():
                return False
            connection.execute("UPDATE spaces SET status = 'retired' WHERE status = 'active'")
            connection.execute("UPDATE spaces SET status = 'active' WHERE space_id = ?", (space_id,))
        return True

    def drop(self, key: str) -> None:
        with self._database.write() as connection:
            row = connection.execute("SELECT space_id, status FROM spaces WHERE key = ?", (key,)).fetchone()
            if row is not None and row[1] == "active":
                raise GiveUp(f"space {key} is active and answers the searches; activate another one first")
            names = self._forget(connection, row[0]) if row is not None else []
        for name in names:
            (self._index_dir / name).unlink(missing_ok=True)
        self._remove_orphans()

    def _forget(self, connection: sqlite3.Connection, space_id: int) -> list[str]:
        """Remove the space's own rows; its vectors then belong to nobody. Returns its index files."""
        names = [n for (n,) in connection.execute("SELECT name FROM index_files WHERE space_id = ?", (space_id,))]
        for table in ("index_files", "pending", "space_variants", "spaces"):
            connection.execute(f"DELETE FROM {table} WHERE space_id = ?", (space_id,))
        return names

    def _remove_orphans(self) -> None:
        """Delete the vectors of dropped spaces, those that an interrupted `drop` left behind included."""
        with self._database.read() as connection:
            present = {space_id for (space_id,) in connection.execute("SELECT space_id FROM spaces")}
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'spaces'").fetchone()
        for space_id in sorted(set(range(1, row[0] + 1 if row else 1)) - present):
            self._delete_in_steps("vectors", "seq", space_id)
            self._delete_in_steps("token_vectors", "passage_id", space_id)

    def _delete_in_steps(self, table: str, key: str, space_id: int) -> None:
        deleted = MAX_ROWS_PER_WRITE
        while deleted == MAX_ROWS_PER_WRITE:
            with self._database.write() as connection:
                deleted = connection.execute(
                    f"""DELETE FROM {table} WHERE space_id = ?1 AND {key} IN (
                        SELECT {key} FROM {table} WHERE space_id = ?1 LIMIT {MAX_ROWS_PER_WRITE})""",
                    (space_id,),
                ).rowcount


def _known(connection: sqlite3.Connection, key: str) -> tuple[int, str]:
    row: tuple[int, str] | None = connection.execute(
        "SELECT space_id, status FROM spaces WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        known = [name for (name,) in connection.execute("SELECT key FROM spaces ORDER BY space_id")]
        raise GiveUp(f"no space {key}; known are: {', '.join(known) or 'none yet'}")
    return row


def _read_row(row: tuple[Any, ...]) -> Space:
    *fields, variants, status = row
    return replace(Space(*fields), variants=tuple(map(Variant, json.loads(variants))), status=status)

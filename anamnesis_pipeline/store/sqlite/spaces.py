"""The embedding spaces in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch, SpaceConflict
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.sqlite import pending
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.space_rows import SPACE_COLUMNS, find_space, read_row, space_with_status
from anamnesis_pipeline.store.values import json_list

PROJECTION = np.dtype("<f4")


class SqliteSpaces:
    """See `SpaceRecords`. `index_dir` holds the index files that `drop` removes."""

    def __init__(self, database: Database, index_dir: Path) -> None:
        self._database = database
        self._index_dir = index_dir

    def put(self, space: Space) -> bool:
        """See `SpaceRecords.put`."""
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM spaces WHERE key = ?", (space.key,)).fetchone():
                return False
            if space.status in ("active", "building"):
                _refuse_a_second(connection, space.key, space.status)
            (space_id,) = connection.execute(
                f"INSERT INTO spaces ({SPACE_COLUMNS}) VALUES ({', '.join('?' * 13)}) RETURNING space_id",
                (space.key, space.model_id, space.dim, space.generation, space.query_prefix, space.passage_prefix,
                 space.pooling, space.precision, space.fidelity, json_list(space.variants), space.token_dims,
                 space.token_variant, space.status),
            ).fetchone()  # fmt: skip
            connection.executemany("INSERT INTO space_variants VALUES (?, ?)", [(space_id, v) for v in space.variants])
            pending.expect_everything(connection, space_id)
        return True

    def all(self) -> list[Space]:
        """See `SpaceRecords.all`."""
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {SPACE_COLUMNS} FROM spaces ORDER BY space_id").fetchall()
        return [read_row(row) for row in rows]

    def active(self) -> Space | None:
        """See `SpaceRecords.active`."""
        with self._database.read() as connection:
            return space_with_status(connection, "active")

    def start(self, key: str) -> None:
        """See `SpaceRecords.start`."""
        with self._database.write() as connection:
            space = find_space(connection, key)
            if space.status == "building":
                raise SpaceConflict(f"space {key} is being embedded already; wait for it, or stop it first")
            if space.status == "active":
                raise SpaceConflict(f"space {key} is active already; to embed anew, add a new generation of its model")
            _refuse_a_second(connection, key, "building")
            connection.execute("UPDATE spaces SET status = 'building' WHERE space_id = ?", (space.space_id,))

    def stop(self, key: str, status: str = "added") -> None:
        """See `SpaceRecords.stop`."""
        with self._database.write() as connection:
            connection.execute("UPDATE spaces SET status = ? WHERE key = ? AND status = 'building'", (status, key))

    def record_precision(self, key: str, precision: str, fidelity: float | None) -> None:
        """See `SpaceRecords.record_precision`."""
        with self._database.write() as connection:
            connection.execute(
                """UPDATE spaces SET "precision" = ?1, fidelity = ?2
                    WHERE space_id = ?3 AND NOT EXISTS (SELECT 1 FROM vectors WHERE space_id = ?3)""",
                (precision, fidelity, find_space(connection, key).space_id),
            )

    def keep_projection(self, key: str, projection: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `SpaceRecords.keep_projection`."""
        matrix = np.ascontiguousarray(projection, dtype=PROJECTION)
        with self._database.write() as connection:
            row = find_space(connection, key)
            if matrix.ndim != 2 or matrix.shape[1] != row.token_dims:
                raise DimensionMismatch(
                    f"space {key} holds {row.token_dims}-d token vectors and was given a projection of {matrix.shape}"
                )
            connection.execute(
                "UPDATE spaces SET projection = ? WHERE space_id = ? AND projection IS NULL",
                (matrix.tobytes(), row.space_id),
            )
        kept = self.projection(key)
        return matrix.astype(np.float32) if kept is None else kept

    def projection(self, key: str) -> NDArray[np.float32] | None:
        """See `SpaceRecords.projection`."""
        with self._database.read() as connection:
            row = find_space(connection, key)
            (kept,) = connection.execute("SELECT projection FROM spaces WHERE space_id = ?", (row.space_id,)).fetchone()
        return None if kept is None else np.frombuffer(kept, PROJECTION).astype(np.float32).reshape(-1, row.token_dims)

    def activate(self, key: str, *, only_from: str | None = None) -> bool:
        """See `SpaceRecords.activate`."""
        with self._database.write() as connection:
            space = find_space(connection, key)
            if only_from is not None and space.status != only_from:
                return False
            if space.status == "active":
                return True
            has_active = space_with_status(connection, "active") is not None
            if has_active and not pending.is_empty(connection, space.space_id):
                return False
            connection.execute("UPDATE spaces SET status = 'retired' WHERE status = 'active'")
            connection.execute("UPDATE spaces SET status = 'active' WHERE space_id = ?", (space.space_id,))
        return True

    def drop(self, key: str) -> None:
        """See `SpaceRecords.drop`."""
        with self._database.write() as connection:
            row = connection.execute("SELECT space_id, status FROM spaces WHERE key = ?", (key,)).fetchone()
            if row is not None and row[1] == "active":
                raise SpaceConflict(f"space {key} is active and answers the searches; activate another one first")
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


def _refuse_a_second(connection: sqlite3.Connection, key: str, status: str) -> None:
    if (other := space_with_status(connection, status)) is not None:
        raise SpaceConflict(f"space {key} cannot be {status} while {other.key} is; wait for that one, or stop it first")

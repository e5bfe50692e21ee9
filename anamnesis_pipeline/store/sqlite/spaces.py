"""The embedding spaces in SQLite, and which episodes lack vectors of theirs."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from typing_extensions import override

from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.spaces import SpaceRecords, StoredSpace, droppable, refuse_second, space_row
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SPACE_VARIANTS, SqliteGateway, SqliteRows, SqliteTables
from anamnesis_pipeline.store.values import json_list

# --- what lacks vectors, as rows per space and episode, in the transaction that changes it ---------------

LACKS_A_VECTOR = """EXISTS (
    SELECT 1 FROM space_variants sv WHERE sv.space_id = s.space_id AND NOT EXISTS (
        SELECT 1 FROM vectors v
        WHERE v.space_id = sv.space_id AND v.variant = sv.variant AND v.passage_id = p.passage_id)
    UNION ALL
    SELECT 1 WHERE s.token_dims > 0 AND NOT EXISTS (
        SELECT 1 FROM token_vectors t WHERE t.space_id = s.space_id AND t.passage_id = p.passage_id))"""


def count_lacking(connection: sqlite3.Connection, episode_keys: Iterable[int], space_id: int | None = None) -> None:
    """Count again what these episodes lack, in one space or (None) in all."""
    keys = json_list(episode_keys)
    connection.execute(
        """DELETE FROM pending WHERE episode_key IN (SELECT value FROM json_each(:keys))
            AND (:space IS NULL OR space_id = :space)""",
        {"keys": keys, "space": space_id},
    )
    connection.execute(
        f"""INSERT INTO pending (space_id, episode_key, source, timestamp, missing)
            SELECT s.space_id, e.episode_key, e.source, e.timestamp, count(*)
            FROM json_each(:keys) k
            CROSS JOIN episodes e ON e.episode_key = k.value
            CROSS JOIN passages p ON p.episode_key = e.episode_key
            CROSS JOIN spaces s
            WHERE (:space IS NULL OR s.space_id = :space) AND {LACKS_A_VECTOR}
            GROUP BY s.space_id, e.episode_key""",
        {"keys": keys, "space": space_id},
    )


# --- spaces ----------------------------------------------------------------------------------------------


class SqliteSpaces(SpaceRecords):
    """The embedding spaces in SQLite. `index_dir` holds the index files that `drop` removes."""

    def __init__(self, database: Database, index_dir: Path) -> None:
        super().__init__(SqliteGateway(database))
        self._database = database
        self._index_dir = index_dir

    @override
    def put(self, space: Space) -> bool:
        with self._database.write() as connection:
            tables = SqliteTables(connection)
            if tables["spaces"].has({"key": space.key}):
                return False
            refuse_second(tables, space.key, space.status)
            space_id = tables["spaces"].insert([space_row(space)])
            variants = [{"space_id": space_id, "variant": variant} for variant in space.variants]
            SqliteRows(connection, SPACE_VARIANTS).insert(variants)
            # every episode lacks all its vectors. One statement over narrow rows: 75,000 take 0.2 s
            connection.execute(
                """INSERT INTO pending (space_id, episode_key, source, timestamp, missing)
                    SELECT ?, episode_key, source, timestamp, passages FROM episodes WHERE passages > 0""",
                (space_id,),
            )
        return True

    @override
    def drop(self, key: str) -> None:
        """Its rows go at once; its vectors, found by no other space, in steps."""
        with self._database.write() as connection:
            of_it = (droppable(SqliteTables(connection), key) or 0,)
            names = [n for (n,) in connection.execute("SELECT name FROM index_files WHERE space_id = ?", of_it)]
            for table in ("index_files", "pending", "space_variants", "spaces"):
                connection.execute(f"DELETE FROM {table} WHERE space_id = ?", of_it)
        for name in names:
            (self._index_dir / name).unlink(missing_ok=True)
        self._remove_orphans()

    @override
    def _has_vectors(self, tables: SqliteTables, space: StoredSpace) -> bool:
        found = tables.connection.execute("SELECT 1 FROM vectors WHERE space_id = ? LIMIT 1", (space.space_id,))
        return found.fetchone() is not None

    def _remove_orphans(self) -> None:
        """Delete the vectors of dropped spaces, those that an interrupted `drop` left behind included."""
        with self._database.read() as connection:
            present = {space_id for (space_id,) in connection.execute("SELECT space_id FROM spaces")}
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'spaces'").fetchone()
        for space_id in sorted(set(range(1, row[0] + 1 if row else 1)) - present):
            for table, key in (("vectors", "seq"), ("token_vectors", "passage_id")):
                deleted = MAX_ROWS_PER_WRITE
                while deleted == MAX_ROWS_PER_WRITE:
                    with self._database.write() as connection:
                        deleted = connection.execute(
                            f"""DELETE FROM {table} WHERE space_id = ?1 AND {key} IN (
                                SELECT {key} FROM {table} WHERE space_id = ?1 LIMIT {MAX_ROWS_PER_WRITE})""",
                            (space_id,),
                        ).rowcount

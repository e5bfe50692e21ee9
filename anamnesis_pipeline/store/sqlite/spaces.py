"""The embedding spaces in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

from pathlib import Path

from typing_extensions import override

from anamnesis_pipeline.errors import SpaceConflict
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.spaces import SpaceRecords, StoredSpace, refuse_second, space_row
from anamnesis_pipeline.store.sqlite import pending
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SPACE_VARIANTS, SqliteGateway, SqliteRows, SqliteTables


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
            pending.expect_everything(connection, space_id)
        return True

    @override
    def drop(self, key: str) -> None:
        """Its rows go at once; its vectors, found by no other space, in steps."""
        with self._database.write() as connection:
            row = SqliteTables(connection)["spaces"].one({"key": key}, ["space_id", "status"])
            if row is not None and row["status"] == "active":
                raise SpaceConflict(f"space {key} is active and answers the searches; activate another one first")
            of_it = (row["space_id"] if row is not None else 0,)
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

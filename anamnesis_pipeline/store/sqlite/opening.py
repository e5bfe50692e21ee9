"""Opening the embedded store."""

# ruff: noqa: S608
# only names of ours enter the SQL

import time
from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.forgetting import Traces
from anamnesis_pipeline.store.records.spaces import find_space
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.copying import SqliteCopy
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway, SqliteTables
from anamnesis_pipeline.store.sqlite.filters import PassingPassages, SqliteNative, SqliteOverview
from anamnesis_pipeline.store.sqlite.fulltext import SqliteTextIndex
from anamnesis_pipeline.store.sqlite.index_files import IndexFiles
from anamnesis_pipeline.store.sqlite.schema import index_texts, make_missing_tables, migrate
from anamnesis_pipeline.store.sqlite.spaces import SqliteSpaces
from anamnesis_pipeline.store.sqlite.text_rebuild import discard_rebuild
from anamnesis_pipeline.store.sqlite.vectors import SqliteVectors


def open_sqlite(path: Path, index_dir: Path) -> Store:
    """Open, and create or migrate if need be, the store in the file `path`.

    :param index_dir: folder of the derived vector index files; safe to delete.
    :raises StoreCorrupt: the file is damaged, of a newer version, or another program's.
    """
    database = Database(path)
    try:
        migrate(database)
        make_missing_tables(database)
        index_texts(database)
    except BaseException:
        database.close()
        raise
    few = PassingPassages()
    return Store.over(
        SqliteGateway(database),
        SqliteNative(),
        Scrubbing(database, index_dir),
        text=SqliteTextIndex(database, few),
        vectors=SqliteVectors(database, index_dir, few),
        spaces=SqliteSpaces(database, index_dir),
        overview=SqliteOverview(database),
        copies=SqliteCopy(database),
        close=database.close,
    )


# --- leaving nothing of what was deleted in the files ----------------------------------------------------

MERGED_PAGES = 500
"""Pages of a full-text index that are merged in one transaction."""
UNNAMED_S = 10
"""An index file is named in the database at once when it is written; one that is not named after this was replaced."""
CHECKPOINT_TRIES = 25
CHECKPOINT_PAUSE_S = 0.2


class Scrubbing(Traces):
    """What SQLite keeps of deleted rows. Pages that are freed are zeroed at once (`PRAGMA secure_delete`), so what is
    left to do is in places where SQLite keeps deleted text on purpose, and in the index files.
    """

    def __init__(self, database: Database, index_dir: Path) -> None:
        self._database = database
        self._files = IndexFiles(database, index_dir)

    @override
    def scrub(self) -> list[str]:
        steps: tuple[Callable[[], str | None], ...] = (self._merge_fulltext, self._renew_index_files, self._empty_log)
        problems = []
        for step in steps:
            try:
                problem = step()
            except AnamnesisError as exc:
                problem = str(exc)
            problems += [problem] if problem else []
        return problems

    @override
    def keeps(self) -> list[str]:
        return []

    def _merge_fulltext(self) -> None:
        """FTS5 keeps deleted words, with a mark that they are gone, until the segments they are in are merged.

        A negative number begins a merge of everything, positive ones go on with it; it is done when nothing changes.
        """
        with self._database.write() as connection:
            discard_rebuild(connection)
        for table in ("stem_index", "exact_index"):
            step = -MERGED_PAGES
            changed = 2
            while changed >= 2:
                with self._database.write() as connection:
                    before = connection.total_changes
                    connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (step,))
                    changed = connection.total_changes - before
                step = MERGED_PAGES

    def _renew_index_files(self) -> None:
        """A removed vector stays readable in the file of a graph, so files that hold some are built from nothing."""
        with self._database.read() as connection:
            files = connection.execute("SELECT s.key, f.variant FROM index_files f JOIN spaces s USING (space_id)")
            rows = [(find_space(SqliteTables(connection), key), variant) for key, variant in files.fetchall()]
        for space, variant in rows:
            coverage = self._files.coverage(space, variant)
            if (coverage.dead or coverage.removed) and not self._files.refresh(space, variant, force=True):
                self._files.forget(space, variant)  # no vector is left
        self._files.remove_leftovers(UNNAMED_S)

    def _empty_log(self) -> str | None:
        for _ in range(CHECKPOINT_TRIES):
            if self._database.empty_log():
                return None
            time.sleep(CHECKPOINT_PAUSE_S)
        return (
            f"{self._database.path}-wal may hold it for a while: another process was reading all the time; it is "
            f"emptied when `anamnesis up` stops, or by forgetting once more"
        )

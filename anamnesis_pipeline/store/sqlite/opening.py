"""Opening the embedded store."""

from pathlib import Path

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.copying import SqliteCopy
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway
from anamnesis_pipeline.store.sqlite.filters import PassingPassages
from anamnesis_pipeline.store.sqlite.fulltext import SqliteTextIndex
from anamnesis_pipeline.store.sqlite.native import SqliteNative, SqliteOverview
from anamnesis_pipeline.store.sqlite.schema import index_texts, make_missing_tables, migrate
from anamnesis_pipeline.store.sqlite.scrubbing import Scrubbing
from anamnesis_pipeline.store.sqlite.spaces import SqliteSpaces
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

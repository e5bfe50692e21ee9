"""Every table of the SQLite file is copied, or made of others."""

import sqlite3
from contextlib import closing
from pathlib import Path

from anamnesis_pipeline.store.sqlite.copying import DERIVED, HELD_BY
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.tables import PENDING, SPACES, TABLES

OF_SPACES = {"vectors", "token_vectors"}


def tables_of_a_new_file(folder: Path) -> dict[str, set[str]]:
    """Name -> columns, without what FTS5 makes for itself."""
    open_sqlite(folder / "a.db", folder / "index").close()
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            name: {column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")}
            for name in names
            if not name.startswith(("stem_index_", "exact_index_"))
        }


def test_every_table_is_copied_or_made_of_others(tmp_path: Path) -> None:
    copied = {held for names in HELD_BY.values() for held in names} | {
        table.name for table in (SPACES, PENDING, *TABLES)
    }
    assert copied | OF_SPACES | DERIVED.keys() == tables_of_a_new_file(tmp_path).keys()
    assert not (copied | OF_SPACES) & DERIVED.keys()


def test_every_column_of_a_table_that_is_copied_as_it_is_has_a_field(tmp_path: Path) -> None:
    columns = tables_of_a_new_file(tmp_path)
    for table in (SPACES, *TABLES):
        assert {*table.fields} == columns[table.name], table.name

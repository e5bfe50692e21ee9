"""Every table of the SQLite file is copied, or made of others."""

import sqlite3
from contextlib import closing
from pathlib import Path

from anamnesis_pipeline.store.copying import NUMBERS, SECRET, rows_of
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.copying import DERIVED, SqliteCopy
from anamnesis_pipeline.store.sqlite.engine import EPISODE_TEXTS, PASSAGE_TEXTS
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.tables import BY_NAME, SPACES, TABLES
from anamnesis_tests.support.whole_memory import fill

HELD_OTHERWISE = {EPISODE_TEXTS.name, PASSAGE_TEXTS.name, "vectors", "token_vectors", "sqlite_sequence"}
"""Tables that hold parts of rows, the vectors of spaces, and the numbers."""


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
    copied = BY_NAME.keys() | HELD_OTHERWISE
    assert copied | DERIVED.keys() == tables_of_a_new_file(tmp_path).keys()
    assert not copied & DERIVED.keys()


def test_every_column_of_a_table_that_is_copied_as_it_is_has_a_field(tmp_path: Path) -> None:
    columns = tables_of_a_new_file(tmp_path)
    for table in (SPACES, *TABLES):
        assert {*table.fields} == columns[table.name], table.name


def test_each_page_of_a_copy_begins_at_its_place_in_an_index(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "a.db", tmp_path / "index")) as store:
        fill(store)
    statements: list[str] = []
    with closing(Database(tmp_path / "a.db")) as database:
        with database.read() as connection:
            connection.set_trace_callback(statements.append)
        with SqliteCopy(database).reading() as now:
            for table in now.tables():
                first = next(rows_of(now, table))
                if table not in (SECRET, NUMBERS):
                    statements.clear()
                    now.page(table, table.key_of(first))
                    plan = [step for _, _, _, step in connection.execute(f"EXPLAIN QUERY PLAN {statements[-1]}")]
                    assert plan[0].startswith("SEARCH"), table.name
                    assert not [step for step in plan if "TEMP B-TREE" in step], table.name

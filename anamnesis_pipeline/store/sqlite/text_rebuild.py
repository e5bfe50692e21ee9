"""Make the full-text indexes again from the stored passages, beside the ones that answer.

The new indexes are filled some passages at a time, so that writers wait for none for long, and take the place of the
former ones in one transaction. A killed run leaves the former ones in use; the next run starts again from nothing.
"""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterator
from uuid import uuid4

from anamnesis_pipeline.errors import RetryLater
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.sqlite.connection import Database

_NEXT = {"stem_index": "stem_next", "exact_index": "exact_next"}
_FILLED = {
    "stem_next": ("text, context", "passage_words"),
    "exact_next": ("terms", "passage_terms"),
}
"""New index -> its columns, and the view that has them."""
_REPLACED = ("passage_texts_added", "passage_texts_removed", "stem_words", "exact_words")
"""What names the indexes, and is made again with them."""


def rebuild_text(database: Database) -> Iterator[tuple[int, int]]:
    """Make the indexes again; yield (passages done, all passages) after each transaction.

    :raises RetryLater: another rebuild, or the clean-up behind a forgetting, removed what was made so far.
    """
    run = uuid4().hex
    with database.write() as connection:
        discard_rebuild(connection)
        _begin(connection, run)
    done, is_complete = 0, False
    while not is_complete:
        with database.write() as connection:
            if not is_rebuilt_by(connection, run):
                raise RetryLater(
                    "the new index was removed by another rebuild or by a forgetting; the former index still answers; "
                    "run it again"
                )
            added = _add_some(connection)
            is_complete = added < MAX_ROWS_PER_WRITE
            if is_complete:
                _swap(connection)
            done += added
            (passages,) = connection.execute("SELECT count(*) FROM passages").fetchone()
        yield done, passages


def is_rebuilt_by(connection: sqlite3.Connection, run: str) -> bool:
    """Return whether the unfinished indexes are those of this run."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'text_rebuild'").fetchone():
        return False
    return connection.execute("SELECT 1 FROM text_rebuild WHERE run = ?", (run,)).fetchone() is not None


def discard_rebuild(connection: sqlite3.Connection) -> None:
    """Remove unfinished indexes: a killed run left them, and they would keep words that are deleted since."""
    connection.execute("DROP TRIGGER IF EXISTS text_rebuild_removed")
    for table in (*_NEXT.values(), "text_rebuild"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def _begin(connection: sqlite3.Connection, run: str) -> None:
    for table, following in _NEXT.items():
        connection.execute(_sql_of(connection, table).replace(table, following, 1))
    connection.execute("CREATE TABLE text_rebuild (run TEXT NOT NULL, done INTEGER NOT NULL)")
    connection.execute("INSERT INTO text_rebuild VALUES (?, 0)", (run,))
    removed = _sql_of(connection, "passage_texts_removed").replace("passage_texts_removed", "text_rebuild_removed", 1)
    for table, following in _NEXT.items():
        removed = removed.replace(table, following)
    is_there = "WHEN old.passage_id <= (SELECT done FROM text_rebuild)"
    connection.execute(removed.replace("ON passage_texts", f"ON passage_texts {is_there}", 1))


def _add_some(connection: sqlite3.Connection) -> int:
    """Add the next passages; return their number. New passages have higher keys, so they come last."""
    chosen = "SELECT passage_id FROM passage_texts, text_rebuild WHERE passage_id > done ORDER BY passage_id LIMIT ?"
    keys = [key for (key,) in connection.execute(chosen, (MAX_ROWS_PER_WRITE,))]
    if keys:
        for table, (columns, view) in _FILLED.items():
            connection.execute(
                f"""INSERT INTO {table} (rowid, {columns}) SELECT passage_id, {columns} FROM {view}
                    WHERE passage_id BETWEEN ? AND ? ORDER BY passage_id""",
                (keys[0], keys[-1]),
            )
        connection.execute("UPDATE text_rebuild SET done = ?", (keys[-1],))
    return len(keys)


def _swap(connection: sqlite3.Connection) -> None:
    """Put the new indexes in the place of the former ones."""
    again = [_sql_of(connection, name) for name in _REPLACED]
    for name in _REPLACED:
        connection.execute(f"DROP {'TRIGGER' if name.startswith('passage') else 'TABLE'} {name}")
    connection.execute("DROP TRIGGER text_rebuild_removed")
    connection.execute("DROP TABLE text_rebuild")
    for table, following in _NEXT.items():
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE {following} RENAME TO {table}")
    for statement in again:
        connection.execute(statement)
    connection.execute("DELETE FROM reindexing")


def _sql_of(connection: sqlite3.Connection, name: str) -> str:
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    return str(sql)

"""Passages as rows: written by what differs, so that an unchanged passage keeps its key and its vectors."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
import sqlite3
from collections.abc import Iterable, Sequence

from anamnesis_pipeline.model import Passage, StoredPassage
from anamnesis_pipeline.store.values import json_list

SELECT_PASSAGES = """SELECT p.passage_id, e.episode_id, p.ordinal, t.text, t.context, t.message_ids
    FROM passages p JOIN passage_texts t USING (passage_id) JOIN episodes e USING (episode_key)"""

Row = tuple[int, str, int, str, str, str]


def read_row(row: Row) -> StoredPassage:
    """A row of `SELECT_PASSAGES`."""
    passage_id, episode_id, ordinal, text, context, ids = row
    return StoredPassage(passage_id, episode_id, Passage(ordinal, text, context, tuple(json.loads(ids))))


def write_passages(connection: sqlite3.Connection, episode_key: int, wanted: Sequence[Passage]) -> None:
    """Make `wanted` the passages of an episode; those that stay as they are keep their keys."""
    rows = connection.execute(f"{SELECT_PASSAGES} WHERE p.episode_key = ?", (episode_key,))
    present = {stored.passage.ordinal: stored for stored in map(read_row, rows)}
    kept = {p.ordinal for p in wanted if p.ordinal in present and present[p.ordinal].passage == p}
    delete_passages(connection, [s.passage_id for ordinal, s in present.items() if ordinal not in kept])
    for passage in wanted:
        if passage.ordinal not in kept:
            _insert(connection, episode_key, passage)


def delete_passages(connection: sqlite3.Connection, passage_ids: Iterable[int]) -> None:
    """Remove passages with their full-text rows and the vectors of every space."""
    ids = json_list(passage_ids)
    for table in ("passages", "passage_texts"):
        connection.execute(f"DELETE FROM {table} WHERE passage_id IN (SELECT value FROM json_each(?))", (ids,))
    spaces = connection.execute("SELECT space_id, variant FROM space_variants").fetchall()
    connection.executemany(
        """DELETE FROM vectors WHERE space_id = ? AND variant = ?
            AND passage_id IN (SELECT value FROM json_each(?))""",
        [(space_id, variant, ids) for space_id, variant in spaces],
    )
    connection.executemany(
        "DELETE FROM token_vectors WHERE space_id = ? AND passage_id IN (SELECT value FROM json_each(?))",
        [(space_id, ids) for space_id in sorted({space_id for space_id, _ in spaces})],
    )


def _insert(connection: sqlite3.Connection, episode_key: int, passage: Passage) -> None:
    passage_id = connection.execute(
        "INSERT INTO passages (episode_key, ordinal) VALUES (?, ?)", (episode_key, passage.ordinal)
    ).lastrowid
    connection.execute(
        "INSERT INTO passage_texts (passage_id, text, context, message_ids) VALUES (?, ?, ?, ?)",
        (passage_id, passage.text, passage.context, json_list(passage.message_ids)),
    )

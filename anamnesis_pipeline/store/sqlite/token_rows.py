"""Token vectors as rows: one per space and passage."""

import sqlite3
from collections.abc import Mapping, Sequence

from anamnesis_pipeline.store.base import TokenRows
from anamnesis_pipeline.store.sqlite.space_rows import SpaceRow
from anamnesis_pipeline.store.token_values import Tokens, bytes_each, packed, unpacked
from anamnesis_pipeline.store.values import json_list


def write_tokens(
    connection: sqlite3.Connection, space_id: int, passage_ids: Sequence[int], tokens: Mapping[int, Tokens]
) -> None:
    """Write those of these passages that are in `tokens`, in place of what they had."""
    rows = [(space_id, key, len(tokens[key]), packed(tokens[key])) for key in passage_ids if key in tokens]
    connection.executemany(
        "DELETE FROM token_vectors WHERE space_id = ? AND passage_id = ?", [(row[0], row[1]) for row in rows]
    )
    connection.executemany("INSERT INTO token_vectors (space_id, passage_id, tokens, data) VALUES (?, ?, ?, ?)", rows)


def read_tokens(connection: sqlite3.Connection, row: SpaceRow, passage_ids: Sequence[int]) -> TokenRows:
    """See `VectorIndex.tokens`."""
    rows = connection.execute(
        """SELECT passage_id, tokens, data FROM token_vectors WHERE space_id = ?
            AND passage_id IN (SELECT value FROM json_each(?))""",
        (row.space_id, json_list(passage_ids)),
    ).fetchall()
    return unpacked(rows, row.token_dims)


def token_bytes(connection: sqlite3.Connection, row: SpaceRow) -> int:
    """See `VectorIndex.token_bytes`; the index holds what is needed."""
    (tokens,) = connection.execute(
        "SELECT coalesce(sum(tokens), 0) FROM token_vectors INDEXED BY token_vectors_by_passage WHERE space_id = ?",
        (row.space_id,),
    ).fetchone()
    return int(tokens) * bytes_each(row.token_dims)

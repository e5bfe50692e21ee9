"""Token vectors as rows: one per space and passage. Of each number its sign is kept, as one bit."""

import sqlite3
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch
from anamnesis_pipeline.store.base import TokenRows, sign_value
from anamnesis_pipeline.store.sqlite.space_rows import SpaceRow
from anamnesis_pipeline.store.values import json_list

Tokens = NDArray[np.int8]


def by_passage(passage_ids: Sequence[int], tokens: Sequence[Tokens] | None) -> dict[int, Tokens]:
    """Passage id -> token vectors of shape (tokens, dims).

    :raises ValueError: another number of them than passages, or one without any row.
    """
    if tokens is None:
        return {}
    if len(passage_ids) != len(tokens):
        raise ValueError(f"{len(passage_ids)} passage ids came with token vectors of {len(tokens)}")
    rows = {key: np.ascontiguousarray(found, dtype=np.int8) for key, found in zip(passage_ids, tokens, strict=True)}
    if any(found.ndim != 2 or not len(found) for found in rows.values()):
        raise ValueError("token vectors of a passage have shape (tokens, dims) with at least one token")
    return rows


def check_tokens(row: SpaceRow, tokens: Mapping[int, Tokens]) -> None:
    """:raises DimensionMismatch: some have another width than the space's."""
    for found in tokens.values():
        if found.shape[1] != row.token_dims:
            raise DimensionMismatch(
                f"space {row.key} holds {row.token_dims}-d token vectors and was given shape {found.shape}"
            )


def write_tokens(
    connection: sqlite3.Connection, space_id: int, passage_ids: Sequence[int], tokens: Mapping[int, Tokens]
) -> None:
    """Write those of these passages that are in `tokens`, in place of what they had."""
    rows = [
        (space_id, key, len(tokens[key]), np.packbits(tokens[key] > 0, axis=1).tobytes())
        for key in passage_ids
        if key in tokens
    ]
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
    ends = np.cumsum([tokens for _, tokens, _ in rows], dtype=np.intp)
    starts = np.concatenate([np.zeros(1, np.intp), ends[:-1]]) if rows else ends
    packed = np.frombuffer(b"".join(data for _, _, data in rows), dtype=np.uint8).reshape(-1, _bytes_each(row))
    matrix = np.unpackbits(packed, axis=1, count=row.token_dims).view(np.int8)
    matrix *= np.int8(2 * sign_value(row.token_dims))
    matrix -= np.int8(sign_value(row.token_dims))
    return TokenRows(tuple(key for key, _, _ in rows), starts, matrix)


def _bytes_each(row: SpaceRow) -> int:
    return max(1, -(-row.token_dims // 8))


def token_bytes(connection: sqlite3.Connection, row: SpaceRow) -> int:
    """See `VectorIndex.token_bytes`; the index holds what is needed."""
    (tokens,) = connection.execute(
        "SELECT coalesce(sum(tokens), 0) FROM token_vectors INDEXED BY token_vectors_by_passage WHERE space_id = ?",
        (row.space_id,),
    ).fetchone()
    return int(tokens) * _bytes_each(row)

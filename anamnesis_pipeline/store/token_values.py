"""Token vectors as they are stored, the same for every backend: of each number its sign, as one bit. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch
from anamnesis_pipeline.store.base import TokenRows

Tokens = NDArray[np.int8]

Stored = tuple[int, int, bytes]
"""Passage id, number of token vectors, their bits."""


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


def check_tokens(space: str, dims: int, tokens: Mapping[int, Tokens]) -> None:
    """:raises DimensionMismatch: some have another width than the space's."""
    for found in tokens.values():
        if found.shape[1] != dims:
            raise DimensionMismatch(f"space {space} holds {dims}-d token vectors and was given shape {found.shape}")


def packed(tokens: Tokens) -> bytes:
    """The bits of the token vectors of one passage, shape (tokens, dims); each begins at a byte."""
    return np.packbits(tokens > 0, axis=1).tobytes()


def token_rows(rows: Sequence[Stored], dims: int) -> TokenRows:
    """The token vectors of several passages."""
    ends = np.cumsum([tokens for _, tokens, _ in rows], dtype=np.intp)
    starts = np.concatenate([np.zeros(1, np.intp), ends[:-1]]) if rows else ends
    bits = np.frombuffer(b"".join(data for _, _, data in rows), dtype=np.uint8).reshape(-1, bytes_each(dims))
    return TokenRows(tuple(key for key, _, _ in rows), starts, bits, dims)


def bytes_each(dims: int) -> int:
    """Bytes of one token vector."""
    return max(1, -(-dims // 8))

"""Token vectors for late interaction: how they are compressed, and how the projection is learned. Pure.

Of a passage only the signs of 256 rotated numbers are stored, 32 bytes a token: at that size more numbers of one bit
approximate the full vectors better than fewer ones of more bits (docs/decisions/0013-token-vectors.md). A query keeps
its numbers, so that only one side is coarse.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TOKEN_DIMS = 256
"""Width that token vectors are projected to."""
TURNS = 20
"""Rounds of rotating a projection; later ones change little."""
QUIET = 0.1
"""Weight of a piece without meaning alone, a function word or a mark; others have 1. Such pieces of passages are not
stored: they are half of all.
"""

Rows = NDArray[np.float32]
"""Shape (tokens, dims); a row's length is its weight, 1 or QUIET."""
Projection = NDArray[np.float32]
"""Shape (width, dims), with orthogonal columns of unit length."""


def unit_rows(rows: NDArray[np.float32]) -> Rows:
    """Normalize each row; a row of zeros stays one."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms == 0, 1, norms), dtype=np.float32)


def project(rows: Rows, projection: Projection) -> Rows:
    """Project rows to another width, again of unit length."""
    return unit_rows(rows @ projection)


def of_query(rows: Rows) -> Rows:
    """Return a query's token vectors in the form for comparison: all, float32; their lengths are their shares of the
    query, and sum to 1. Without any, return one of zeros.
    """
    if not len(rows):
        return np.zeros((1, rows.shape[1]), dtype=np.float32)
    return np.asarray(rows / max(float(np.linalg.norm(rows, axis=1).sum()), 1e-9), dtype=np.float32)


def of_passage(rows: Rows) -> NDArray[np.int8]:
    """Return a passage's token vectors in the stored form: the signs, 1 or -1, of those with meaning, or of all if none
    has. At least one row; that of a text without any token means nothing.
    """
    if not len(rows):
        return np.full((1, rows.shape[1]), -1, dtype=np.int8)
    loud = np.linalg.norm(rows, axis=1) > (1 + QUIET) / 2
    return np.where((rows[loud] if loud.any() else rows) > 0, 1, -1).astype(np.int8)


def learn_projection(samples: Sequence[Rows], dims: int) -> Projection:
    """Return the projection that preserves most of these tokens (PCA), rotated so that their signs are as near to them
    as possible (Gong and Lazebnik, "Iterative Quantization", CVPR 2011). Deterministic.

    :param samples: unit token vectors of some texts, all of one width.
    :param dims: at most that width.
    """
    rows = np.concatenate(samples).astype(np.float64)
    _, axes = np.linalg.eigh(rows.T @ rows)
    kept = axes[:, ::-1][:, :dims]
    flat = unit_rows((rows @ kept).astype(np.float32))
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((dims, dims)).astype(np.float32))
    for _ in range(TURNS):
        left, _, right = np.linalg.svd(np.where(flat @ turn > 0, np.float32(1), np.float32(-1)).T @ flat)
        turn = (left @ right).T
    return np.ascontiguousarray(kept @ turn, dtype=np.float32)

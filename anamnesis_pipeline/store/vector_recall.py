"""How much of what is nearest a search finds: its answers against an exact scan. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

SAME_SCORE = 1e-5
"""Scores of one pair differ by less, whatever else was multiplied at once."""


def kth_scores(pages: Iterable[Vectors], queries: Vectors, k: int) -> NDArray[np.float32]:
    """The k-th highest cosine of each query, shape (len(queries),); -inf where there are fewer than k vectors.

    :param pages: vectors, shape (n, dim) each; one is held at a time.
    :param queries: shape (m, dim).
    """
    best: Vectors = np.full((len(queries), 1), -np.inf, np.float32)
    for vectors in pages:
        scores = np.concatenate([best, queries @ vectors.T], axis=1)
        cut = max(scores.shape[1] - k, 0)
        best = np.partition(scores, cut, axis=1)[:, cut:]
    return np.asarray(best.min(axis=1), np.float32)


def share_found(found: Sequence[Sequence[float]], wanted: NDArray[np.float32], k: int) -> float:
    """Share of the k nearest that was found, in [0, 1], over all queries.

    Told by score and not by id: of equal texts, any one is as near as the others.

    :param found: the scores of each query's answer.
    :param wanted: the k-th highest score of each query.
    """
    hits = [
        sum(bool(score >= least - SAME_SCORE) for score in scores) for scores, least in zip(found, wanted, strict=True)
    ]
    return float(sum(min(hit, k) for hit in hits)) / (k * len(hits))

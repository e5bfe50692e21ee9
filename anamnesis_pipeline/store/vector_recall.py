"""How much of what is nearest a search finds, its answers against an exact scan, and which vectors are alike. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

SAME_SCORE = 1e-5
"""Scores of one pair differ by less, whatever else was multiplied at once."""
EXACT_BELOW = 0.98
"""Recall at 10 of an index below which searches compare every vector instead."""
SAMPLES = 100
"""Vectors that are looked for in order to measure it."""
POOL = 20
"""Times as many vectors are looked through for such that are unlike: those that are alike find each other in any graph.
"""
ALIKE = 0.97
"""Cosine from which two vectors count as nearly equal."""


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


def first_alike(vectors: Vectors) -> NDArray[np.intp]:
    """For each vector the position of the one it is alike: of the first of those that are alike none before; its own
    where there is none.

    :param vectors: unit vectors of shape (n, dim); n squared numbers are held.
    """
    firsts = np.arange(len(vectors))
    alike = np.tril(vectors @ vectors.T >= ALIKE, -1)
    for place in np.flatnonzero(alike.any(axis=1)):
        earlier = np.flatnonzero(alike[place] & (firsts == np.arange(len(firsts))))
        firsts[place] = earlier[0] if len(earlier) else place
    return firsts


def spread(count: int, samples: int) -> NDArray[np.intp]:
    """Up to `samples` of `count` positions, ascending, evenly spread."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(samples, count)).astype(np.intp))


def unlike(vectors: Vectors, samples: int) -> Vectors:
    """Up to `samples` of these unit vectors, each as unlike those before it as possible: however many are alike, the
    others are among them.
    """
    chosen: list[int] = []
    nearest = np.full(len(vectors), -np.inf, np.float32)
    for _ in range(min(samples, len(vectors))):
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
        nearest[chosen] = np.inf
    return vectors[chosen]

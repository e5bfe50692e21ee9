"""Layout of episodes in two dimensions by content. Pure and deterministic.

Some thousand episodes are landmarks, laid out by t-SNE (van der Maaten and Hinton, JMLR 2008); all others are placed
between their most similar landmarks. The cost grows with the landmarks squared, and linearly with the episodes.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Places = NDArray[np.float32]
"""Shape (n, 2)."""

LANDMARKS = 2_000
DIMENSIONS = 50
"""Principal components given to t-SNE; the rest is noise and costs time."""
PERPLEXITY = 30
ITERATIONS = 750
NEAREST = 8
"""Landmarks between which an episode is placed."""
SHARPNESS = 20.0
"""Weight of similarity: a cosine lower by 0.1 gives e^-2 of the weight."""
SIDE = 65_535
MARGIN = 0.02
"""Share of a side left free at every edge."""
SEED = 20_080_901
JITTER = 1e-4


def rank_of(episode_id: str) -> int:
    """Return a number in [0, 2^63) unrelated to the content: the episodes with the smallest are a sample that changes
    little as others come.
    """
    return int.from_bytes(hashlib.blake2b(episode_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1


class Sample:
    """The episodes with the smallest ranks of all added, with their vectors; holds at most twice `most`."""

    def __init__(self, most: int, dim: int) -> None:
        self._most = most
        self.ranks = np.empty(0, np.int64)
        self.vectors: Vectors = np.empty((0, dim), np.float32)

    def add(self, ranks: NDArray[np.int64], vectors: Vectors) -> None:
        """Add episodes; `vectors` has shape (len(ranks), dim)."""
        self.ranks = np.concatenate([self.ranks, ranks])
        self.vectors = np.concatenate([self.vectors, vectors])
        if len(self.ranks) > 2 * self._most:
            self._cut()

    def taken(self) -> tuple[NDArray[np.int64], Vectors]:
        """Return ranks, ascending, and vectors; at most `most`."""
        self._cut()
        return self.ranks, self.vectors

    def _cut(self) -> None:
        first = np.argsort(self.ranks, kind="stable")[: self._most]
        self.ranks, self.vectors = self.ranks[first], self.vectors[first]


def laid_out(vectors: Vectors) -> Places:
    """Return the places of landmarks; `vectors` has shape (n, dim), n >= 4."""
    from sklearn.decomposition import PCA  # noqa: PLC0415 - takes a second, which loading the definitions does not need
    from sklearn.manifold import TSNE  # noqa: PLC0415

    count, dim = vectors.shape
    # identical episodes would share one point, on which the tree of t-SNE recurses for ever
    apart = vectors + np.random.default_rng(SEED).normal(0, JITTER, vectors.shape)
    reduced = PCA(min(DIMENSIONS, count - 1, dim), svd_solver="full").fit_transform(apart)
    perplexity = min(PERPLEXITY, (count - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, max_iter=ITERATIONS, init="pca", random_state=SEED, n_jobs=1)
    return np.asarray(tsne.fit_transform(reduced), np.float32)


def placed(vectors: Vectors, landmarks: Vectors, places: Places) -> Places:
    """Return the places of episodes among their most similar landmarks; unit vectors, shapes (n, dim) and (m, dim)."""
    likeness = vectors @ landmarks.T
    nearest = min(NEAREST, likeness.shape[1])
    found = np.argpartition(-likeness, nearest - 1, axis=1)[:, :nearest]
    cosines = np.take_along_axis(likeness, found, axis=1)
    weights = np.exp(SHARPNESS * (cosines - cosines.max(axis=1, keepdims=True)))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(np.einsum("nk,nkd->nd", weights, places[found]), np.float32)


def scaled(places: Places) -> NDArray[np.uint16]:
    """Return places as integers of 0 to `SIDE`, in proportion, centred in the square."""
    low, high = places.min(axis=0), places.max(axis=0)
    extent = max(float((high - low).max()), 1e-9)
    middled = (places - (low + high) / 2) / extent * (1 - 2 * MARGIN) + 0.5
    return np.asarray(np.clip(np.rint(middled * SIDE), 0, SIDE), np.uint16)


def by_project(projects: NDArray[np.int64], passages: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the order that groups points by project, then passage."""
    return np.lexsort((passages, projects))


def most_first(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return each project's rank by episode count, largest first; ties keep their order."""
    places = np.empty(len(counts), np.int64)
    places[np.argsort(-np.asarray(counts, np.int64), kind="stable")] = np.arange(len(counts))
    return places

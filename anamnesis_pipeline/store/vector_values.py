"""What is computed of vectors, the same for every backend: stored forms, recall, middles of episodes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import DimensionMismatch
from anamnesis_pipeline.store.contracts import EpisodeMiddles, TokenRows
from anamnesis_pipeline.store.records.spaces import StoredSpace

Vectors = NDArray[np.float32]
Tokens = NDArray[np.int8]

STORED = np.dtype("<f2")
"""Of the numbers of a vector in SQLite and in copies; MongoDB holds the same ones, wider."""


def check_width(space: StoredSpace, shape: tuple[int, ...], dimensions: int) -> None:
    """:raises DimensionMismatch: the space's vectors have another width."""
    if len(shape) != dimensions or shape[-1] != space.dim:
        raise DimensionMismatch(
            f"space {space.key} holds {space.dim}-d vectors and was given shape {shape}; use the model of the space"
        )


def vectors_by_passage(passage_ids: Sequence[int], vectors: Vectors, stored: np.dtype[Any]) -> dict[int, NDArray[Any]]:
    """Passage id -> its vector in the numbers of `STORED`, written as `stored`.

    :raises ValueError: there are not as many as passages.
    """
    if len(passage_ids) != len(vectors):
        raise ValueError(f"{len(passage_ids)} passage ids came with {len(vectors)} vectors")
    return dict(zip(passage_ids, np.asarray(vectors).astype(STORED).astype(stored, copy=False), strict=True))


def from_blobs(blobs: Sequence[bytes], dim: int) -> Vectors:
    """Vectors of `STORED` as one matrix, shape (len(blobs), dim)."""
    return np.frombuffer(b"".join(blobs), dtype=STORED).astype(np.float32).reshape(len(blobs), dim)


def best_first(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Positions of the k highest scores, best first."""
    if k >= len(scores):
        return np.argsort(-scores, kind="stable")
    top = np.argpartition(-scores, k)[:k]
    return top[np.argsort(-scores[top], kind="stable")]


# --- token vectors: of each number its sign, as one bit --------------------------------------------------

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


# --- how much of what is nearest a search finds, and which vectors are alike -----------------------------


SAME_SCORE = 1e-5
"""Scores of one pair differ by less, whatever the batch."""
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


# --- middles of episodes: the direction of the mean of their passages' vectors ---------------------------


def middles_of(
    episodes: Sequence[tuple[str, str]],
    rows: Sequence[tuple[int, int]],
    vectors: Vectors,
    after: int | None,
) -> EpisodeMiddles:
    """The middles of those of `episodes` (id, project) that have a vector.

    :param rows: of each vector, which of the episodes it is of, by position, and its passage; by episode, in order.
    :param vectors: shape (len(rows), dim).
    """
    owners = np.array([owner for owner, _ in rows], np.intp)
    held, first, place = np.unique(owners, return_index=True, return_inverse=True)
    sums = np.zeros((len(held), vectors.shape[1]), np.float32)
    np.add.at(sums, place, vectors)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return EpisodeMiddles(
        tuple(episodes[owner][0] for owner in held),
        tuple(episodes[owner][1] for owner in held),
        tuple(rows[row][1] for row in first),
        np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0),
        after,
    )

"""How well the words of a passage, each as the model read it in its place, answer the words of a question. Pure."""

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.base import TokenRows

_ONE = 127
"""The int8 that stands for 1.0."""


def max_similarities(query: NDArray[np.float32], tokens: TokenRows) -> dict[int, float]:
    """Passage id -> the cosines of its nearest tokens to each of the query's, weighted and summed; in [-1, 1].

    Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction", SIGIR
    2020.

    :param query: shape (tokens, dims); a row's length is its weight, and the weights sum to 1.
    """
    if not tokens.passage_ids:
        return {}
    similar = similarities(query, tokens.matrix)
    nearest = np.maximum.reduceat(similar, tokens.starts, axis=0)
    return dict(zip(tokens.passage_ids, nearest.sum(axis=1).tolist(), strict=True))


def similarities(query: NDArray[np.float32], rows: NDArray[np.int8]) -> NDArray[np.float32]:
    """The cosine of each stored token to each of the query's, times that one's weight, shape (rows, tokens)."""
    return np.asarray(rows.astype(np.float32) @ (query.T / _ONE), dtype=np.float32)

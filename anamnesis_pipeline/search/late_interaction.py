"""How well the words of a passage, each as the model read it in its place, answer the words of a question. Pure."""

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.contracts import TokenRows

_ONE = 127
"""The int8 that stands for 1.0."""
ROWS_AT_ONCE = 384
"""Stored tokens that are made floats at a time: those of all candidates at once would take megabytes for each search.
By multiples of 12 OpenBLAS adds up as it does over all of them.
"""


def max_similarities(query: NDArray[np.float32], tokens: TokenRows) -> dict[int, float]:
    """Passage id -> the cosines of its nearest tokens to each of the query's, weighted and summed; in [-1, 1].

    Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction", SIGIR
    2020.

    :param query: shape (tokens, dims); a row's length is its weight, and the weights sum to 1.
    """
    nearest = np.full((len(tokens.starts), len(query)), -np.inf, dtype=np.float32)
    for start in range(0, len(tokens.bits), ROWS_AT_ONCE):
        similar = similarities(query, tokens.numbers(start, start + ROWS_AT_ONCE))
        first, last = np.searchsorted(tokens.starts, [start, start + len(similar) - 1], side="right")
        of_these, begin = nearest[first - 1 : last], np.maximum(tokens.starts[first - 1 : last] - start, 0)
        np.maximum(of_these, np.maximum.reduceat(similar, begin, axis=0), out=of_these)
    return dict(zip(tokens.passage_ids, nearest.sum(axis=1).tolist(), strict=True))


def similarities(query: NDArray[np.float32], rows: NDArray[np.int8]) -> NDArray[np.float32]:
    """The cosine of each stored token to each of the query's, times that one's weight, shape (rows, tokens)."""
    return np.asarray(rows.astype(np.float32) @ (query.T / _ONE), dtype=np.float32)

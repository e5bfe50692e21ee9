"""Late interaction: match the contextual token vectors of a passage with the words of a question. Pure."""

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.store.contracts import TokenRows

_ONE = 127
"""The int8 value of 1.0."""
ROWS_AT_ONCE = 384
"""Stored tokens converted to floats at a time: those of all candidates at once would take megabytes per search. With
multiples of 12 OpenBLAS adds up in the same order as over all of them.
"""


def max_similarities(query: NDArray[np.float32], tokens: TokenRows) -> dict[int, float]:
    """Return passage ID -> the cosines of its nearest tokens to each of the query's, weighted and summed; in [-1, 1].

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
    """Return the cosine of each stored token and each query token, times the latter's weight, shape (rows, tokens)."""
    return np.asarray(rows.astype(np.float32) @ (query.T / _ONE), dtype=np.float32)

"""Split texts longer than a model's window into windows, whose vectors are averaged. Pure.

A model reads only its first `window` word pieces and silently drops the rest. Every window gets the special pieces that
frame a whole text; the text's vector is the mean of its windows' vectors, weighted by the pieces in each, at unit
length.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def cut_windows(ids: Sequence[int], lead: Sequence[int], tail: Sequence[int], window: int) -> list[list[int]]:
    """Return the minimum number of windows that hold one text; a text that fits is its only window.

    :param ids: word pieces of the text, framed by `lead` and `tail`, the special ones that every text gets.
    :param window: maximum pieces in a window, including special ones.
    :raises ValueError: the special pieces leave no space.
    """
    if len(ids) <= window:
        return [list(ids)]
    room = window - len(lead) - len(tail)
    if room < 1:
        raise ValueError(f"a window of {window} pieces has no room beside {len(lead) + len(tail)} special ones")
    body = ids[len(lead) : len(ids) - len(tail)]
    return [[*lead, *body[start : start + room], *tail] for start in range(0, len(body), room)]


def average_windows(vectors: NDArray[np.float32], weights: Sequence[int], counts: Sequence[int]) -> NDArray[np.float32]:
    """Return one unit vector per text.

    :param vectors: shape (windows, dim), unit length, consecutive windows of each text.
    :param weights: pieces in each window.
    :param counts: windows of each text, at least one.
    """
    if len(counts) == len(vectors):
        return vectors
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)
    sums = np.add.reduceat(vectors * np.asarray(weights, dtype=np.float32)[:, None], starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.where(norms == 0, 1, norms), dtype=np.float32)


def join_windows(rows: Mapping[int, NDArray[np.float32]], counts: Sequence[int]) -> list[NDArray[np.float32]]:
    """Return the vectors of each text's pieces, window after window; windows do not overlap.

    :param rows: shape (pieces, dims) for each window, consecutive windows of each text.
    :param counts: windows of each text, at least one.
    """
    ends = np.cumsum(counts)
    firsts = ends - np.asarray(counts)
    return [
        np.concatenate([rows[number] for number in range(first, end)]) for first, end in zip(firsts, ends, strict=True)
    ]

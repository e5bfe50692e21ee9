"""What episodes say on the whole, as the direction of the mean of their passages' vectors. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EpisodeMiddles:
    """Of some episodes that have vectors, in the order in which they came. `passage_ids`: the first passage of each
    that has one. `vectors`: shape (episodes, dim), unit length, or nothing but zeros where the passages cancel out.
    `after`: behind which number to ask on; None: there are no more episodes.
    """

    episode_ids: tuple[str, ...]
    projects: tuple[str, ...]
    passage_ids: tuple[int, ...]
    vectors: Vectors
    after: int | None


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

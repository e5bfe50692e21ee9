"""The contract of a store about embedding spaces; part of that in base.py."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import Space


class SpaceRecords(Protocol):
    """The embedding spaces and which one is active."""

    def put(self, space: Space) -> bool:
        """Add; False when the key exists. What is stored of an existing space is left alone.

        :raises SpaceConflict: it is to be active or building, and another one is.
        """

    def all(self) -> list[Space]:
        """Every space, oldest first."""

    def active(self) -> Space | None:
        """The space that answers searches."""

    def start(self, key: str) -> None:
        """Make an `added` or `retired` space the one that is `building`, in one immediate transaction.

        :raises SpaceConflict: another one is building, or this one is building or active.
        :raises SpaceNotFound: no such space.
        """

    def stop(self, key: str, status: str = "added") -> None:
        """Make a `building` space `added` again, or `retired`; what it has stays. Any other space is left alone."""

    def record_precision(self, key: str, precision: str, fidelity: float | None) -> None:
        """Note in which arithmetic the space's vectors are made, and how close that is to fp32. Once it has vectors,
        what was noted of them stays.
        """

    def keep_projection(self, key: str, projection: NDArray[np.float32]) -> NDArray[np.float32]:
        """Keep what the space's token vectors are projected by, shape (width, token_dims), for as long as the space
        exists. Returns what is kept: once there is one, that stays.

        :raises DimensionMismatch: it has another width than the space's token vectors.
        :raises SpaceNotFound: no such space.
        """

    def projection(self, key: str) -> NDArray[np.float32] | None:
        """What `keep_projection` kept; None before.

        :raises SpaceNotFound: no such space.
        """

    def activate(self, key: str, *, only_from: str | None = None) -> bool:
        """Switch in one immediate transaction, if nothing lacks a vector there (or nothing is active yet).

        The space active before becomes `retired`. False when something is still missing.

        :param only_from: the status in which the caller saw the space; False when it has another by now.
        :raises SpaceNotFound: no such space.
        """

    def drop(self, key: str) -> None:
        """Delete a space that is not active, with its vectors and index.

        :raises SpaceConflict: it is active.
        """

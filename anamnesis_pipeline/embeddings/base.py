"""The contract of an embedder."""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Role = Literal["query", "passage"]


class Embedder(Protocol):
    """Texts to vectors. Safe to share between threads."""

    @property
    def model_id(self) -> str:
        """The model's name as settings give it."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Shape (len(texts), dim), unit length. The model's prefix for `role` is added here.

        A text longer than the model's window is never cut short: its windows' vectors are averaged (see windows.py).
        :raises RetryLater: the model is still loading, or too many calls wait.
        :raises UnknownModel: the model could not be loaded.
        :raises InvalidVectors: the model makes vectors that are no numbers; none is returned.
        """

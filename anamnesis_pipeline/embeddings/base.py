"""The interface of an embedder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Role = Literal["query", "passage"]
ROLES: tuple[Role, ...] = ("query", "passage")


@dataclass(frozen=True, slots=True)
class Embedded:
    """The result of one model pass over some texts. `vectors` has shape (len(texts), dim), unit length.

    `tokens`: for each text its token vectors, shape (tokens, dims), at least one: of queries float32, whose lengths are
    their shares of the query and sum to 1, of passages int8, their signs. None: the space has no token vectors.
    """

    vectors: NDArray[np.float32]
    tokens: Sequence[NDArray[np.int8] | NDArray[np.float32]] | None


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """A query's vector, shape (dim,), unit length, and token vectors, shape (tokens, dims), whose lengths are their
    shares of the query and sum to 1. All float32. `tokens` is None where the space has no token vectors.
    """

    vector: NDArray[np.float32]
    tokens: NDArray[np.float32] | None = None


def query_vectors(embedded: Embedded) -> QueryVectors:
    """Return the vectors of the only embedded query."""
    tokens = embedded.tokens[0].astype(np.float32, copy=False) if embedded.tokens is not None else None
    return QueryVectors(embedded.vectors[0], tokens)


class Embedder(Protocol):
    """Converts texts to vectors. Thread-safe."""

    @property
    def model_id(self) -> str:
        """Return the model's name as in the settings."""

    @property
    def dim(self) -> int:
        """Return the width of a vector."""

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), dim), unit length. Adds the model's prefix for `role`.

        A text longer than the model's window is never truncated: its windows' vectors are averaged (see
        `transformer_model.cut_windows`).
        :raises RetryLater: the model is still loading, or too many calls wait.
        :raises UnknownModel: the model could not be loaded.
        :raises InvalidVectors: the model makes vectors with NaN or zero length; none is returned.
        """

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        """Return the same vectors, and token vectors from the same pass. The model's prefix and special pieces have
        none; of a longer text, those of all its windows are concatenated. Raises the same errors as `embed`.
        """


class EmbeddingPool(Embedder, Protocol):
    """An Embedder that is loaded, uses resources of this machine or a service, and is closed at the end."""

    @property
    def device(self) -> str:
        """Return where the model computes: `cpu`, `cuda`, or `service`."""

    @property
    def precision(self) -> str | None:
        """Return the arithmetic of the model; None before it is loaded."""

    @property
    def ready(self) -> bool:
        """Return whether it is loaded."""

    @property
    def depth(self) -> int:
        """Return the number of waiting work items."""

    @property
    def cores(self) -> tuple[int, ...]:
        """Return the cores in use; a service uses none."""

    @property
    def workers(self) -> int:
        """Return the number of threads that embed."""

    def load(self) -> None:
        """Load it unless it is loaded.

        :raises AnamnesisError: loading failed.
        """

    def use_cores(self, cores: Sequence[int]) -> None:
        """Use other cores from now on.

        :raises BadSetting: this process may not use one of them.
        """

    def close(self) -> None:
        """Finish the waiting work and release the model; calling twice is harmless."""

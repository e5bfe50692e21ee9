"""The contract of an embedder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Role = Literal["query", "passage"]
ROLES: tuple[Role, ...] = ("query", "passage")


@dataclass(frozen=True, slots=True)
class Embedded:
    """What one pass of the model makes of some texts. `vectors` has shape (len(texts), dim), unit length.

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
    """Those of the one query that was embedded."""
    tokens = embedded.tokens[0].astype(np.float32, copy=False) if embedded.tokens is not None else None
    return QueryVectors(embedded.vectors[0], tokens)


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

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        """The same vectors, and token vectors from the same pass. The model's prefix and special pieces have none; of
        a text longer than the window those of all its windows follow each other. Raises as `embed` does.
        """


class EmbeddingPool(Embedder, Protocol):
    """An Embedder that has to be loaded, works with what this machine or a service has, and is closed in the end."""

    @property
    def device(self) -> str:
        """Where the model computes: `cpu`, `cuda`, or `service`."""

    @property
    def precision(self) -> str | None:
        """The arithmetic that it computes in; None before it is loaded."""

    @property
    def ready(self) -> bool:
        """Whether it is loaded."""

    @property
    def depth(self) -> int:
        """Pieces of work that wait."""

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores in use; a service uses none."""

    @property
    def workers(self) -> int:
        """Threads that embed."""

    def load(self) -> None:
        """Be ready; harmless when it is.

        :raises AnamnesisError: why it cannot be.
        """

    def use_cores(self, cores: Sequence[int]) -> None:
        """Work on other cores from now on.

        :raises BadSetting: this process may not use one of them.
        """

    def close(self) -> None:
        """Finish the work that waits and let go of the model; calling twice is harmless."""

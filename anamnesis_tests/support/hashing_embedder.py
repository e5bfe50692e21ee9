"""A deterministic embedder without a model, for tests.

Each word adds a pseudo-random direction, so texts that share words are near each other (Weinberger et al., "Feature
Hashing for Large Scale Multitask Learning", ICML 2009).
"""

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.token_vectors import QUIET, of_passage, of_query
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Signed feature hashing of lower-cased words."""

    def __init__(self, dim: int = 64, token_dims: int = 0) -> None:
        """:param token_dims: width of a word's token vector, at most 512; 0: there are none."""
        self.dim = dim
        self.model_id = f"hashing-{dim}"
        self._token_dims = token_dims

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), dim), unit length; `role` has no effect."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in _words(text) or [b""]:
                digest = hashlib.blake2b(word, digest_size=8).digest()
                row[int.from_bytes(digest[:4], "big") % self.dim] += 1.0 if digest[4] & 1 else -1.0
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[norms[:, 0] == 0, 0] = 1.0
        norms[norms == 0] = 1.0
        return np.asarray(vectors / norms, dtype=np.float32)

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        """Return the same vectors and a token vector per word."""
        vectors = self.embed(texts, role)
        if not self._token_dims:
            return Embedded(vectors, None)
        rows = [word_directions(text, self._token_dims) for text in texts]
        if role == "query":
            return Embedded(vectors, [of_query(found) for found in rows])
        return Embedded(vectors, [of_passage(found) for found in rows])


def word_directions(text: str, dims: int) -> NDArray[np.float32]:
    """Return shape (words, dims): each word's pseudo-random direction, independent of its context, weighted."""
    words = _words(text)
    digests = b"".join(hashlib.blake2b(word, digest_size=64).digest() for word in words)
    bits = np.unpackbits(np.frombuffer(digests, dtype=np.uint8).reshape(len(words), 64), axis=1)[:, :dims]
    weights = np.array([QUIET if word.decode("utf-8", "replace") in STOP_WORDS else 1.0 for word in words])
    return np.asarray((bits * 2.0 - 1.0) / np.sqrt(dims) * weights[:, None], dtype=np.float32)


def _words(text: str) -> list[bytes]:
    return [word.encode("utf-8", "replace") for word in _WORD.findall(text.lower())]

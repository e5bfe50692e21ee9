"""A deterministic embedder without a model: tests, and nothing else that matters.

Each word adds a pseudo-random direction, so texts that share words are near each other (Weinberger et al.,
"Feature Hashing for Large Scale Multitask Learning", ICML 2009).
"""

import hashlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import Role

_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Signed feature hashing of lower-cased words."""

    def __init__(self, dim: int = 64) -> None:
        self.dim = dim
        self.model_id = f"hashing-{dim}"

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Shape (len(texts), dim), unit length; `role` changes nothing."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in _WORD.findall(text.lower()) or [""]:
                digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
                row[int.from_bytes(digest[:4], "big") % self.dim] += 1.0 if digest[4] & 1 else -1.0
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[norms[:, 0] == 0, 0] = 1.0
        norms[norms == 0] = 1.0
        return np.asarray(vectors / norms, dtype=np.float32)

"""Word pieces of a text and where to cut it. Measured in MiniLM's vocabulary whatever the model: a passage is the
same passage in every space.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from tokenizers import Tokenizer

from anamnesis_pipeline.embeddings.models import bundled_minilm

Span = tuple[int, int]


class PieceCounter(Protocol):
    """Finds the word pieces of texts."""

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """For each text the (start, end) characters of its word pieces, in order."""


class MiniLmPieces:
    """MiniLM's own tokenizer, from the bundled files; no torch."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(bundled_minilm() / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """See PieceCounter."""
        return [found.offsets for found in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]


@lru_cache(maxsize=1)
def minilm_pieces() -> MiniLmPieces:
    """The one tokenizer of this process (loading takes some 50 ms)."""
    return MiniLmPieces()

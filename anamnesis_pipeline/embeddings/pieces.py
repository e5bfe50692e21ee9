"""Word pieces of a text and where to cut it. Measured in MiniLM's vocabulary whatever the model: a passage is the
same passage in every space.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from tokenizers import Tokenizer

from anamnesis_pipeline.embeddings.models import bundled_minilm
from anamnesis_pipeline.stop_words import STOP_WORDS

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

    def kept(self, texts: Sequence[str]) -> list[list[Span]]:
        """As `spans`, but only of the pieces whose token vectors are kept of a passage, one for each."""
        found = []
        for encoded in self._tokenizer.encode_batch(list(texts), add_special_tokens=False):
            said = [span for piece, span in zip(encoded.tokens, encoded.offsets, strict=True) if not is_quiet(piece)]
            found.append(said or encoded.offsets)
        return found


@lru_cache(maxsize=100_000)  # more than a vocabulary has
def is_quiet(piece: str) -> bool:
    """Whether a word piece says nothing alone: a function word, or a mark. Pieces inside a word say something."""
    word = piece.lstrip("\u2581\u0120").lower()  # how other tokenizers than BERT's mark the begin of a word
    return word in STOP_WORDS or not any(character.isalnum() for character in word)


@lru_cache(maxsize=1)
def minilm_pieces() -> MiniLmPieces:
    """The one tokenizer of this process (loading takes some 50 ms)."""
    return MiniLmPieces()

"""Word pieces of a text, for splitting it. Measured in MiniLM's vocabulary for any model, so that passages are the same
in every space.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from tokenizers import Tokenizer

from anamnesis_pipeline.embeddings.models import bundled_minilm
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

Span = tuple[int, int]


class PieceCounter(Protocol):
    """Finds the word pieces of texts."""

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return for each text the (start, end) characters of its word pieces, in order."""


class MiniLmPieces:
    """MiniLM's own tokenizer, from the bundled files; no torch."""

    def __init__(self) -> None:
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(bundled_minilm() / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return for each text the spans of MiniLM's word pieces."""
        return [found.offsets for found in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def kept(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of only those pieces whose token vectors are stored for a passage, one for each."""
        found = []
        for encoded in self._tokenizer.encode_batch(list(texts), add_special_tokens=False):
            said = [span for piece, span in zip(encoded.tokens, encoded.offsets, strict=True) if not is_quiet(piece)]
            found.append(said or encoded.offsets)
        return found


@lru_cache(maxsize=100_000)  # more than a vocabulary has
def is_quiet(piece: str) -> bool:
    """Return whether a word piece has no meaning alone: a function word or a mark. Pieces inside a word have one."""
    word = piece.lstrip("\u2581\u0120").lower()  # markers of a word's beginning in other tokenizers than BERT's
    return word in STOP_WORDS or not any(character.isalnum() for character in word)


@lru_cache(maxsize=1)
def minilm_pieces() -> MiniLmPieces:
    """Return the only tokenizer of this process (loading takes about 50 ms)."""
    return MiniLmPieces()

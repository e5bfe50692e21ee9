"""Estimate tokens without a tokenizer, for processes that load none. Pure."""

import re

_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
_LETTERS, _DIGITS, _BEYOND_BMP = 5, 3, 3
"""Minimum average of letters and of digits per token; tokens of a character beyond the basic plane."""


def cost(text: str) -> int:
    """Return a high estimate for prose, code and IDs."""
    return sum(map(_cost, _PIECE.findall(text)))


def _cost(piece: str) -> int:
    if piece[0].isascii() and piece[0].isalnum():
        return -(-len(piece) // (_LETTERS if piece[0].isalpha() else _DIGITS))
    return _BEYOND_BMP if ord(piece[0]) > 0xFFFF else 1


def cut(text: str, tokens: int) -> str:
    """Return the beginning of a text of at most `tokens`, with an ellipsis if it is truncated."""
    left = tokens
    for piece in _PIECE.finditer(text):
        left -= _cost(piece[0])
        if left < 0:
            return text[: piece.start()].rstrip() + "…"
    return text

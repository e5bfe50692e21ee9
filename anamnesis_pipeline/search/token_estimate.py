"""How many tokens a text may cost, without a tokenizer: this runs where none is loaded. Pure."""

import re

_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
_LETTERS, _DIGITS, _BEYOND_BMP = 5, 3, 3
"""Letters or digits a token has at the least on average; tokens of a character beyond the basic plane."""


def cost(text: str) -> int:
    """An estimate on the high side for prose, code and ids."""
    return sum(map(_cost, _PIECE.findall(text)))


def _cost(piece: str) -> int:
    if piece[0].isascii() and piece[0].isalnum():
        return -(-len(piece) // (_LETTERS if piece[0].isalpha() else _DIGITS))
    return _BEYOND_BMP if ord(piece[0]) > 0xFFFF else 1


def cut(text: str, tokens: int) -> str:
    """The beginning of a text that costs at most `tokens`, with an ellipsis where something is left out."""
    left = tokens
    for piece in _PIECE.finditer(text):
        left -= _cost(piece[0])
        if left < 0:
            return text[: piece.start()].rstrip() + "…"
    return text

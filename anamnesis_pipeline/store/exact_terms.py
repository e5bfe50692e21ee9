"""The exact analyzer: a text as the literal terms it is found by. Pure.

A change here changes what the index of every existing store means, so it comes with a migration that rebuilds it.
"""

import re
from itertools import pairwise

_OUTER = re.compile(r"^\W+|\W+$")
_ATOMS = re.compile(r"[\w./:-]+")
_PIECES = re.compile(r"[^._/:-]+")


def exact_terms(text: str) -> str:
    """The terms of `text`, lower case, separated by spaces.

    Each run between white space is trimmed of outer punctuation; so are the runs inside it between brackets, quotes
    and the like; each of these is followed by its pieces at ``. _ - / :``, and, when there are more than two, by the
    neighbouring pieces in pairs, with which `billing.py` is found in `src/billing.py:44`.
    """
    return " ".join(term for token in text.lower().split() for term in _terms_of(_trimmed(token)))


def exact_phrases(word: str) -> list[str]:
    """The alternatives by which `word` is looked up, each a sequence of terms separated by spaces."""
    phrases = []
    for token in word.lower().split():
        if trimmed := _OUTER.sub("", token):
            phrases.append(trimmed)
            if pairs := _pairs(trimmed):
                phrases.append(" ".join(pairs))
    return phrases


def _trimmed(token: str) -> str:
    return token if token.isalnum() else _OUTER.sub("", token)  # most are, and need no look for marks


def _terms_of(token: str) -> list[str]:
    if not token:
        return []
    if token.isalnum():
        return [token]
    terms = [token]
    for match in _ATOMS.findall(token):
        atom = _OUTER.sub("", match)
        if atom != token and atom:
            terms.append(atom)
        pieces = _PIECES.findall(atom)
        if pieces != [atom]:
            terms += pieces
        terms += _pairs(atom)
    return terms


def _pairs(atom: str) -> list[str]:
    """Neighbouring pieces with what stands between them, when `atom` has three pieces or more."""
    spans = [match.span() for match in _PIECES.finditer(atom)]
    if len(spans) < 3:
        return []
    return [atom[start:end] for (start, _), (_, end) in pairwise(spans)]

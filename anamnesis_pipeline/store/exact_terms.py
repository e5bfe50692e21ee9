"""The exact analyzer: a text as the literal terms it is found by. Pure.

A change here changes what the index of every existing store means, so it comes with a migration that rebuilds it.
"""

import re
from itertools import pairwise

from anamnesis_pipeline.unspaced_scripts import is_unspaced, parted, phrase_of, terms_of_run

_OUTER = re.compile(r"^\W+|\W+$")
_ATOMS = re.compile(r"[\w./:-]+")
_PIECES = re.compile(r"[^._/:-]+")


def exact_terms(text: str) -> str:
    """The terms of `text`, lower case, separated by spaces.

    Each run between white space is trimmed of outer punctuation; so are the runs inside it between brackets, quotes
    and the like; each of these is followed by its pieces at ``. _ - / :``, and, when there are more than two, by the
    neighbouring pieces in pairs, with which `billing.py` is found in `src/billing.py:44`. A run of a script without
    spaces is its characters and their pairs, and parts what stands around it.
    """
    return " ".join(term for token in parted(text.lower()).split() for term in _terms_of(_trimmed(token)))


def exact_phrases(word: str) -> list[str]:
    """The alternatives by which `word` is looked up, each a sequence of terms separated by spaces."""
    phrases: list[str] = []
    for token in word.lower().split():
        if parted(token) != token:
            phrases += filter(None, [" ".join(phrase_of(exact_terms(token).split()))])
        elif trimmed := _OUTER.sub("", token):
            phrases.append(trimmed)
            if pairs := _pairs(trimmed):
                phrases.append(" ".join(pairs))
    return phrases


def _trimmed(token: str) -> str:
    return token if token.isalnum() or is_unspaced(token) else _OUTER.sub("", token)


def _terms_of(token: str) -> list[str]:
    if not token:
        return []
    if token.isascii() and token.isalnum():
        return [token]
    if is_unspaced(token):
        return terms_of_run(token)
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

"""German, French and Spanish: which of them a text is in, and the stems of its words. Pure.

The full-text index holds the words of such a text as stems behind the code of the language: `Rechnungen` as
`de0rechnung`. English and all other texts are indexed as they are, and stemmed by the index. A query looks for a word
in each form, so it needs no language, and the same letters in another language are another word.

A change here, or of the stemmers' version, changes the meaning of every existing index, so it needs a migration that
rebuilds it.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import Stemmer

from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS, STOP_WORDS_OF

CODES = {"german": "de", "french": "fr", "spanish": "es"}
ENOUGH, SHARE = 2, 1 / 8
"""Different stop words that tell a text's language, and their share of its words, at least: code has `font` and `els`.
Of 3,122 passages of English logs one is taken for French; at any share 23 are.
"""
SHORTEST_PART, MAX_COMPOUND = 4, 40
"""Letters of a part of a compound at least, and of a compound at most."""

_WORD = re.compile(r"(?<![^\W_])[a-zA-ZÀ-ÖØ-öø-ÿŒœŸẞ]+(?![^\W_])")
"""A word that can be stemmed: it has no digits, and no letters of other alphabets."""
_LETTERS = re.compile(r"[^\W\d_]+")
_ALL = {"english": STOP_WORDS, **STOP_WORDS_OF}
_LANGUAGES = {
    word: [language for language, words in _ALL.items() if word in words]
    for word in set().union(*_ALL.values())
    if len(word) > 1
}
"""Stop word -> its languages. Single letters are variables in code."""


class _Stemmers(threading.local):
    """Stemmers are not safe to share between threads."""

    def __init__(self) -> None:
        self.by_language = {language: Stemmer.Stemmer(language) for language in CODES}


_STEMMERS = _Stemmers()


def language_of(text: str) -> str | None:
    """Return the language that most stop words of the text belong to; None: English, too few, or as many of another."""
    words = _LETTERS.findall(text.lower())
    stop_words = [word for word in words if word in _LANGUAGES]
    found = Counter([language for word in stop_words for language in _LANGUAGES[word]])
    (language, most), (_, second) = [*found.most_common(2), ("", 0), ("", 0)][:2]
    if language not in CODES or most == second or most < SHARE * len(words):
        return None
    return language if len(set(stop_words) & STOP_WORDS_OF[language]) >= ENOUGH else None


def stemmed(text: str) -> str:
    """Return a text as indexed: the words of a German, French or Spanish one as stems behind the language's code."""
    language = language_of(unicodedata.normalize("NFC", text))
    return text if language is None else _in(language, text)


@lru_cache(maxsize=20_000)
def forms_of(word: str) -> Sequence[str]:
    """Return the forms that a word has in the index: as it is, and in each language."""
    return tuple(dict.fromkeys([word, *(_in(language, word) for language in CODES)]))


def splits_of(word: str) -> list[tuple[str, str]]:
    """Return the ways to split a word into two, each by its form in German texts. `s` and `n` between them are endings
    of the first for the stemmer, too.
    """
    if len(word) > MAX_COMPOUND or not _WORD.fullmatch(word):
        return []
    places = range(SHORTEST_PART, len(word) - SHORTEST_PART + 1)
    return [(_in("german", word[:at]), _in("german", word[at:])) for at in places]


def _in(language: str, text: str) -> str:
    stem, code = _STEMMERS.by_language[language].stemWord, CODES[language]
    text = unicodedata.normalize("NFC", text)
    return _WORD.sub(lambda word: f"{code}0{stem(word[0].lower())}", text)

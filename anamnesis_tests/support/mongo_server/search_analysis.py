"""Analyzers: from a text to the terms that an index keeps.

What each does is told at https://www.mongodb.com/docs/atlas/atlas-search/analyzers/ and its pages on tokenizers, token
filters and custom analyzers. Only those that the store's own definitions name are known.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import regex

from anamnesis_tests.support.mongo_server.search_errors import NotEmulated

Terms = list[str]
"""In order."""
Analyzer = Callable[[str], Terms]
Filter = Callable[[str], str]

MAX_TOKEN_LENGTH = 255
"""Characters; the white space tokenizer cuts what is longer."""

_SPACES = re.compile(r"[^\S\u00a0\u2007\u202f]+")

_WORDS = regex.compile(r"(?V1)[[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]--_]+")
r"""What Java's `(?U)[\W_]+` divides (https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/regex/Pattern.html):
letters, digits, marks, connecting punctuation and the two joiners; other numbers, such as a half, are no words.
"""

_FOLDED = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "ħ": "h"})


def analyzer_of(name: str, custom: Sequence[Mapping[str, Any]]) -> Analyzer:
    """The analyzer of a name, one of the index's own."""
    for definition in custom:
        if definition["name"] == name and "charFilters" not in definition:
            filters = [_filter(each) for each in definition.get("tokenFilters", ())]
            return _chain(_tokenizer(definition["tokenizer"]), filters)
    raise NotEmulated(f"the analyzer {name}")


def _chain(tokenizer: Analyzer, filters: Sequence[Filter]) -> Analyzer:
    def analyze(text: str) -> Terms:
        terms = tokenizer(text)
        for each in filters:
            terms = [each(term) for term in terms]
        return terms

    return analyze


def _tokenizer(definition: Mapping[str, Any]) -> Analyzer:
    longest = int(definition.get("maxTokenLength", MAX_TOKEN_LENGTH))
    match definition["type"]:
        case "whitespace":
            return lambda text: _cut(filter(None, _SPACES.split(text)), longest)
        case "regexSplit" if definition["pattern"] == r"(?U)[\W_]+":
            return _WORDS.findall
        case other:
            raise NotEmulated(f"the tokenizer {other}")


def _cut(tokens: Iterable[str], longest: int) -> list[str]:
    return [token[start : start + longest] for token in tokens for start in range(0, len(token), longest)]


def _filter(definition: Mapping[str, Any]) -> Filter:
    if definition["type"] not in _FILTERS:
        raise NotEmulated(f"the token filter {definition['type']}")
    return _FILTERS[definition["type"]]


def _without_marks(text: str) -> str:
    plain = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", plain)


def _folded(term: str) -> str:
    """As ICU's folding: also without case."""
    return term.lower() if term.isascii() else _without_marks(term.casefold()).translate(_FOLDED).casefold()


@lru_cache(maxsize=200_000)
def _porter(term: str) -> str:
    return str(porter_stemmer().stem(term, to_lowercase=False))


@lru_cache(maxsize=1)
def porter_stemmer() -> Any:
    """The library takes two seconds to load: only those who start a server pay that, and no search waits for it."""
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)


_FILTERS: dict[str, Filter] = {"lowercase": str.lower, "icuFolding": _folded, "porterStemming": _porter}

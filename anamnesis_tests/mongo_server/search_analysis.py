"""Analyzers: from a text to the terms that an index keeps.

What each does is told at https://www.mongodb.com/docs/atlas/atlas-search/analyzers/ and its pages on tokenizers, token
filters and custom analyzers. `NotEmulated` is raised for what MongoDB has and this does not.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from anamnesis_tests.mongo_server.search_errors import NotEmulated
from anamnesis_tests.mongo_server.search_patterns import java_pattern

Terms = list[str | None]
"""In order; None is a word that was left out, whose place remains."""
Analyzer = Callable[[str], Terms]
Filter = Callable[[Iterable[str | None]], Terms]

MAX_TOKEN_LENGTH = 255
"""Characters; the standard and the white space tokenizer cut what is longer."""

_ENGLISH_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
"""What `lucene.english` leaves out."""

_ALONE = "぀-ゟ㐀-䶿一-鿿豈-﫿"
"""Each of these is a word (https://unicode.org/reports/tr29/#Word_Boundaries, as Lucene's StandardTokenizer)."""
_MARKS = "̀-ͯ҃-҉֑-ֽؐ-ًؚ-ٰٟऀ-ः᪰-᫿᷀-᷿⃐-⃿︠-︯"
_LETTER = rf"(?:(?![\d_{_ALONE}])[\w{_MARKS}])"
_STANDARD = re.compile(
    rf"[{_ALONE}]|(?:{_LETTER}|[\d_]"
    rf"|(?<=[^\W\d_])['’.:·․‧](?={_LETTER})"
    r"|(?<=\d)['’.,;](?=\d))+"
)
_SPACES = re.compile(r"[^\S\u00a0\u2007\u202f]+")

_ASCII = str.maketrans({
    "ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ł": "l", "Ł": "L",
    "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH", "ħ": "h", "ı": "i", "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-",
    "—": "-",
})  # fmt: skip
_FOLDED = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "ħ": "h"})


def analyzer_of(name: str, custom: Sequence[Mapping[str, Any]] = ()) -> Analyzer:
    """The analyzer of a name: one of the index's own, or of those that are always there."""
    for definition in custom:
        if definition["name"] == name:
            return _custom(definition)
    if name not in _STOCK:
        raise NotEmulated(f"the analyzer {name}")
    tokenizer, filters = _STOCK[name]
    return _chain([], _tokenizer(tokenizer), [_filter(each) for each in filters])


_STOCK: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "lucene.standard": ({"type": "standard"}, [{"type": "lowercase"}]),
    "lucene.whitespace": ({"type": "whitespace"}, []),
    "lucene.keyword": ({"type": "keyword"}, []),
    "lucene.simple": ({"type": "letters"}, [{"type": "lowercase"}]),
    "lucene.english": (
        {"type": "standard"},
        [
            {"type": "englishPossessive"},
            {"type": "lowercase"},
            {"type": "stopword", "tokens": sorted(_ENGLISH_STOP_WORDS)},
            {"type": "porterStemming"},
        ],
    ),
}


def _custom(definition: Mapping[str, Any]) -> Analyzer:
    mappings = [_char_filter(each) for each in definition.get("charFilters", ())]
    filters = [_filter(each) for each in definition.get("tokenFilters", ())]
    return _chain(mappings, _tokenizer(definition["tokenizer"]), filters)


def _chain(
    mappings: Sequence[Callable[[str], str]], tokenizer: Callable[[str], list[str]], filters: Sequence[Filter]
) -> Analyzer:
    def analyze(text: str) -> Terms:
        for mapping in mappings:
            text = mapping(text)
        terms: Terms = list(tokenizer(text))
        for each in filters:
            terms = each(terms)
        return terms

    return analyze


def _char_filter(definition: Mapping[str, Any]) -> Callable[[str], str]:
    if definition["type"] == "mapping":
        replaced: Mapping[str, str] = definition["mappings"]
        pattern = re.compile("|".join(re.escape(key) for key in sorted(replaced, key=len, reverse=True)))
        return lambda text: pattern.sub(lambda found: replaced[found.group()], text)
    if definition["type"] == "icuNormalize":
        return lambda text: unicodedata.normalize("NFKC", text).casefold()
    raise NotEmulated(f"the character filter {definition['type']}")


def _tokenizer(definition: Mapping[str, Any]) -> Callable[[str], list[str]]:
    longest = int(definition.get("maxTokenLength", MAX_TOKEN_LENGTH))
    match definition["type"]:
        case "standard":
            return lambda text: _cut(_words(text), longest)
        case "whitespace":
            return lambda text: _cut(filter(None, _SPACES.split(text)), longest)
        case "keyword":
            return lambda text: [text] if text else []
        case "letters":
            return lambda text: re.findall(r"[^\W\d_]+", text)
        case "regexSplit":
            pattern = java_pattern(definition["pattern"])
            return lambda text: [token for token in pattern.split(text) if token]
        case other:
            raise NotEmulated(f"the tokenizer {other}")


def _words(text: str) -> list[str]:
    return [word for word in _STANDARD.findall(text) if word.strip("_")]


def _cut(tokens: Iterable[str], longest: int) -> list[str]:
    return [token[start : start + longest] for token in tokens for start in range(0, len(token), longest)]


def _filter(definition: Mapping[str, Any]) -> Filter:
    match definition["type"]:
        case "stopword":
            return _stop(definition)
        case "length":
            least, most = int(definition.get("min", 0)), int(definition.get("max", MAX_TOKEN_LENGTH))
            return _each(lambda term: term if least <= len(term) <= most else None)
        case "snowballStemming":
            return _each(_snowball(definition["stemmerName"]))
        case name if name in _PLAIN:
            return _each(_PLAIN[name])
        case other:
            raise NotEmulated(f"the token filter {other}")


def _each(change: Callable[[str], str | None]) -> Filter:
    return lambda terms: [change(term) if term is not None else None for term in terms]


def _stop(definition: Mapping[str, Any]) -> Filter:
    ignored = definition.get("ignoreCase", True)
    words = {word.lower() if ignored else word for word in definition["tokens"]}
    return _each(lambda term: None if (term.lower() if ignored else term) in words else term)


def _without_marks(text: str) -> str:
    plain = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", plain)


def _ascii(term: str) -> str:
    return _without_marks(term.translate(_ASCII)) if not term.isascii() else term


def _folded(term: str) -> str:
    """As ICU's folding: also without case."""
    return term.lower() if term.isascii() else _without_marks(term.casefold()).translate(_FOLDED).casefold()


def _without_possessive(term: str) -> str:
    return term[:-2] if term[-2:-1] in ("'", "’", "＇") and term[-1:] in ("s", "S") else term


@lru_cache(maxsize=200_000)
def _porter(term: str) -> str:
    return str(porter_stemmer().stem(term, to_lowercase=False))


@lru_cache(maxsize=1)
def porter_stemmer() -> Any:
    """The library takes two seconds to load: only those who start a server pay that, and no search waits for it."""
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS)


def _snowball(language: str) -> Callable[[str], str]:
    from nltk.stem.snowball import SnowballStemmer

    if language not in SnowballStemmer.languages:
        raise NotEmulated(f"the snowball stemmer {language}")
    stemmer = SnowballStemmer(language)
    return lru_cache(maxsize=200_000)(lambda term: str(stemmer.stem(term)))


_PLAIN: dict[str, Callable[[str], str | None]] = {
    "lowercase": str.lower,
    "asciiFolding": _ascii,
    "icuFolding": _folded,
    "icuNormalizer": lambda term: unicodedata.normalize("NFKC", term),
    "porterStemming": _porter,
    "englishPossessive": _without_possessive,
    "trim": str.strip,
    "reverse": lambda term: term[::-1],
}

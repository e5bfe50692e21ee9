"""Scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese and related ones), and Korean,
whose particles follow words without one. Pure.

No analyzer here knows their words, so the full-text index holds the characters of a run and their overlapping pairs:
`登录超时` as `登 登录 录 录超 超 超时 时`. A query searches for the pairs. Text adjoining a run without a space
(`重跑gen-itgc后`) is a separate word.

A change here changes the meaning of every existing index, so it needs a migration that rebuilds it.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

_CHARACTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
    "\u1950-\u19c9\u1a20-\u1a7f\uaa80-\uaadd"  # Tai Le, New Tai Lue, Tai Tham, Tai Viet
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\uffa0-\uffdc"  # Korean
    "\u3031-\u3035\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3005-\u3007\u3021-\u3029\u3038-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    "\ua000-\ua48c"  # Yi
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"  # rare kana and Chinese characters
)
_MARKED = (*range(0x0E00, 0x1AB0), *range(0x3099, 0x309B), *range(0xA9E0, 0xAAE0))
"""Ranges of the characters above that may be combining marks."""
_MARKS = "".join(char for char in map(chr, _MARKED) if unicodedata.category(char).startswith("M"))
_MARK = re.compile(f"[{_MARKS}]+")
_CHARACTER = re.compile(f"[^{_MARKS}][{_MARKS}]*|[{_MARKS}]+")
_RUN = re.compile(f"[{_CHARACTERS}]+")
_WORD = re.compile(rf"[{_CHARACTERS}]+|[^\W{_CHARACTERS}]+")

Word = tuple[str, int, int]
"""A word of a text, its start and its end."""


def is_unspaced(word: str) -> bool:
    """Return whether a word consists only of such scripts."""
    return not word.isascii() and _RUN.fullmatch(word) is not None


def words_in(text: str) -> Iterator[Word]:
    """Yield the words of a text, in order: for a run its pairs, or its only character."""
    for match in _WORD.finditer(text):
        if not is_unspaced(match[0]):
            yield match[0], *match.span()
            continue
        characters = _CHARACTER.findall(match[0])
        begins = list(accumulate(map(len, characters), initial=match.start()))
        for number in range(max(1, len(characters) - 1)):
            start, end = begins[number], begins[min(number + 2, len(characters))]
            yield text[start:end], start, end


def parted(text: str) -> str:
    """Return a text with spaces around its runs."""
    return text if text.isascii() else _RUN.sub(r" \g<0> ", text)


def paired(text: str) -> str:
    """Return a text as indexed. Marks are removed from runs: the analyzers split at them, and also strip those of Latin
    letters.
    """
    return text if text.isascii() else _RUN.sub(lambda run: f" {' '.join(terms_of_run(_MARK.sub('', run[0])))} ", text)


def sought(word: str) -> str:
    """Return a word as a phrase that occurs in the `paired` form of every text with the word."""
    return word if word.isascii() else " ".join(phrase_of(paired(word).split()))


def terms_of_run(run: str) -> list[str]:
    """Return a run's characters with their marks, and between them their pairs."""
    characters = _CHARACTER.findall(run)
    return [term for first, second in pairwise(characters) for term in (first, first + second)] + characters[-1:]


def phrase_of(terms: Sequence[str]) -> Sequence[str]:
    """Return a word's terms that longer runs contain, too: without the end characters outside their pairs."""
    starts = len(terms) > 1 and is_unspaced(terms[0]) and terms[1].startswith(terms[0])
    ends = len(terms) > 1 and is_unspaced(terms[-1]) and terms[-2].endswith(terms[-1])
    return terms[starts : len(terms) - ends]

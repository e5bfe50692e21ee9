"""Near-duplicates are shown once. Pure."""

import math
import re
from collections.abc import Sequence

SAME = 0.9
"""Share of words two texts must have in common (Jaccard) to count as one."""

_WORD = re.compile(r"\w+")


def fold(texts: Sequence[str]) -> list[list[int]]:
    """Groups of indexes of near-equal texts; each group's first index is its best, groups in order of their best."""
    groups: list[list[int]] = []
    words: list[frozenset[str]] = []
    with_word: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        mine = frozenset(_WORD.findall(text.lower()))
        first = _first_words(mine)
        near = sorted({n for word in first for n in with_word.get(word, ())})
        home = next((n for n in near if _alike(mine, words[n])), None)
        if home is not None:
            groups[home].append(index)
            continue
        for word in first:
            with_word.setdefault(word, []).append(len(groups))
        groups.append([index])
        words.append(mine)
    return groups


def _first_words(words: frozenset[str]) -> list[str]:
    """So many words, in one order for all texts, that two texts which are alike share one of theirs. Long words come
    first, since few texts have them.
    """
    return sorted(words, key=lambda word: (-len(word), word))[: len(words) - math.ceil(SAME * len(words)) + 1]


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    smaller, larger = sorted((len(a), len(b)))
    if smaller < SAME * larger or not smaller:
        return False
    common = len(a & b)
    return common >= SAME * (len(a) + len(b) - common)

"""Collapse near-duplicates. Pure."""

import math
import re
import sys
from collections.abc import Iterable

SAME = 0.9
"""Share of words two texts must have in common (Jaccard) to count as one."""

_WORD = re.compile(r"\w+")


def fold(shown: Iterable[tuple[str, ...]], most: int = sys.maxsize) -> list[list[int]]:
    """Group the indexes of near-duplicates. Each group's first index is its best; groups are in order of their best.

    :param shown: the shown texts of each index, the best one first. An index joins the first group whose best shows a
    text similar to its own best text, so that no text is lost.
    :param most: number of groups; everything behind the last of them is skipped.
    """
    groups: list[list[int]] = []
    texts: list[list[frozenset[str]]] = []
    with_word: dict[str, set[int]] = {}
    words = ([frozenset(_WORD.findall(text.lower())) for text in each] for each in shown)
    for index, mine in enumerate(words):
        own = _first_words(mine[0])
        near = sorted({n for word in own for n in with_word.get(word, ())})
        home = next((n for n in near if any(_alike(mine[0], other) for other in texts[n])), None)
        if home is not None:
            groups[home].append(index)
            continue
        if len(groups) == most:
            break
        for word in {*own, *(word for text in mine[1:] for word in _first_words(text))}:
            with_word.setdefault(word, set()).add(len(groups))
        groups.append([index])
        texts.append(mine)
    return groups


def _first_words(words: frozenset[str]) -> list[str]:
    """Return enough words, sorted the same way for all texts, that two similar texts share at least one."""
    return sorted(words)[: len(words) - math.ceil(SAME * len(words)) + 1]


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    smaller, larger = sorted((len(a), len(b)))
    if smaller < SAME * larger or not smaller:
        return False
    common = len(a & b)
    return common >= SAME * (len(a) + len(b) - common)

"""Near-duplicates are shown once. Pure."""

import re
from collections.abc import Sequence

SAME = 0.9
"""Share of words two texts must have in common (Jaccard) to count as one."""

_WORD = re.compile(r"\w+")


def fold(texts: Sequence[str]) -> list[list[int]]:
    """Groups of indexes of near-equal texts; each group's first index is its best, groups in order of their best."""
    groups: list[list[int]] = []
    words: list[frozenset[str]] = []
    for index, text in enumerate(texts):
        mine = frozenset(_WORD.findall(text.lower()))
        home = next((n for n, theirs in enumerate(words) if _alike(mine, theirs)), None)
        if home is None:
            groups.append([index])
            words.append(mine)
        else:
            groups[home].append(index)
    return groups


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    smaller, larger = sorted((len(a), len(b)))
    if smaller < SAME * larger or not smaller:
        return False
    common = len(a & b)
    return common >= SAME * (len(a) + len(b) - common)

"""Compare two sentences: are they about the same, and do they say the opposite? Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

STEM = 6
"""Letters by which words are compared: `deploy` and `deployment` are the same."""

_WORD = re.compile(r"[^\W_][\w+#.-]*[\w+#]|[^\W_]", re.UNICODE)
_NUMBER = re.compile(r"v?\d[\d.,:_]*(?:ms|s|m|h|d|k|kb|mb|gb|px|%)?")
_FILLING = frozenset(
    """use uses used using always never please prefer want wants like need needs make makes made keep keeps should must
    can will don doesn didn isn aren won wouldn shouldn let lets go going new now also really well way thing
    things note remember mind decided decide decision agreed switch switched switching move moved moving change
    changed changes instead rather only still longer anymore any more every ok okay yes no nope actually back
    set run runs put get one two first per via etc project code file files default team we they i you it today
    again from on future time work works working good better best fine just right sure""".split()
)
"""Words that say nothing of the subject."""
_VALUES = (
    frozenset("monday tuesday wednesday thursday friday saturday sunday weekend weekday".split()),
    frozenset("january february march april may june july august september october november december".split()),
    frozenset("true false on off enabled disabled yes".split()),
    frozenset("tabs spaces".split()),
    frozenset("daily weekly monthly hourly nightly yearly".split()),
    frozenset("morning evening noon night midnight afternoon".split()),
    frozenset("single double".split()),
)
"""Words that exclude each other."""
_EXCLUSIVE = frozenset().union(*_VALUES)
_NEGATIONS = re.compile(
    r"\b(?:not|never|no longer|not any ?more|none|without|stop(?:ped)?|avoid|cannot|forbid(?:den)?|drop(?:ped)?"
    r"|remov(?:e|ed)"
    r"|disabl(?:e|ed)|no)\b|n['’]t\b",
    re.IGNORECASE,
)
_PREPOSITIONS = frozenset("in on for at to of with by when from as into until before after because and but".split())
_REJECTED = re.compile(
    r"\b(?:instead of|rather than|no longer|not any ?more|don['’]?t use|do not use|not|never|stop using|away from|from"
    r"|drop(?:ped)?|replac(?:e|ed|ing)|remov(?:e|ed|ing)|over|got rid of|retired?|dropping)\s+((?:[\w+#./-]+\s?){1,4})",
    re.IGNORECASE,
)
"""What is turned down, and what by."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence as it is compared. `stems` tell its subject; `values` are words that exclude each other, such as days,
    and `numbers` are numbers, times and versions. `rejected`: stems of what it turns down.
    """

    text: str
    stems: frozenset[str]
    values: frozenset[str]
    numbers: frozenset[str]
    rejected: frozenset[str]
    is_negative: bool


def claim_of(text: str) -> Claim:
    """Return a sentence as it is compared."""
    words = [word.lower().strip(".-") for word in _WORD.findall(text)]
    numbers = frozenset(word for word in words if _NUMBER.fullmatch(word))
    rejected = {
        stem
        for found in _REJECTED.finditer(text)
        for stem in stems_of(takewhile(lambda word: word not in _PREPOSITIONS, _WORD.findall(found[1].lower())))
    }
    values = frozenset(each for word in words for each in (word, word.removesuffix("s")) if each in _EXCLUSIVE)
    return Claim(
        text, frozenset(stems_of(words)), values, numbers, frozenset(rejected), len(_NEGATIONS.findall(text)) % 2 == 1
    )


def stems_of(words: Iterable[str]) -> list[str]:
    """Return the stems of the words that tell of a subject."""
    return [
        _stem(word)
        for word in words
        if word not in STOP_WORDS | _FILLING and not _NUMBER.fullmatch(word) and len(word) > 1
        if not {word, word.removesuffix("s")} & _EXCLUSIVE
    ]


def _stem(word: str) -> str:
    for ending in ("ations", "ation", "ments", "ment", "ings", "ing", "ies", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:STEM]


class Weights:
    """How much a stem tells, by how few of many sentences have it."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._count = max(2, len(claims))
        self._having = Counter(stem for claim in claims for stem in claim.stems)

    def of(self, stems: Iterable[str]) -> float:
        """Return the weight of some stems."""
        return sum(math.log(1 + self._count / (1 + self._having[stem])) for stem in stems)

    def shared(self, one: Claim, other: Claim) -> float:
        """Return the weight of what both are about, as a share of that of the shorter one, in [0, 1]."""
        least = min(self.of(one.stems), self.of(other.stems))
        return self.of(one.stems & other.stems) / least if least else 0.0

    def alike(self, one: Claim, other: Claim) -> float:
        """Return the weight of what both are about, as a share of that of both together, in [0, 1]."""
        both = self.of(one.stems | other.stems)
        return self.of(one.stems & other.stems) / both if both else 0.0


def conflicts(older: Claim, newer: Claim) -> str:
    """Return why two sentences on the same subject cannot both hold; empty: they can."""
    if turned_down := (newer.rejected & older.stems) - older.rejected:
        return f"turns down {min(turned_down)}"
    if (taken_back := (older.rejected & newer.stems) - newer.rejected) and not newer.is_negative:
        return f"takes up {min(taken_back)}"
    for names in _VALUES:
        before, after = older.values & names, newer.values & names
        if before and after - before and (before - after or newer.is_negative):
            return f"{min(before)} and {min(after - before)}"
    if older.numbers and newer.numbers and not older.numbers & newer.numbers:
        return f"{min(older.numbers)} and {min(newer.numbers)}"
    if older.is_negative != newer.is_negative:
        return "one denies the other"
    return ""

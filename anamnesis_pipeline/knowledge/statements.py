"""Compare two sentences: are they about the same, and do they say the opposite? Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from anamnesis_pipeline.knowledge.wording import CONSEQUENCES, CORRECTED, NEGATIONS, REJECTED
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
    set run runs put get one two per via etc project code file files default team we they i you it today again
    from on future time work works working good better best fine just right sure die der das und ist sind werden
    wird wurde mit von für auf im zu den dem des ein eine einen nicht kein bitte immer nur erst auch noch los
    las una uno que del por con para como desde hoy siempre favor aunque son est sont avec pour dans""".split()
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
_UNTOLD = (STOP_WORDS - {"us"}) | _FILLING
_LETTER = re.compile(r"[B-Z]")
"""A letter that names one of several, as in `node B`."""
_EXCLUSIVE = frozenset().union(*_VALUES)
_PREPOSITIONS = frozenset(
    """in on for at to of with by when from as into until before after because and but the a an any im am den dem der
    die das en el la los las un una dans le les""".split()
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence as it is compared. `stems` tell its subject; `values` are words that exclude each other, such as days,
    and `numbers` are numbers, times and versions. `rejected`: stems of what it turns down.
    """

    text: str
    stems: frozenset[str]
    values: frozenset[str]
    numbers: tuple[str, ...]
    rejected: frozenset[str]
    is_negative: bool


def claim_of(text: str) -> Claim:
    """Return a sentence as it is compared."""
    words = [word if _LETTER.fullmatch(word) else word.lower().strip(".-") for word in _WORD.findall(text)]
    numbers = tuple(dict.fromkeys(word for word in words if _NUMBER.fullmatch(word)))
    rejected = set[str]()
    main = CONSEQUENCES.sub("", text)
    for found in REJECTED.finditer(main):
        behind = list(dropwhile(_PREPOSITIONS.__contains__, _WORD.findall(found[1].lower())))
        rejected.update(stems_of(takewhile(lambda word: word not in _PREPOSITIONS, behind)))
    values = frozenset(each for word in words for each in (word, word.removesuffix("s")) if each in _EXCLUSIVE)
    is_negative = len(NEGATIONS.findall(main)) % 2 == 1
    return Claim(text, frozenset(stems_of(words)), values, numbers, frozenset(rejected), is_negative)


def stems_of(words: Iterable[str]) -> list[str]:
    """Return the stems of the words that tell of a subject."""
    return [
        _stem(word)
        for word in words
        if word not in _UNTOLD and not _NUMBER.fullmatch(word) and (len(word) > 1 or _LETTER.fullmatch(word))
        if not {word, word.removesuffix("s")} & _EXCLUSIVE
    ]


def _stem(word: str) -> str:
    for ending in ("ations", "ation", "ments", "ment", "ings", "ing", "ies", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word.rstrip("e")[:STEM]


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
    return _number_conflict(older, newer)


def _number_conflict(older: Claim, newer: Claim) -> str:
    """Return the numbers in which two sentences differ that else say the same of one thing; empty: they do not. A
    number may also name the thing: it stands before the one that is said of it.
    """
    for clause in map(claim_of, _CLAUSES.split(newer.text)):
        before = [each for each in older.numbers if each not in clause.numbers]
        after = [each for each in clause.numbers if each not in older.numbers]
        if len(before) != 1 or len(after) != 1:
            continue
        named = [each for each in older.numbers if each in clause.numbers]
        is_named = not named or older.numbers.index(named[0]) < older.numbers.index(before[0])
        is_same = set(older.stems) == set(clause.stems)
        is_corrected = CORRECTED.search(newer.text) is not None and not older.stems - newer.stems
        if (is_named or len(older.numbers) == 1) and (is_same or is_corrected):
            return f"{before[0]} and {after[0]}"
    return ""


_CLAUSES = re.compile(r"[;:,]\s+(?:and|but|und|y|et)?\s*")

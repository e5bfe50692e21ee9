"""Compare two sentences: are they about the same, and do they say the opposite? Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from anamnesis_pipeline.knowledge.wording import BECAUSE, CONSEQUENCES, CORRECTED, NEGATIONS, REJECTED, VERBS
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

STEM = 6
"""Letters by which words are compared: `deploy` and `deployment` are the same."""

_WORD = re.compile(r"[^\W_][\w+#.-]*[\w+#]|[^\W_]", re.UNICODE)
_NUMBER = re.compile(r"v?\d[\d.,:_]*(?:ms|s|m|h|d|k|kb|mb|gb|px|%)?")
_FILLING = frozenset(
    """le du de au aux se sa ce ses cette qui que ne pas plus fait sur sous il elle ils soll sollen sollte
    use uses used using always never please prefer want wants like need needs make makes made keep keeps should must
    can will don doesn didn isn aren won wouldn shouldn let lets go going new now also really well way thing
    things note remember mind decided decide decision agreed switch switched switching move moved moving change
    changed changes instead rather only still longer anymore any more every ok okay yes no nope actually back
    set run runs put get one two per via etc project code file files default team we they i you it today again
    from on future time work works working good better best fine just right sure die der das und ist sind werden
    wird wurde mit von für auf im zu den dem des ein eine einen nicht kein bitte immer nur erst auch noch los
    las una uno que del por con para como desde hoy siempre favor aunque son est sont avec pour dans day days
    week weeks month months year years hour hours minute minutes second tag tage jahr días día""".split()
)
"""Words that say nothing of the subject."""
_VALUES = (
    frozenset("monday tuesday wednesday thursday friday saturday sunday weekend weekday".split()),
    frozenset("montag dienstag mittwoch donnerstag freitag samstag sonntag wochenende".split()),
    frozenset("lunes martes miércoles jueves viernes sábado domingo".split()),
    frozenset("lundi mardi mercredi jeudi vendredi samedi dimanche".split()),
    frozenset("january february march april may june july august september october november december".split()),
    frozenset("true false on off enabled disabled yes".split()),
    frozenset("tabs spaces".split()),
    frozenset("daily weekly monthly hourly nightly yearly".split()),
    frozenset("morning evening noon night midnight afternoon".split()),
    frozenset("single double".split()),
)
"""Words that exclude each other."""
_UNTOLD = (STOP_WORDS - {"us"}) | _FILLING
_IDENTIFIER = re.compile(r"\d|[_./]|\w-\w")
_LETTER = re.compile(r"[B-HJ-Z]")
"""A letter that names one of several, as in `node B`."""
_EXCLUSIVE = frozenset().union(*_VALUES)
_PREPOSITIONS = frozenset(
    """in on for at to of with by when from as into until before after because and but the a an any im am den dem der
    die das en el la los las un una dans le les""".split()
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, ready to be compared. `stems` tell its subject; `values` are words that exclude each other, such as
    days; `amounts`: what is counted, and its number. `rejected`: stems of what it turns down. `places`: preposition ->
    stem.
    """

    text: str
    stems: frozenset[str]
    subject: frozenset[str]
    """Its stems without those of its reason."""
    values: frozenset[str]
    amounts: tuple[tuple[str, str], ...]
    rejected: frozenset[str]
    is_negative: bool
    places: Mapping[str, str]

    @property
    def numbers(self) -> frozenset[str]:
        """All its numbers."""
        return frozenset(number for _, number in self.amounts)


def claim_of(text: str) -> Claim:
    """Return a sentence, ready to be compared."""
    words = [word if _LETTER.fullmatch(word) else word.lower().strip(".-") for word in _WORD.findall(text)]
    words = [_NUMERALS.get(word, word) for word in words]
    main = CONSEQUENCES.sub("", text)
    rejected = set[str]()
    for found in REJECTED.finditer(main):
        behind = list(dropwhile(_PREPOSITIONS.__contains__, _WORD.findall(found[1].lower())))
        rejected.update(stems_of(takewhile(lambda word: word not in _PREPOSITIONS, behind)))
    return Claim(
        text,
        frozenset(stems_of(words)),
        frozenset(stems_of(_WORD.findall(BECAUSE.sub("", text).lower()))),
        frozenset(each for word in words for each in (word, word.removesuffix("s")) if each in _EXCLUSIVE),
        _amounts(words),
        frozenset(rejected),
        len(NEGATIONS.findall(main)) % 2 == 1,
        _places(words),
    )


def _amounts(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return (what, number) for each number: what it counts is the word behind it, or else the one before it. A number
    that stands before the verb names the thing that the sentence is about: what it counts is `name`.
    """
    found, verb = list[tuple[str, str]](), False
    for place, word in enumerate(words):
        verb = verb or VERBS.fullmatch(word) is not None
        if _NUMBER.fullmatch(word):
            behind, before = stems_of(words[place + 1 : place + 2]), stems_of(words[max(0, place - 1) : place])
            what = (behind or before or [""])[0]
            found.append((what if verb or len(words) < 4 else NAME, word))
    return tuple(dict.fromkeys(found))


def _places(words: Sequence[str]) -> Mapping[str, str]:
    """Return preposition -> the stem of what follows it: where, with what and by what something is done."""
    found = dict[str, str]()
    for place, word in enumerate(words):
        if word in _SLOTS and (behind := stems_of(words[place + 1 : place + 4])):
            found.setdefault(_SLOTS[word], behind[0])
    return found


def stems_of(words: Iterable[str]) -> list[str]:
    """Return the stems of the words that tell of a subject."""
    return [
        _stem(word)
        for word in words
        if word not in _UNTOLD and not _NUMBER.fullmatch(word) and (len(word) > 1 or _LETTER.fullmatch(word))
        if not {word, word.removesuffix("s")} & _EXCLUSIVE
    ]


_IRREGULAR = {
    word: verb
    for verb, words in (
        ("build", "built"),
        ("choose", "chose chosen"),
        ("hold", "held"),
        ("pay", "paid"),
        ("send", "sent"),
        ("show", "shown"),
        ("take", "took taken"),
        ("write", "wrote written"),
    )
    for word in words.split()
}
"""Form of a verb -> the verb."""


def _stem(word: str) -> str:
    word = _IRREGULAR.get(word, word)
    if _IDENTIFIER.search(word):
        return word
    for ending in ("ations", "ation", "ments", "ment", "ings", "ing", "ies", "ed", "es", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            if ending in {"ings", "ing", "ed"} and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word.rstrip("e")[:STEM]


class Weights:
    """How much a stem tells, by how few of many sentences have it."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        count, having = max(2, len(claims)), Counter(stem for claim in claims for stem in claim.stems)
        self._unknown = math.log(1 + count)
        self._of = {stem: math.log(1 + count / (1 + number)) for stem, number in having.items()}

    def of(self, stems: Iterable[str]) -> float:
        """Return the weight of some stems."""
        return sum(self._of.get(stem, self._unknown) for stem in stems)

    def shared(self, one: Claim, other: Claim) -> float:
        """Return the weight of the subject that both have, as a share of that of the shorter one, in [0, 1]."""
        least = min(self.of(one.subject), self.of(other.subject))
        return self.of(one.subject & other.subject) / least if least else 0.0

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
        is_other = after - before and (before - after or (newer.is_negative and not older.is_negative))
        if before and is_other and older.subject <= newer.subject:
            return f"{min(before)} and {min(after - before)}"
    return _amount_conflict(older, newer) or _place_conflict(older, newer)


def _amount_conflict(older: Claim, newer: Claim) -> str:
    """Return the numbers in which two sentences differ that else say the same of one thing; empty: they do not."""
    for clause in map(claim_of, _CLAUSES.split(newer.text)):
        names = [{number for what, number in each.amounts if what == NAME} for each in (older, clause)]
        before, after = ({what: number for what, number in each.amounts if what != NAME} for each in (older, clause))
        differ = [what for what in before if what in after and before[what] != after[what]]
        is_corrected = CORRECTED.search(newer.text) is not None and not older.stems - newer.stems
        if names[0] == names[1] and differ and (older.stems == clause.stems or is_corrected):
            return f"{before[differ[0]]} and {after[differ[0]]}"
    return ""


def _place_conflict(older: Claim, newer: Claim) -> str:
    """Return where, with what or by what something is done in two sentences that else say the same; empty: the same."""
    if older.amounts != newer.amounts:
        return ""  # of several things each has its own number and place
    for word, before in older.places.items():
        after = newer.places.get(word, before)
        rest, other = older.stems - {before}, newer.stems - {after}
        is_other = after != before and before not in newer.stems and after not in older.stems
        if is_other and len(rest & other) >= max(2, 0.6 * min(len(rest), len(other))):
            return f"{before} and {after}"
    return ""


NAME = "name"
"""What a number counts that names a thing."""
_NUMERALS = {word: str(number) for number, word in enumerate("two three four five six seven eight nine ten".split(), 2)}
_SLOTS = {
    word: each
    for each, words in (
        ("at", "at on to in bei auf im en sur à dans"),
        ("by", "by with via over through using mit über per por con avec par"),
    )
    for word in words.split()
}
"""Prepositions -> one for those that mean nearly the same."""
_CLAUSES = re.compile(r"[;:,]\s+(?:and|but|so|und|y|et)?\s*")

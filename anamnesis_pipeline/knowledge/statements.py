"""Compare two sentences: are they about the same, and do they say the opposite? Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile

from anamnesis_pipeline.knowledge.wording import (
    BECAUSE,
    CONSEQUENCES,
    CORRECTED,
    ENDED,
    MOVES,
    NEGATIONS,
    NO_MORE,
    REJECTED,
    VERBS,
)
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

MIN_SAME = 2
"""Stems that clauses which say the same share at least."""
SAME_CLAUSE = 0.6
"""Least share of the stems of two clauses that both have, if they say the same."""
STEM = 6
"""Letters by which words are compared: `deploy` and `deployment` are the same."""

_WORD = re.compile(r"\d{1,2}:\d\d|[^\W_][\w+#.-]*[\w+#]|[^\W_]", re.UNICODE)
_NUMBER = re.compile(r"v?\d[\d.,:_]*(?:ms|s|m|h|d|k|kb|mb|gb|px|%)?")
_FILLING = frozenset(
    """le du de au aux se sa ce ses cette qui que ne pas plus fait sur sous il elle ils soll sollen sollte
    use uses used using always never please prefer want wants like need needs make makes made keep keeps should must
    can will don doesn didn isn aren won wouldn shouldn let lets go going new now also really well way thing
    things note remember mind decided decide decision agreed switch switched switching move moved moving change
    changed changes instead rather only still longer anymore any more every ok okay yes no nope actually back
    set run runs put get one two per via etc project code file files default team we they i you it today again
    from on future time work works working good better best fine just right sure die der das und ist sind werden
    wird wurde mit von für auf im zu den dem des ein eine einen el otra otro other
    since seit depuis ab up another least most mean meant last next same undo revert
    pas plus du au aux nicht kein bitte immer nur erst auch noch los
    las una uno que del por con para como desde hoy siempre favor aunque son est sont avec pour dans on sofort
    künftig désormais maintenant correction korrektur""".split()
)
"""Words that say nothing of the subject."""
_UNITS: Mapping[str, tuple[str, float]] = {
    word: (dimension, factor)
    for dimension, factor, words in (
        ("time", 0.001, "ms millisecond milliseconds"),
        ("time", 1, "s sec secs second seconds sekunde sekunden segundo segundos seconde secondes"),
        ("time", 60, "m min mins minute minutes minuten minuto minutos"),
        ("time", 3600, "h hour hours stunde stunden hora horas heure heures"),
        ("time", 86_400, "d day days tag tage tagen día días jour jours"),
        ("time", 604_800, "week weeks woche wochen semana semanas semaine semaines"),
        ("time", 2_592_000, "month months monat monate monaten mes meses mois"),
        ("time", 31_536_000, "year years jahr jahre jahren año años an ans année années"),
        ("size", 1, "byte bytes"),
        ("size", 1 << 10, "kb kib kilobyte kilobytes"),
        ("size", 1 << 20, "mb mib megabyte megabytes"),
        ("size", 1 << 30, "gb gib gigabyte gigabytes"),
        ("size", 1 << 40, "tb tib terabyte terabytes"),
        ("times", 1, "time times mal vez veces fois"),
    )
    for word in words.split()
}
"""A word behind a number -> what it measures, and how many of the smallest unit it is."""
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
    frozenset("before after".split()),
    frozenset("antes después".split()),
    frozenset("avant après".split()),
    frozenset("required optional mandatory".split()),
    frozenset("minimum maximum".split()),
)
"""Words that exclude each other."""
_WITHOUT = frozenset({"without", "ohne", "sin", "sans"})
"""Words that make another condition of one: they tell of the subject."""
_UNTOLD = (
    (STOP_WORDS - {"us"} - _WITHOUT)
    | _FILLING
    | (_UNITS.keys() - {"s", "m", "h", "d", "sec", "second", "seconde", "mes", "an", "ans"})
)
_IDENTIFIER = re.compile(r"\d|[_./]|\w-\w")
_LETTER = re.compile(r"[B-HJ-Z]|AT|BE|DE|ES|IT")
"""A letter that names one of several, as in `node B`, or a country whose sign is else a word that says nothing."""
_EXCLUSIVE = frozenset().union(*_VALUES)
_PREPOSITIONS = frozenset(
    """in on for at to of with by when from as into until before after because and but the a an any im am den dem der
    die das en el la los las un una dans le les con por sobre desde mit auf bei von über avec sur chez par via over
    under""".split()
)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a sentence. `what`: what it counts or measures; `value`: in the smallest unit; `text`: as said."""

    what: str
    value: str
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, ready to be compared. `stems` tell its subject; `values` are words that exclude each other, such as
    days. `rejected`: stems and values of what it turns down. `places`: preposition -> stem.
    """

    text: str
    stems: frozenset[str]
    subject: frozenset[str]
    """Its stems without those of its reason."""
    values: frozenset[str]
    amounts: tuple[Amount, ...]
    rejected: frozenset[str]
    is_negative: bool
    places: Mapping[str, str]

    @property
    def said(self) -> Mapping[str, str]:
        """Stem -> its word, in the order of the text."""
        return _said(self.text)

    @property
    def numbers(self) -> frozenset[str]:
        """All its numbers."""
        return frozenset(each.value for each in self.amounts)


def claim_of(text: str) -> Claim:
    """Return a sentence, ready to be compared."""
    words = _words_of(text)
    main = CONSEQUENCES.sub("", text)
    rejected = set[str]()
    is_change = CORRECTED.search(text) is not None
    for found in REJECTED.finditer(main):
        if found[1].lower() in _WITHOUT and not is_change:
            continue
        skipped = _ARTICLES if _REMOVES.fullmatch(found[1]) else _PREPOSITIONS
        behind = list(dropwhile(skipped.__contains__, _words_of(found[2])))
        if behind[1:2] == ["as"]:  # `no longer stored as floats` turns down floats
            behind = behind[2:]
        phrase = list(takewhile(lambda word: word not in _PREPOSITIONS, behind))
        if _NO.fullmatch(found[1]):  # `no lock file needed` turns down the file
            named = list(takewhile(lambda word: not _PARTICIPLE.fullmatch(word), phrase))
            phrase = [word for word in named if stems_of([word])][-1:] or named
        rejected.update(_turned_down(phrase))
    for found in ENDED.finditer(_QUOTES.sub("", main)):
        rejected.update(_turned_down(_words_of(found[1])[-1:]))
    return Claim(
        text,
        frozenset(stems_of(words)),
        frozenset(stems_of(_words_of(BECAUSE.sub("", text)))),
        _values_of(words),
        _amounts(words),
        frozenset(rejected),
        len(NEGATIONS.findall(main)) % 2 == 1,
        _places(words),
    )


def _said(text: str) -> dict[str, str]:
    """Return stem -> the first word that has it, in the order of the text."""
    found = dict[str, str]()
    for word in _WORD.findall(text):
        for stem in stems_of([word.lower()]):
            found.setdefault(stem, word.strip(".-"))
    return found


def _words_of(text: str) -> list[str]:
    """Return the words of a text in small letters, numerals as numbers; a single capital that names something stays."""
    words = [word if _LETTER.fullmatch(word) else word.lower().strip(".-") for word in _WORD.findall(text)]
    return [_NUMERALS.get(word, word) for word in words]


def _values_of(words: Iterable[str]) -> frozenset[str]:
    return frozenset(each for word in words for each in (word, word.removesuffix("s")) if each in _EXCLUSIVE)


def _turned_down(words: Iterable[str]) -> set[str]:
    """Return the stems, values and numbers of some words."""
    named = list(words)
    return {*stems_of(named), *_values_of(named), *(each.value for each in _amounts(named))}


def _amounts(words: Sequence[str]) -> tuple[Amount, ...]:
    """Return what each number counts: its unit, or else the word behind it or before it. A number without a unit that
    stands before the verb names the thing that the sentence is about: what it counts is `name`.
    """
    found, verb = list[Amount](), False
    for place, word in enumerate(words):
        verb = verb or VERBS.fullmatch(word) is not None
        if not _NUMBER.fullmatch(word):
            continue
        after = words[place + 1] if place + 1 < len(words) else ""
        attached = _ATTACHED.fullmatch(word)
        number, unit = attached.groups() if attached else (word, "")
        text = word if unit in _UNITS or after not in _UNITS else f"{word} {after}"
        if attached and (measure := _UNITS.get(unit) or _UNITS.get(after)):
            dimension, factor = measure
            found.append(Amount(dimension, f"{float(number) * factor:g} {dimension}", text))
        elif ":" in word:
            found.append(Amount("clock", word.lstrip("0"), word))
        else:
            is_last = place == len(words) - 1
            what = (stems_of([after]) or stems_of(words[max(0, place - 1) : place]) or [""])[0]
            found.append(Amount(what if verb or is_last or len(words) < 4 else NAME, word, word))
    return tuple(dict.fromkeys(found))


def _places(words: Sequence[str]) -> Mapping[str, str]:
    """Return preposition -> the stem of what follows it: where, with what and by what something is done."""
    found = dict[str, str]()
    for place, word in enumerate(words):
        if word in _SLOTS and (behind := stems_of(words[place + 1 : place + 4])):
            found.setdefault(_SLOTS[word], behind[0])
    for verb, name in pairwise(words):
        if verb in _COPULAS and _IDENTIFIER.search(name) and stems_of([name]):
            found[IS] = name
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
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
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
    """Return why two sentences on the same subject cannot both hold, in their words; empty: they can."""
    held = older.stems | older.values | older.numbers
    if turned_down := (newer.rejected & held) - older.rejected:
        return f"turns down {_as_said(min(turned_down), newer)}"
    if (taken_back := (older.rejected & newer.stems) - newer.rejected) and not newer.is_negative:
        return f"takes up {_as_said(min(taken_back), newer)}"
    for names in _VALUES:
        before, after = older.values & names, newer.values & names
        is_other = after - before and (before - after or (newer.is_negative and not older.is_negative))
        is_series = bool(older.numbers and newer.numbers) and older.numbers.isdisjoint(newer.numbers)
        is_turned = before & newer.rejected and len(older.subject & newer.subject) >= MIN_SAME
        if before and is_other and (older.subject <= newer.subject or is_turned) and not is_series:
            return f"{min(before)} and {min(after - before)}"
    is_over = newer.is_negative and not older.is_negative and NO_MORE.search(newer.text) is not None
    if is_over and newer.stems and newer.stems <= older.stems:
        return f"turns down {_as_said(min(newer.stems), newer)}"
    if differ_in_value(older, newer):
        return ""  # of several days each has its own number
    return _amount_conflict(older, newer) or _place_conflict(older, newer) or _update(older, newer)


def differ_in_value(one: Claim, other: Claim) -> bool:
    """Return whether both name a value of one kind, such as a day, and none that the other names."""
    pairs = ((one.values & names, other.values & names) for names in _VALUES)
    return any(a and b and a.isdisjoint(b) for a, b in pairs)


def shared_names(one: Claim, other: Claim) -> set[str]:
    """Return the identifiers, such as paths and functions, that both have."""
    return {stem for stem in one.stems & other.stems if _IDENTIFIER.search(stem)}


def says_same_clause(one: str, other: str) -> bool:
    """Return whether a clause of a sentence has nearly the words of one of another, beside other clauses."""
    clauses = [[frozenset(stems_of(_words_of(clause))) for clause in _PARTS.split(text)] for text in (one, other)]
    return any(
        len(a & b) >= max(MIN_SAME, SAME_CLAUSE * len(a | b)) and len(a & b) >= min(len(a), len(b)) - 1
        for a in clauses[0]
        for b in clauses[1]
    )


def _as_said(told: str, claim: Claim) -> str:
    """Return the word or number of a claim that this stem, value or number stands for."""
    numbers = {each.value: each.text for each in claim.amounts}
    return claim.said.get(told) or numbers.get(told, told)


def _amount_conflict(older: Claim, newer: Claim) -> str:
    """Return the numbers in which two sentences differ that else say the same of one thing; empty: they do not."""
    for clause in map(claim_of, _CLAUSES.split(newer.text)):
        names = [{each.value for each in claim.amounts if each.what == NAME} for claim in (older, clause)]
        before, after = (
            {what: each for what, each in _by_what(claim).items() if what != NAME} for claim in (older, clause)
        )
        differ = [what for what in before if what in after and before[what].value != after[what].value]
        is_corrected = CORRECTED.search(newer.text) is not None and not older.stems - newer.stems
        is_corrected = is_corrected and not narrows(older, newer)
        if names[0] == names[1] and differ and (older.stems == clause.stems or is_corrected):
            return f"{before[differ[0]].text} and {after[differ[0]].text}"
    return ""


def _update(older: Claim, newer: Claim) -> str:
    """Return the numbers of what both sentences begin with, if the newer one says that they are others since a time."""
    lead, begins = lead_of(older), list(newer.said)
    is_same = len(lead) >= MIN_SAME and set(lead) <= set(begins[: len(lead) + 1])
    if not is_same or narrows(older, newer) or MOVES.search(newer.text) is None or differ_in_value(older, newer):
        return ""
    before, after = ({each.value: each.text for each in claim.amounts} for claim in (older, newer))
    gone, new = ([each for each in one if each not in other] for one, other in ((before, after), (after, before)))
    return f"{before[gone[0]]} and {after[new[0]]}" if gone and new else ""


def narrows(older: Claim, newer: Claim) -> bool:
    """Return whether a newer sentence is about a part, such as the tokens of partners: it names what the older one
    does not.
    """
    told = re.split(r"\d|[,;]", newer.text, maxsplit=1)[0]
    return any(not older.stems.issuperset(stems_of([found.lower()])) for found in _NARROWS.findall(told))


def lead_of(claim: Claim) -> list[str]:
    """Return the stems that stand before the verb or a colon, in order: what a sentence is about."""
    head = _words_of(claim.text.split(":", 1)[0])
    return stems_of(takewhile(lambda word: VERBS.fullmatch(word) is None, head))


def _by_what(claim: Claim) -> dict[str, Amount]:
    """Return what -> its amount, for what is counted once."""
    counted = Counter(each.what for each in claim.amounts)
    return {each.what: each for each in claim.amounts if counted[each.what] == 1}


def _place_conflict(older: Claim, newer: Claim) -> str:
    """Return where, with what or by what something is done in two sentences that else say the same; empty: the same."""
    if older.numbers != newer.numbers:
        return ""  # of several things each has its own number and place
    for word, before in older.places.items():
        if word == "from":
            continue  # there may be several
        after = newer.places.get(word, before)
        rest, other = older.stems - {before}, newer.stems - {after}
        is_other = after != before and before not in newer.stems and after not in older.stems
        is_same_thing = rest == other if word == IS else len(rest & other) >= max(2, 0.6 * min(len(rest), len(other)))
        if rest - other and other - rest and not CORRECTED.search(newer.text):
            continue  # each has a word that the other lacks: they are about two things
        if is_other and rest and is_same_thing:
            return f"{_as_said(before, older)} and {_as_said(after, newer)}"
    return ""


NAME = "name"
"""What a number counts that names a thing."""
IS = "is"
"""What something is, beside where, and by what something is done."""
_NUMERALS = {
    word: str(number)
    for numerals in (
        "two three four five six seven eight nine ten eleven twelve",
        "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "dos tres cuatro cinco seis siete ocho nueve diez once doce",
        "deux trois quatre cinq six sept huit neuf dix onze douze",
    )
    for number, word in enumerate(numerals.split(), 2)
} | {"twenty": "20", "thirty": "30", "sixty": "60", "ninety": "90", "hundred": "100"}
_ATTACHED = re.compile(r"(\d+(?:\.\d+)?)([a-z]*)")
_COPULAS = frozenset({"is", "are", "ist", "sind", "es", "est"})
_ARTICLES = frozenset("the a an any der die das dem den ein eine el la los las un una le les".split())
_NO = re.compile(r"no|keine?[nrs]?", re.IGNORECASE)
_PARTICIPLE = re.compile(r"\w{3,}ed|left|any|mehr|more|bitte|please|gibt|besteht")
_NARROWS = re.compile(
    r"\b(?:of|for|von|für|para|pour)\s+(?:the |all |our |die |das |den |los |las |les )?(\w+)", re.IGNORECASE
)
_QUOTES = re.compile(r"[\"`“”„*]")
_REMOVES = re.compile(r"(?:drop|replac|remov|retire).*", re.IGNORECASE)
"""Words that turn down their object; what follows a preposition is none."""
_SLOTS = {
    word: each
    for each, words in (
        ("at", "at on to in bei auf im en sur à dans"),
        ("from", "from"),
        ("by", "by with via over through using mit über per por con avec par"),
    )
    for word in words.split()
}
"""Prepositions -> one for those that mean nearly the same."""
_PARTS = re.compile(r"[,;:.!?()–—]+(?:\s+|$)|\s-\s")
_CLAUSES = re.compile(r"[;:,]\s+(?:and|but|so|und|y|et)?\s*")

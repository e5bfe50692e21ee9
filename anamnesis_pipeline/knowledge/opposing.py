"""Does a later sentence speak against an older one? In more ways than two notes on one subject conflict: what the older
one names has ended, its number is turned down, it is denied, or something else stands in the same place. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anamnesis_pipeline.knowledge.statements import Claim, claim_of, conflicts, lead_of, stems_of
from anamnesis_pipeline.knowledge.wording import (
    BECAUSE,
    CEASED,
    CONSEQUENCES,
    COPULAS,
    DENIED_NUMBER,
    GONE,
    LACKS,
    NO_MORE,
    TROUBLE,
    USES,
)

NAMED_BY = 2
"""Least stems by which two sentences name the same thing."""
DENIES, ASKS, TAKES_UP = "denies the same", "asks for the same", "takes up"
_WORD = re.compile(r"[^\W_][\w+#.-]*[\w+#]|[^\W_]", re.UNICODE)
_NUMBER = re.compile(r"v?\d[\d.,:_]*")
_NAME = re.compile(r".*(?:[A-Z]|\d|[+#._/-]\w).*")
"""A word that is a name: it has a capital letter, a digit, or a sign inside."""
_NAMED = re.compile(r"['\"`]([\w:.-]+)['\"`]|(?<![\w/.-])([A-Za-z]\w*(?:[.-]\w+)+)(?![\w/])")
MIN_NAME = 4
"""Characters of a name that an error and a statement have by no chance."""
_CLAUSES = re.compile(r"[;:,]\s+(?:(?:and|but|so|und|y|et)\s)?\s*")
_AT = re.compile(
    r"at|on|to|in|by|with|via|from|under|bei|auf|im|mit|über|von|unter|en|sur|à|dans|avec|par|sous|con|por|bajo", re.I
)
_IF = re.compile(r"\b(?:if|when|unless|until|while|wenn|falls|bis|si|cuando|quand)\b", re.I)
_UNQUOTED = re.compile(r"['\"`*]")
_QUOTED = re.compile(r"[\"`*“„]([^\"`*“”„]{2,40})[\"`*”“]")
_GERMAN = re.compile(r"\b(?:der|die|das|den|dem|ein|eine[nmr]?|ist|sind|und|nicht|mit|auf)\b", re.I)
_SIGNED = re.compile(r".+(?:[A-Z]|\d|[+#._/-]\w).*|\d\w*[A-Za-z]\w*")
"""A name where nouns begin with a capital: one inside, a digit, or a sign."""
OVER = 0.5
"""Share of the older one's words in what is so no longer."""
_PRODUCT = re.compile(r"\b([A-Z][\w+#-]*)\s+v?(\d[\d.]*)\b")
_BEFORE_ACT = re.compile(r"no longer|ya no|stopped|stop", re.I)
_ENDED_BY = 3
"""Words before the verb that tell what ended."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a sentence says of a thing: a name, with its number, behind `slot`; `named`: stems of the thing."""

    slot: str
    named: frozenset[str]
    value: tuple[str, ...]
    kind: str
    """Stem of the word behind the name: what it names."""


def opposes(older: Claim, newer: Claim) -> str:
    """Return why a newer sentence on the same subject speaks against an older one; empty: it does not."""
    why = conflicts(older, newer) or conflicts(older, claim_of(BECAUSE.sub("", newer.text)))
    if why.startswith(TAKES_UP) and not older.rejected & older.stems <= _stems(CONSEQUENCES.sub("", newer.text)):
        why = ""  # only a part of what was turned down, or as a condition
    for rule in (_ended, _ceased, _over, _denied_number, _denied, _moved, _versions):
        why = why or rule(older, newer)
    return why


def ends_name(older: Claim, newer: Claim) -> str:
    """Return a name in an older sentence that a newer one turns down, or says is no longer there; empty: none."""
    names = {stem for name in names_of(older.text) for stem in _stems(name)} - older.rejected
    over = set(newer.rejected)
    for clause in _CLAUSES.split(newer.text):
        for found in GONE.finditer(_UNQUOTED.sub("", clause)):
            over |= _stems(" ".join(found[1].split()[-_ENDED_BY:]))
        named = {stem for name in names_of(clause) for stem in _stems(name)}
        is_its = len(_stems(clause) & older.stems) >= NAMED_BY or any(any(map(str.isdigit, each)) for each in named)
        if is_its and _ceases(clause, older):
            over |= named
    is_known = len(older.stems & newer.stems) >= NAMED_BY
    ended = sorted(name for name in names & over if is_known or any(map(str.isdigit, name)))
    return f"no longer {ended[0]}" if ended else ""


def names_of(text: str) -> set[str]:
    """Return the words of a sentence that are names by their form; where every noun has a capital, that is none."""
    words = _WORD.findall(text)
    is_german = _GERMAN.search(text) is not None
    quoted = {word for found in _QUOTED.findall(text) for word in _WORD.findall(found)}
    return quoted | {word for word in words[1:] if (_SIGNED if is_german else _NAME).fullmatch(word)}


def lacks(statement: str, error: str) -> str:
    """Return the thing that a statement names and an error says is not there; empty: there is none. Files count not:
    a command may run in another folder.
    """
    named = {found.strip(".:") for pair in _NAMED.findall(error) for found in pair} if LACKS.search(error) else ()
    told = {word.strip(".:") for word in re.findall(r"[\w.-]+|[\w.:-]+", statement)}
    return f"{min(found)} is not there" if (found := {each for each in named if len(each) >= MIN_NAME} & told) else ""


def _stems(text: str) -> frozenset[str]:
    return frozenset(stems_of(_WORD.findall(text.lower())))


def _numbers(text: str) -> frozenset[str]:
    return frozenset(found.rstrip(".,:") for found in _NUMBER.findall(text))


def _ended(older: Claim, newer: Claim) -> str:
    """Return what the older one names and the newer one says is gone."""
    for found in GONE.finditer(newer.text):
        named = " ".join(found[1].split()[-_ENDED_BY:])
        gone, numbers = _stems(named), _numbers(named)
        if (gone or numbers) and gone <= older.stems and numbers <= _numbers(older.text):
            return f"{named} ended"
    return ""


def _ceased(older: Claim, newer: Claim) -> str:
    """Return the name in the older one with which the newer one says that the same is no longer done."""
    names = {word for word in _WORD.findall(older.text)[1:] if _NAME.fullmatch(word)}
    for clause in _CLAUSES.split(newer.text) if names and CEASED.search(newer.text) else ():
        shared = _stems(clause) & older.stems
        kept = [name for name in names if _stems(name) and _stems(name) <= shared]
        if _ceases(clause, older) and kept and len(shared) >= NAMED_BY:
            return f"no longer {min(kept)}"
    return ""


def _over(older: Claim, newer: Claim) -> str:
    """Return why most of what the older one says is so no longer."""
    said, lead = older.stems, set(lead_of(older))
    for clause in _CLAUSES.split(newer.text) if NO_MORE.search(newer.text) and not older.is_negative else ():
        shared = _stems(clause) & said
        is_most = len(shared) >= max(NAMED_BY, OVER * len(said)) and not shared <= lead
        if NO_MORE.search(clause) and is_most and _ceases(clause, older):
            return DENIES
    return ""


def _versions(older: Claim, newer: Claim) -> str:
    """Return two products, each of which has another version in either sentence."""
    before, after = (dict(_PRODUCT.findall(_UNQUOTED.sub("", claim.text))) for claim in (older, newer))
    differ = [name for name in before if name in after and before[name] != after[name]]
    return f"{differ[0]} {before[differ[0]]} and {after[differ[0]]}" if len(differ) >= NAMED_BY else ""


def _ceases(clause: str, older: Claim) -> bool:
    """Return whether a clause says that what the older sentence says is so no more, and no other act or trouble."""
    found = CEASED.search(clause)
    if found is None or TROUBLE.search(clause) or _IF.search(clause, found.end()):
        return False
    act = next(iter(_WORD.findall(clause[found.end() :])), "") if _BEFORE_ACT.fullmatch(found[0]) else ""
    return _NAME.fullmatch(act) is not None or older.stems.issuperset(_stems(act))


def _denied_number(older: Claim, newer: Claim) -> str:
    """Return the older one's number, if the newer one turns it down for another."""
    for found in DENIED_NUMBER.finditer(newer.text):
        if (denied := _numbers(found[1])) and denied <= _numbers(older.text) and denied < _numbers(newer.text):
            return f"turns down {found[1]}"
    return ""


def _denied(older: Claim, newer: Claim) -> str:
    """Return what one of both denies and the other says, in the same words."""
    clauses = [*map(claim_of, _CLAUSES.split(newer.text)), newer]
    for said in map(claim_of, _CLAUSES.split(older.text)):
        words = said.stems if _IF.search(said.text) else _stems(CONSEQUENCES.sub("", said.text))
        same = (each for each in clauses if words <= _stems(CONSEQUENCES.sub("", each.text)))
        first = next(same, None) if len(words) >= NAMED_BY else None
        if first is not None and first.is_negative != said.is_negative:
            return DENIES if first.is_negative else ASKS
    return ""


def _moved(older: Claim, newer: Claim) -> str:
    """Return two names, if both say of the same thing what it is, where it is or what it is done with."""
    for before in _places(older.text):
        for after in _places(newer.text):
            is_same = before.slot == after.slot and before.named <= after.named and len(before.named) >= NAMED_BY
            is_kind = before.kind == after.kind != "" and before.slot == after.slot
            is_same = is_same or (is_kind and bool(after.named) and after.named <= before.named)
            words = [set(map(str.lower, _WORD.findall(each.text))) for each in (newer, older)]
            is_other = not words[0].issuperset(map(str.lower, before.value))
            if is_same and is_other and not words[1].issuperset(map(str.lower, after.value)):
                return f"{' '.join(before.value)} and {' '.join(after.value)}"
    return ""


def _places(text: str) -> Iterator[_Place]:
    """Yield what a sentence says of a thing by a name: behind the verb, a preposition, or `use`."""
    words = _WORD.findall(text)
    for at, word in enumerate(words):
        is_use, is_copula = USES.fullmatch(word) is not None, COPULAS.fullmatch(word) is not None
        within = at + (2 if is_use else 4)  # what is used has a name without an article
        behind = [place for place in range(at + 1, min(within, len(words))) if stems_of([words[place].lower()])][:1]
        if not behind or not (is_use or is_copula or _AT.fullmatch(word)):
            continue
        value = tuple(words[behind[0] : behind[0] + 1 + (_NUMBER.match(" ".join(words[behind[0] + 1 :])) is not None)])
        thing = words[behind[0] + 1 :] if is_use else words[:at]
        if is_use or _NAME.fullmatch(value[0]):
            slot = "use" if is_use else "is" if is_copula else "at"
            kind = "" if is_use else next(iter(stems_of(map(str.lower, words[behind[0] + 1 : behind[0] + 2]))), "")
            yield _Place(slot, _stems(" ".join(thing)), value, kind)

"""Lines of a text that name what is still to be done, and sentences that name what was decided. Pure."""

import re
from collections.abc import Iterable, Iterator

MOST_LINES = 4
"""Of one text."""
MOST_LINE_CHARS = 300
LEAST_CHARS = 20
"""Of a decision."""
MOST_TEXT_CHARS = 50_000

_BULLET = re.compile(r"^\s*(?:[-*+\u2022]|\d{1,3}[.)])\s+(?P<box>\[[ xX]\]\s*)?")
_DRESS = re.compile(r"^[\s#>*_\-+\u2022]*(?:\d{1,3}[.)]\s+)?[*_]*")
_OPEN_WORDS = (
    r"to-?do|todos|next(?: steps?| up| actions?)?|blocked|blockers?|unresolved|follow[- ]?ups?|remaining(?: \w+)?"
    r"|open (?:loops?|questions?|issues?|points?|items?)|still open|left to do|pending"
)
_HEADING = re.compile(rf"(?:{_OPEN_WORDS})(?: \w+){{0,2}}[*_]*\s*:?[*_]*\s*", re.IGNORECASE)
_LED = re.compile(rf"(?:{_OPEN_WORDS})[*_]*\s*(?::|\u2014|\u2013| - )[*_]*\s*\S", re.IGNORECASE)
_INSIDE = re.compile(
    r"\bTODO\b|\bblocked (?:on|by)\b|\bfollow[- ]?up (?:is|needed|on|with)\b|\bstill (?:needs?|ha(?:ve|s) to)\b"
    r"|\b(?:is|are|remains?|still) (?:blocked|unresolved|open|missing|failing|to be done|left to do)\b"
    r"|\bremaining (?:work|steps?|tasks?|items?|issues?|problems?)\b|\bnext (?:step|session)\b"
    r"|\bnot yet (?:done|implemented|tested|fixed|merged)\b",
    re.IGNORECASE,
)
_CLOSED = re.compile(
    r"\[[xX]\]|\b(?:no|nothing|none|not|zero|0) (?:is |are |more |longer )?"
    r"(?:remaining|blocked|blockers?|unresolved|open|left|todos?|follow)"
    r"|(?:todo|next|blocked|blockers?|remaining|open \w+)s?[*_]*\s*:\s*(?:none|nothing|no|n/a|-)\b",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:we|i|you|they|it was|was|team|user)(?:'ve| have| has)? (?:decided|agreed|settled|opted|chose)\b"
    r"|\bdecision\s*:|\b(?:let's|let us|we'll|we will|i'll|i will|we are|we're|i'm) (?:go|going) with\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^\n.!?]+(?:[.!?](?!\s|$)[^\n.!?]*)*[.!?]*")


def open_loops(text: str, most: int = MOST_LINES) -> list[str]:
    """The lines that name what is open: items under a heading such as `Next steps`, unchecked boxes, and lines that say
    that something is to be done, blocked, unresolved, remaining or to be followed up. What is ticked off is none.
    """
    found: list[str] = []
    for line in _candidates(text[-MOST_TEXT_CHARS:].splitlines()):
        plain = _plain(line)
        if plain and plain not in found and not _CLOSED.search(line):
            found.append(plain)
            if len(found) == most:
                break
    return found


def _candidates(lines: Iterable[str]) -> Iterator[str]:
    under = False
    for line in lines:
        if not line.strip() or len(line) > 10 * MOST_LINE_CHARS:
            continue
        bullet, bare = _BULLET.match(line), _DRESS.sub("", line).strip()
        if _HEADING.fullmatch(bare):
            under = True
        elif bullet and under:
            yield line
        else:
            under = False
            is_unticked = bullet is not None and (bullet["box"] or "").strip() == "[ ]"
            if is_unticked or _LED.match(bare) or _INSIDE.search(bare):
                yield line


def decisions_in(text: str, most: int = MOST_LINES) -> list[str]:
    """The sentences that say what was decided."""
    found: list[str] = []
    for sentence in _SENTENCE.finditer(text[:MOST_TEXT_CHARS]):
        said = _plain(sentence[0])
        if len(said) >= LEAST_CHARS and _DECIDED.search(said) and said not in found:
            found.append(said)
            if len(found) == most:
                break
    return found


def _plain(line: str) -> str:
    """A line without its bullet, box and markup, at most MOST_LINE_CHARS."""
    bare = " ".join(_DRESS.sub("", _BULLET.sub("", line)).split()).strip("*_ ")
    return bare if len(bare) <= MOST_LINE_CHARS else bare[: MOST_LINE_CHARS - 1].rsplit(" ", 1)[0] + "\u2026"

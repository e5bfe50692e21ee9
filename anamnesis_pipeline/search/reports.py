"""Extract the content of a report by sentence: done, filed, decided, failing and left. Pure.

Claude ends its work with a report: headings, lists, tables, sentences. `units_of` splits one into whole sentences and
items without markup, each with its heading and its topic.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from anamnesis_pipeline.parsing.text.plain_text import plain_marks
from anamnesis_pipeline.parsing.text.sentences import sentences

MAX_TEXT_CHARS = 50_000
"""Limit per message; of a longer one the beginning and the end are read."""
MAX_LINE_CHARS = 10_000
"""A longer line is data, not sentences."""
MAX_CODE_LINES = 2
"""Lines of a code block that is kept, such as a command to run; a longer block is left out."""
MAX_LABEL_CHARS = 80


class Topic(StrEnum):
    """The topic of a sentence."""

    DONE = "done"
    FILED = "filed"
    OPEN = "open"
    """Remaining, next, blocked or to be followed up."""
    FAILING = "failing"
    DECIDED = "decided"


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence, a list item or a table row, on one line. `label`: its heading."""

    text: str
    topic: Topic | None = None
    label: str = ""
    is_item: bool = False
    """Of a list or a table."""


_BULLET = re.compile(r"(?P<indent>[ \t]*)(?:[-*+\u2022]|\d{1,3}[.)])[ \t]+(?:\[(?P<box>[ xX])\][ \t]*)?")
_HASHES = re.compile(r"[ \t]*#{1,6}[ \t]+")
_BOLD_LINE = re.compile(r"[ \t]*(?:\*\*|__)(?P<text>[^*\n]{1,200})(?:\*\*|__)[ \t]*(?P<colon>:?)[ \t]*")
_RULER = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}|[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*")
_TICKED, _UNTICKED = re.compile("[\u2705\u2611\u2713\u2714]"), re.compile("[\u2610\u2b1c\u23f3\U0001f504\U0001f6a7]")
_CHEER = re.compile(
    r"(?:perfect|great|excellent|awesome|good|nice|success|you're (?:absolutely )?right)[!.]", re.IGNORECASE
)
_LED = re.compile(rf"(?P<label>[^:\n\u2014\u2013]{{2,{MAX_LABEL_CHARS}}}?)\s*(?::|\u2014|\u2013|\s-)\s+(?P<rest>\S.*)")

_WORK_DONE = r"(?:done|implemented|tested|fixed|merged|finished|covered|started|wired up|pushed|committed|deployed|run)"
_LEFT = (
    r"to-?do'?s?|todos|next(?: (?:steps?|up|actions?|tasks?|session|time|week|phase|milestone|pr))?|blocked|blockers?"
    r"|(?:suggested |possible )?follow[- ]?ups?|remaining(?: [\w-]+)?|remains|outstanding|unfinished|incomplete"
    r"|what(?:'s| is| remains)?(?: still)?(?: left| remains| open| missing| next)|in progress|waiting (?:on|for)"
    r"|(?:known )?open(?: (?:loops?|questions?|issues?|points?|items?|tasks?|work))?|unresolved|deferred|postponed"
    r"|left(?: to do| over| open| for later)?|still (?:open|to do|missing|pending|(?:to be )?done)|pending"
    rf"|(?:work |things )?to be done|action items?|not (?:yet )?{_WORK_DONE}|future (?:work|considerations?)"
    r"|known (?:issues?|gaps?|limitations?|problems?)|for (?:the )?next (?:session|time)"
    r"|(?:open|pending) decisions?|decisions? (?:needed|pending|to make)"
)
_FURTHER = (
    r"(?: (?:to|for|in|on|of|from|and|or|before|after|with|by|at|when|if|i|we|you|is|are|would|should|could|will)\b"
    r"[\w' -]{0,40})?"
)
_WORK = r"(?:issues?|tickets?|bugs?|beads?|tasks?|follow[- ]?ups?)"
_TOPICS = (
    (
        Topic.FILED,
        rf"(?:new |follow[- ]?up )?{_WORK} (?:i )?(?:filed|created|opened|logged)|filed(?: \w+){{0,3}}"
        rf"|(?:created|opened|logged) {_WORK}",
    ),
    (Topic.OPEN, rf"(?:{_LEFT}){_FURTHER}"),
    (Topic.FAILING, r"(?:still |currently )?(?:failing|failed|broken)(?: [\w-]+){0,2}|(?:test )?failures?"),
    (
        Topic.DECIDED,
        r"(?:(?:key|design|latest|main|technical|\w+) )?(?:decisions?|choices)(?: (?:made|taken|and \w+))?"
        r"|decided|agreed|what (?:we|i) decided",
    ),
    (
        Topic.DONE,
        r"(?:(?:all|work|what(?:'s| i| we| is| was| has been| have)?) )*"
        r"(?:done|did|completed?|finished|built|implemented|changed|fixed|added|shipped|merged|landed|resolved)"
        r"(?: (?:so far|in this session|this session|today|now|work|items?|tasks?))?"
        r"|summary(?: of [\w -]{1,40})?|changes(?: made)?|results?|accomplish(?:ed|ments)|commits?|fixes(?: applied)?"
        r"|verification|verified|tests? added"
        r"|.{1,50} (?:resolved|fixed|addressed|complete|completed|closed|finished)",
    ),
)
_HEADINGS = [(topic, re.compile(pattern, re.IGNORECASE)) for topic, pattern in _TOPICS]
_LEADS = [
    (topic, re.compile(pattern, re.IGNORECASE))
    for topic, pattern in (
        (Topic.FILED, r"(?:issues? )?filed|(?:issues?|tickets?|beads?) (?:filed|created|opened)"),
        (Topic.OPEN, rf"(?:{_LEFT}){_FURTHER}"),
        (Topic.FAILING, r"(?:still )?failing(?: tests?)?|failed(?: tests?)?"),
        (Topic.DECIDED, r"(?:key |design )?decisions?|decided"),
        (Topic.DONE, r"done|completed|finished|shipped|merged|landed"),
    )
]
_IS_OPEN = re.compile(
    r"(?-i:\bTODO\b)|\bblocked (?:on|by)\b|\bfollow[- ]?up (?:is|needed|on|with)\b"
    r"|\bstill (?:needs?|ha(?:ve|s) to|fails?|missing|lacks?|does(?:n't| not) work)\b"
    r"|\b(?:is|are|remains?|still) (?:blocked|unresolved|open|missing|failing|pending|to be done|left to do|untested)\b"
    r"|\bremaining (?:work|steps?|tasks?|items?|issues?|problems?)\b|\bnext (?:step|session)\b"
    r"|\b(?:is|are) left (?:to|for)\b|^(?:please )?(?:try|re-?run) (?:again|it|running|this|the)\b"
    r"|\b(?:waits?|waiting|awaiting) (?:for )?(?:final |your |a )?(?:review|merge|approval|answer|decision)\b"
    rf"|\bnot (?:been )?{_WORK_DONE} yet\b|\bnot yet (?:been )?{_WORK_DONE}\b"
    rf"|\bha(?:ve|s)(?:n't| not) (?:yet )?(?:been )?{_WORK_DONE}\b",
    re.IGNORECASE,
)
_IS_FILED = re.compile(
    rf"\b(?:filed|opened|created|logged) (?:an? |two |three |\d+ )?(?:new |follow[- ]?up )*{_WORK}\b", re.IGNORECASE
)
_CLOSED = re.compile(
    r"\[[xX]\]|\b(?:no|nothing|none|not|zero|0) (?:(?:is|are|was|more|longer|\w+ing|\w+ is) )?"
    r"(?:remaining|remains|blocked|blockers?|unresolved|open|left|todos?|follow|outstanding|pending)"
    r"|^(?:todo|next|blocked|blockers?|remaining|open \w+|left|follow-?up)s?[*_]*\s*[:\u2014\u2013-]\s*"
    r"(?:none|nothing|no|n/a|-)\b",
    re.IGNORECASE,
)
_CELLS = {
    Topic.DONE: re.compile(r"done|complete|completed|closed|fixed|merged|shipped|passed|passing|ok|yes", re.IGNORECASE),
    Topic.OPEN: re.compile(
        r"to-?do|open|pending|remaining|next|blocked|in[ -]progress|not (?:started|done|yet)|missing|deferred"
        r"|follow-?up",
        re.IGNORECASE,
    ),
    Topic.FAILING: re.compile(r"fails?|failing|failed|broken|red", re.IGNORECASE),
}


def units_of(text: str) -> list[Unit]:
    """Return the sentences, items and rows of a message, in order, each with its heading and topic."""
    if len(text) > MAX_TEXT_CHARS:
        half = MAX_TEXT_CHARS // 2
        text = f"{text[:half].rsplit(chr(10), 1)[0]}\n\n{text[-half:].partition(chr(10))[2]}"
    reader = _Reader()
    for line in text.splitlines():
        reader.read(line)
    return reader.finish()


def told(units: Iterable[Unit]) -> str:
    """Join units to running text: each heading once before its units, items separated by semicolons."""
    text, label = "", ""
    for unit in units:
        is_new = unit.label != label
        piece = f"{unit.label}: {unit.text}" if unit.label and is_new else unit.text
        text += (" " if text.endswith(_STOPS) else ". " if is_new else "; ") + piece if text else piece
        label = unit.label
    return text


_STOPS = (".", "!", "?", ":", ";", "\u2026", "\u3002", "\uff01", "\uff1f", '."', ".)")


def topic_of_heading(heading: str) -> Topic | None:
    """Return the topic of a heading's content."""
    bare = re.sub(r"\s*\([^()]*\)$", "", heading.strip().rstrip(":").strip()).strip(" *_`")
    return next((topic for topic, pattern in _HEADINGS if pattern.fullmatch(bare)), None)


class _Reader:
    """Reads line by line. `_heading` holds until the next one; after a list under it, until a paragraph."""

    def __init__(self) -> None:
        self._units: list[Unit] = []
        self._heading = ""
        self._topic: Topic | None = None
        self._is_loose = False
        """A list was under the heading."""
        self._item_indent: int | None = None
        self._fence: list[str] | None = None
        self._titles: list[str] = []

    def read(self, line: str) -> None:
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            self._toggle_fence()
        elif self._fence is not None:
            self._fence.append(stripped)
        elif not stripped or len(line) > MAX_LINE_CHARS:
            self._item_indent, self._titles = None, []
        elif _RULER.fullmatch(line):
            pass
        elif stripped.startswith("|") and stripped.count("|") > 2:
            self._row([plain_marks(cell) for cell in stripped.strip("|").split("|")], stripped)
        elif (heading := _heading_in(line)) is not None:
            self._heading, self._topic = heading.rstrip(":").strip()[:MAX_LABEL_CHARS], topic_of_heading(heading)
            self._is_loose, self._item_indent = False, None
        elif bullet := _BULLET.match(line):
            self._item(bullet, line[bullet.end() :])
        elif self._item_indent is not None and len(line) - len(line.lstrip()) > self._item_indent:
            self._go_on(plain_marks(stripped))
        else:
            self._paragraph(line)

    def finish(self) -> list[Unit]:
        if self._fence is not None:
            self._toggle_fence()
        return self._units

    def _item(self, bullet: re.Match[str], rest: str) -> None:
        self._item_indent, self._is_loose = len(bullet["indent"]), True
        text = plain_marks(rest)
        if bold := _BOLD_LINE.fullmatch(rest):
            text = plain_marks(bold["text"]).rstrip(":")
        box = bullet["box"]
        ticked = Topic.DONE if box in {"x", "X"} else Topic.OPEN if box == " " else None
        self._add(text, ticked or _ticked(rest), is_item=True)

    def _go_on(self, text: str) -> None:
        """Append a continuation line to the item above it."""
        if self._units and text:
            last = self._units[-1]
            self._units[-1] = replace(last, text=f"{last.text} {text}")

    def _paragraph(self, line: str) -> None:
        if self._is_loose:
            self._heading, self._topic, self._is_loose = "", None, False
        self._item_indent = None
        ticked, led = _ticked(line), None
        for sentence in sentences(plain_marks(line)):
            led = _topic_of_lead(sentence) or led
            self._add(sentence, led or ticked)

    def _row(self, cells: list[str], line: str) -> None:
        if not self._titles:
            self._titles = cells
            return
        self._is_loose = True
        state = next((t for t, pattern in _CELLS.items() for cell in cells if pattern.fullmatch(cell)), None)
        self._add(" \u2013 ".join(cell for cell in cells if cell), state or _ticked(line), is_item=True)

    def _toggle_fence(self) -> None:
        if self._fence is None:
            self._fence = []
            return
        lines = [line for line in self._fence if line]
        if 0 < len(lines) <= MAX_CODE_LINES and max(map(len, lines)) <= MAX_LABEL_CHARS:
            if self._units and self._units[-1].text.endswith(":"):
                self._go_on("; ".join(lines))
            else:
                self._add("; ".join(lines), None)
        self._fence = None

    def _add(self, text: str, topic: Topic | None, *, is_item: bool = False) -> None:
        if not (text := plain_marks(text)) or _CHEER.fullmatch(text):
            return
        topic = _topic_of_lead(text) or topic or self._topic
        if topic is not Topic.DONE and _IS_OPEN.search(text):
            topic = Topic.OPEN
        elif topic is None and _IS_FILED.search(text):
            topic = Topic.FILED
        if topic in {Topic.OPEN, Topic.FAILING} and _CLOSED.search(text):
            topic = None
        self._units.append(Unit(text, topic, self._heading, is_item))


def _heading_in(line: str) -> str | None:
    """Return the heading in a line: marked as one, bold, or naming a topic."""
    if hashes := _HASHES.match(line):
        return plain_marks(line[hashes.end() :])
    if bold := _BOLD_LINE.fullmatch(line):
        heading = plain_marks(bold["text"])
        is_said = heading.endswith((".", "!", "?")) or "://" in heading
        return heading if bold["colon"] or not is_said else None
    bare = plain_marks(line)
    if bare.endswith(":") and len(bare) <= MAX_LABEL_CHARS and not _BULLET.match(line) and topic_of_heading(bare):
        return bare
    is_bare_topic = any(pattern.fullmatch(bare) for _, pattern in _LEADS) and not line[:1].isspace()
    return bare if is_bare_topic and bare[:1].isupper() else None


def _topic_of_lead(sentence: str) -> Topic | None:
    """Return the topic of a sentence that begins with its name: `Next: ...`."""
    led = _LED.match(sentence)
    if led is None:
        return None
    label = led["label"].strip(" *_`")
    return next((topic for topic, pattern in _LEADS if pattern.fullmatch(label)), None)


def _ticked(line: str) -> Topic | None:
    head = line[:12]
    return Topic.DONE if _TICKED.search(head) else Topic.OPEN if _UNTICKED.search(head) else None


def of_topic(units: Sequence[Unit], *topics: Topic) -> Iterator[Unit]:
    """Yield the units of some topics, each text once."""
    seen = set[str]()
    for unit in units:
        if unit.topic in topics and unit.text not in seen:
            seen.add(unit.text)
            yield unit

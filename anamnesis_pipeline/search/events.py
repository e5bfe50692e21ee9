"""The event that a question refers to: `what broke right after the migration?`, `before the compaction`. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.search.time_expressions import QUESTION_CHARS, Relation, TimeReference
from anamnesis_pipeline.search.time_phrases import phrases_in
from anamnesis_pipeline.search.words import content_words

AROUND = timedelta(hours=12)
"""Time on either side of an event."""
BESIDE_COMPACTION = timedelta(minutes=10)
"""A compaction is recorded to the second, and work continues at once: its causes and results are this near."""
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""The range of times that leaves half a day on either side."""

_PAST = re.compile(
    r"\b(?:did|didn't|was|were|had|happened|\w{2,}ed|broke|came|went|made|got|began|said|wrote|took|built|chose|kept)\b",
    re.I,
)
"""A question about an event is in the past tense."""
_PRESENT = re.compile(r"\b(?:is|are|be|been|being|gets?|can|must|should)\s+(?:not\s+)?\w+ed\b", re.I)
"""Participles that are not past tense: `is retried`."""
_SUBJECT = r"(?:the|a|an|our|my|your|its|his|her|their|this|that|all|both|we|i|you|he|she|it|they|everything)\b"
_EVENT = re.compile(
    r"(?:\b(?:right|just|immediately|directly|shortly|soon|straight)\s+)?"
    r"\b(?P<relation>before|prior to|after|during|(?<!\ba )(?<!\bthe )while|as soon as|when|since|"
    rf"(?:once|following)(?=\s+{_SUBJECT}))\s+"
    r"(?P<words>[^,.?!;\n]{3,120})",
    re.I,
)
"""`once` is mostly a number, `following` mostly refers to a text: both need a subject behind them."""
_OF_COMPACTIONS = frozenset({"when", "since"})
"""Words that relate to a compaction only: `when` mostly asks, and `since` mostly precedes a time."""
_NO_EVENT = re.compile(
    r"(?:\d|(?:all|each|every|any|that|this|it|you|an?|half an?|quite an?|and|or|long|the fact)\b)", re.I
)
"""Words behind `after` that are no event: an amount, a habit, any of a kind (`after a reboot`), a statement."""
_ALWAYS = re.compile(r"(?:all|each|every|any)\b", re.I)
_ASKS_ON = re.compile(r"\s+(?:what|why|who|how|which|where|did|do|does|was|were|we|i|they|there)\b", re.I)
_RELATIONS = {
    "before": Relation.BEFORE,
    "prior to": Relation.BEFORE,
    "during": Relation.DURING,
    "while": Relation.DURING,
    "when": Relation.DURING,
}
"""Relations of some words; the others mean `after`."""
_LOOKS_BACK = re.compile(r"\b(?:have|has|remember|recall)\b", re.I)
"""Words that also mark the past of a compaction: it happened, and is no habit."""
_COMPACTED = re.compile(r"(?<!\w)/compact\b|\b(?:auto-?compact\w*|compact(?:ed|ions?|ing))\b", re.I)
_CONVERSATION = frozenset("context session conversation chat transcript history window".split())
_STORAGE = frozenset("index table database db store storage log logs file files disk segment segments".split())
_SAYS_NOTHING = frozenset(
    "auto automatic automatically claude code got happened hit kicked last latest most recent ran started".split()
)
"""Words beside a compaction that do not identify it."""


@dataclass(frozen=True, slots=True)
class Event:
    """The words of a question for an event, the relation of the answer to it, and the rest of the question. `goes_on`:
    `since` the event, up to now.
    """

    words: str
    relation: Relation
    rest: str = ""
    goes_on: bool = False

    @property
    def is_compaction(self) -> bool:
        """Return whether Claude Code compacted a conversation; a compacted index is no such event."""
        if not _COMPACTED.search(self.words):
            return False
        named = set(_named(self.words))
        return not named or bool(named & _CONVERSATION and not named & _STORAGE)

    @property
    def is_the_last(self) -> bool:
        """Return whether a compaction is not identified, as in `the context got compacted`: then it is the last one."""
        return not set(_named(self.words)) - _CONVERSATION


def event_in(text: str) -> Event | None:
    """Return the event that a question in the past tense refers to.

    A time (`after 5 March`) is no event, nor is a habit (`before each run`).
    """
    asked = text[:QUESTION_CHARS]
    for match in _relations_in(asked):
        follows = _ASKS_ON.search(match["words"]) if match.start() == 0 else None  # `after the move what broke`
        end = match.start("words") + follows.start() if follows else match.end()
        word = match["relation"].lower()
        words, rest = asked[match.start("words") : end].strip(), f"{asked[: match.start()]} {asked[end:]}".strip()
        event = Event(words, _RELATIONS.get(word, Relation.AFTER), rest, goes_on=word == "since")
        if (event.is_compaction and not _ALWAYS.match(words)) or not _is_none(asked, match):
            told = _PRESENT.sub(" ", rest)
            if _PAST.search(told) or (event.is_compaction and _LOOKS_BACK.search(told)):
                return event
    return None


def around(event: Event, when: datetime, session_id: str = "") -> TimeReference:
    """Return the 12 hours before and after an event, which tell its causes and results. For a compaction, return the
    minutes of its session on the requested side, or on both.

    :param when: time of the event's best hit.
    :param session_id: session of that hit.
    """
    when = min(max(when, EARLIEST), LATEST)
    if not event.is_compaction:
        return TimeReference(
            when - AROUND, when + AROUND, Relation.DURING, event.words, certain=False, by_the_clock=False
        )
    since = when if event.relation is Relation.AFTER else when - BESIDE_COMPACTION
    until = None if event.goes_on else when if event.relation is Relation.BEFORE else when + BESIDE_COMPACTION
    moment = None if event.goes_on else when
    return TimeReference(
        since,
        until,
        event.relation,
        event.words,
        certain=True,
        by_the_clock=False,
        moment=moment,
        session_id=session_id,
    )


def _relations_in(asked: str) -> Iterator[re.Match[str]]:
    """Yield every relation word with the words behind it, which may contain the next one."""
    match = _EVENT.search(asked)
    while match is not None:
        yield match
        match = _EVENT.search(asked, match.start("words"))


def _is_none(asked: str, match: re.Match[str]) -> bool:
    if match["relation"].lower() in _OF_COMPACTIONS or _NO_EVENT.match(match["words"]):
        return True
    told = asked[match.start("relation") : match.end()]
    return any(phrase.start <= len("prior to the ") for phrase in phrases_in(told, datetime(2020, 1, 1)))


def _named(words: str) -> Iterator[str]:
    """Yield the words beside a compaction that identify it."""
    for word in content_words(_COMPACTED.sub(" ", words)):
        if word not in STOP_WORDS and word not in _SAYS_NOTHING and len(word) > 1:
            yield word

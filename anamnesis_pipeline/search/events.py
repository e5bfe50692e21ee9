"""The event that a question asks around: `what broke right after the migration?`, `before the compaction`. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.search.time_expressions import QUESTION_CHARS, Relation, TimeReference
from anamnesis_pipeline.search.time_phrases import phrases_in
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.stop_words import STOP_WORDS

AROUND = timedelta(hours=12)
"""What an event is surrounded by."""
BESIDE_COMPACTION = timedelta(minutes=10)
"""A compaction is recorded to the second, and the work goes on at once: what it led away from, and to, is this near."""
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""Times with half a day on either side."""

_PAST = re.compile(
    r"\b(?:did|didn't|was|were|had|happened|\w{2,}ed|broke|came|went|made|got|began|said|wrote|took|built|chose|kept)\b",
    re.I,
)
"""A question about an event tells that something has happened."""
_PRESENT = re.compile(r"\b(?:is|are|be|been|being|gets?|can|must|should)\s+(?:not\s+)?\w+ed\b", re.I)
"""Participles that tell no past: `is retried`."""
_SUBJECT = r"(?:the|a|an|our|my|your|its|his|her|their|this|that|all|both|we|i|you|he|she|it|they|everything)\b"
_EVENT = re.compile(
    r"(?:\b(?:right|just|immediately|directly|shortly|soon|straight)\s+)?"
    r"\b(?P<relation>before|prior to|after|during|(?<!\ba )(?<!\bthe )while|as soon as|when|since|"
    rf"(?:once|following)(?=\s+{_SUBJECT}))\s+"
    r"(?P<words>[^,.?!;\n]{3,120})",
    re.I,
)
"""`once` is mostly a number, `following` mostly points at a text: they relate where a subject comes behind them."""
_OF_COMPACTIONS = frozenset({"when", "since"})
"""Words that relate to a compaction only: `when` mostly asks, and `since` mostly stands before a time."""
_NO_EVENT = re.compile(
    r"(?:\d|(?:all|each|every|any|that|this|it|you|an?|half an?|quite an?|and|or|long|the fact)\b)", re.I
)
"""What follows `after` and tells no event: an amount, what always holds, any of a kind (`after a reboot`), what was
said before.
"""
_ALWAYS = re.compile(r"(?:all|each|every|any)\b", re.I)
_ASKS_ON = re.compile(r"\s+(?:what|why|who|how|which|where|did|do|does|was|were|we|i|they|there)\b", re.I)
_RELATIONS = {
    "before": Relation.BEFORE, "prior to": Relation.BEFORE, "during": Relation.DURING, "while": Relation.DURING,
    "when": Relation.DURING,
}  # fmt: skip
"""Of the words for the relation; the others mean `after`."""
_LOOKS_BACK = re.compile(r"\b(?:have|has|remember|recall)\b", re.I)
"""What tells the past of a compaction, too: it has been, and is nothing that always holds."""
_COMPACTED = re.compile(r"(?<!\w)/compact\b|\b(?:auto-?compact\w*|compact(?:ed|ions?|ing))\b", re.I)
_CONVERSATION = frozenset("context session conversation chat transcript history window".split())
_STORAGE = frozenset("index table database db store storage log logs file files disk segment segments".split())
_SAYS_NOTHING = frozenset(
    "auto automatic automatically claude code got happened hit kicked last latest most recent ran started".split()
)
"""Words that may stand beside a compaction, and name none of several."""


@dataclass(frozen=True, slots=True)
class Event:
    """The words of a question for an event, how the answer lies to it, and the rest of the question. `goes_on`: `since`
    the event, up to now.
    """

    words: str
    relation: Relation
    rest: str = ""
    goes_on: bool = False

    @property
    def is_compaction(self) -> bool:
        """Whether Claude Code summed up a conversation to go on in less room: that of an index is none."""
        if not _COMPACTED.search(self.words):
            return False
        named = set(_named(self.words))
        return not named or bool(named & _CONVERSATION and not named & _STORAGE)

    @property
    def is_the_last(self) -> bool:
        """Of a compaction: whether nothing tells which one is meant, as in `the context got compacted`."""
        return not set(_named(self.words)) - _CONVERSATION


def event_in(text: str) -> Event | None:
    """The event that a question in the past tense asks around.

    A time (`after 5 March`) is none, nor what always holds (`before each run`).
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
    """The half days before and after an event: what led to it and what came of it is told there, as it is itself. Of a
    compaction the minutes of its session on the side that is asked for, or on both.

    :param when: what was found of the event.
    :param session_id: the session that was found.
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
    """Every word for a relation with what follows it, which may hold the next one."""
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
    """What the words for a compaction name beside it."""
    for word in content_words(_COMPACTED.sub(" ", words)):
        if word not in STOP_WORDS and word not in _SAYS_NOTHING and len(word) > 1:
            yield word

"""The event that a question asks around: `what broke right after the migration?`, `before the compaction`. Pure."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from anamnesis_pipeline.search.time_expressions import QUESTION_CHARS, Relation, TimeReference
from anamnesis_pipeline.search.time_phrases import phrases_in
from anamnesis_pipeline.search.words import content_words

AROUND = timedelta(hours=12)
"""What an event is surrounded by."""
BESIDE_COMPACTION = timedelta(minutes=10)
"""A compaction is recorded to the second, and the work goes on at once: what it led away from, and to, is this near."""

_PAST = re.compile(
    r"\b(?:did|didn't|was|were|had|happened|\w{2,}ed|broke|came|went|made|got|began|said|wrote|took|built|chose|kept)\b",
    re.I,
)
"""A question about an event tells that something has happened."""
_PRESENT = re.compile(r"\b(?:is|are|be|been|being|gets?|can|must|should)\s+(?:not\s+)?\w+ed\b", re.I)
"""Participles that tell no past: `is retried`."""
_EVENT = re.compile(
    r"(?:\b(?:right|just|immediately|directly|shortly|soon|straight)\s+)?"
    r"\b(?P<relation>before|prior to|after|following|once|as soon as|during|while)\s+"
    r"(?P<words>[^,.?!;\n]{3,120})",
    re.I,
)
_NO_EVENT = re.compile(
    r"(?:\d|all\b|each\b|every\b|any\b|that\b|this\b|it\b|you\b|a while\b|a bit\b|and\b|or\b|long\b|the fact\b|"
    r"again\b|more\b|per\b|in\b|(?:half |quite )?an?\s+(?:second|minute|hour|day|week|month|year)s?\b)",
    re.I,
)
"""What follows `after` and tells no event: an amount, what always holds, what was said before, how often."""
_ASKS_ON = re.compile(r"\s+(?:what|why|who|how|which|where|did|do|does|was|were|we|i|they|there)\b", re.I)
_RELATIONS = {
    "before": Relation.BEFORE, "prior to": Relation.BEFORE, "during": Relation.DURING, "while": Relation.DURING,
}  # fmt: skip
"""Of the words for the relation; the others mean `after`."""
_COMPACTED = re.compile(r"\bcompact(?:ed|ion|ing)\b", re.I)
_CONVERSATION = re.compile(r"\b(?:context|session|conversation|chat|transcript|history|window)\b", re.I)


@dataclass(frozen=True, slots=True)
class Event:
    """The words of a question for an event, and how the answer lies to it."""

    words: str
    relation: Relation

    @property
    def is_compaction(self) -> bool:
        """Whether Claude Code summed up a conversation to go on in less room: that of an index is none."""
        if not _COMPACTED.search(self.words):
            return False
        return self.names_nothing or bool(_CONVERSATION.search(self.words))

    @property
    def names_nothing(self) -> bool:
        """Whether one word is all there is: `the compaction` is the last one."""
        return len(content_words(self.words)) == 1


def event_in(text: str) -> Event | None:
    """The event that a question in the past tense asks around.

    A time (`after 5 March`) is none, nor what always holds (`before each run`).
    """
    asked = text[:QUESTION_CHARS]
    match = _EVENT.search(asked)
    if match is None or _NO_EVENT.match(match["words"]):
        return None
    told = asked[match.start("relation") : match.end()]
    if any(phrase.start <= len("prior to the ") for phrase in phrases_in(told, datetime(2020, 1, 1))):
        return None
    follows = _ASKS_ON.search(match["words"]) if match.start() == 0 else None  # `after the move what broke`
    end = match.start("words") + follows.start() if follows else match.end()
    asking = _PRESENT.sub(" ", f"{asked[: match.start()]} {asked[end:]}")
    if not _PAST.search(asking):
        return None
    relation = _RELATIONS.get(match["relation"].lower(), Relation.AFTER)
    return Event(asked[match.start("words") : end].strip(), relation)


def around(event: Event, when: datetime) -> TimeReference:
    """The half days before and after an event: what led to it and what came of it is told there, as it is itself. Of a
    compaction the minutes on the side that is asked for, or on both.

    :param when: what was found of the event.
    """
    if not event.is_compaction:
        return TimeReference(when - AROUND, when + AROUND, Relation.DURING, event.words, certain=False)
    since = when if event.relation is Relation.AFTER else when - BESIDE_COMPACTION
    until = when if event.relation is Relation.BEFORE else when + BESIDE_COMPACTION
    return TimeReference(since, until, event.relation, event.words, certain=True)

"""The time that a question names: `last week`, `before 5 March`. Pure.

Only questions are read: `yesterday` is the day before the asker's now.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.search.calendar_spans import DAY, ORDINALS, PARTS_OF_DAY, WEEK, Span, days, nth_of, part_of_day
from anamnesis_pipeline.search.time_phrases import Phrase, phrases_in
from anamnesis_pipeline.search.words import content_words

QUESTION_CHARS = 300
"""Limit of the text that is read; text pasted below a question is ignored."""


class Relation(StrEnum):
    """Relation of the answer to the named time."""

    DURING = "during"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class TimeReference:
    """The times, in UTC, of the answer: from `since` on, and before `until`; None is open, never both.

    `words` are the words for them in the text. `certain` is False if a part was guessed (a year, the amount of "a few",
    which winter). `by_the_clock`: the words name a time, instead of an event found by a search. `moment`: the time of
    the event, if it is known to the second, and `session_id` its session.
    """

    since: datetime | None
    until: datetime | None
    relation: Relation
    words: str
    certain: bool
    by_the_clock: bool = True
    moment: datetime | None = None
    session_id: str = ""


_ANYTHING = frozenset(
    "about accomplish accomplished achieve achieved activity afternoon anything around between build built "
    "busy change changed changes claude close closed commit commits committed complete completed deliver "
    "delivered did doing done during evening everything finish finished first get give going got happen "
    "happened land landed last list look made make morning night onward onwards overview past progress project "
    "projects recall recap remember session sessions ship shipped show since something status stuff summarise "
    "summarize summary taken task tasks team tell things took topics touch touched went work worked working "
    "alles bis das dem den der des die earlier eigentlich erledigt es etwas gab gearbeitet gemacht geschafft "
    "geschah getan geändert habe haben ich im ist later letzten lief los machten mir passiert passierte seit "
    "till uns until vom von war waren wir woran wurde wurden zum zwischen".split()
)
"""Words of questions about anything at a time."""

_CODE = re.compile(r"`[^`]*`|\S*(?:://|[_=])\S*")
_THE = r"\s+(?:(?:the|last|this|dem|zum|letzten)\s+)*$"
_BEFORE = re.compile(
    rf"\b(before|prior to|earlier than|until|till|(?<!\bi )(?<!\bwe )(?<!\byou )(?<!been )up to|by|vor|bis){_THE}", re.I
)
"""`What were we up to last week?` asks for that week."""
_AFTER = re.compile(rf"\b(?:after|later than|following|nach){_THE}", re.I)
_SINCE = re.compile(rf"\b(?:since|starting|as of|seit|ab){_THE}", re.I)
_FROM, _ON = re.compile(rf"\bfrom{_THE}", re.I), re.compile(r"\s+on(?:wards?)?\b", re.I)
_PART = re.compile(
    r"\b(early|beginning of|start of|anfang|mid|middle of|mitte|late|end of|ende)[\s-]+(?:the\s+|des\s+)?$", re.I
)
_NTH = re.compile(
    rf"\b(?:the\s+)?(?P<nth>(?:{'|'.join(ORDINALS)})[nrs]?)(?:\s+(?P<unit>day|week|weekend|half|quarter|tag|woche|wochenende|"
    r"hälfte|quartal))?\s+(?:of|in|im|des|vom|dieses)\s+(?:the\s+)?$",
    re.I,
)
_WEEK_OF = re.compile(
    r"\b(?:the\s+)?(?:week (?:of|starting|beginning|commencing)|woche (?:vom|ab))\s+(?:the\s+)?$", re.I
)
_PART_BEFORE = re.compile(rf"\b(?:the\s+)?({'|'.join(PARTS_OF_DAY)})\s+(?:of|des|vom)\s+(?:the\s+)?$", re.I)
_PART_BEHIND = re.compile(rf",?\s+(?:in the\s+|at\s+|am\s+)?({'|'.join(PARTS_OF_DAY)})\b", re.I)
_WEEKDAY = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?[ ,.]+", re.I)
_FIRST_OF_TWO = re.compile(r"\b(?:between|from|zwischen|von|vom)\s+(?:the\s+|dem\s+)?$", re.I)
_JOIN = re.compile(r"\s*(?:and|to|until|till|through|und|bis|-|–)\s+(?:the\s+)?$", re.I)


def times_in(text: str, now: datetime, zone: tzinfo) -> TimeReference | None:
    """Return the first time that a question names, or None. Never raises for an aware `now` from 1971 to 2099.

    :param now: the asker's now, aware.
    :param zone: the asker's time zone: a day begins at its midnight.
    """
    asked = _CODE.sub(lambda match: " " * len(match[0]), text[:QUESTION_CHARS])
    local = now.astimezone(zone).replace(tzinfo=None)
    phrases = phrases_in(asked, local)
    if not phrases:
        return None
    if len(phrases) > 1 and _WEEKDAY.fullmatch(asked[phrases[0].start : phrases[1].start]):
        phrases = phrases[1:]  # `Thursday, 12 February` is that day, not the last Thursday
    first, start = phrases[0], phrases[0].start
    if len(phrases) > 1 and (both := _between(asked, first, phrases[1])):
        words = text[start : phrases[1].end]
        return _reference(both, Relation.DURING, words, zone)
    first = _part(asked, first)
    span, start = first.span, first.start
    if asked[first.end : first.end + 2] in ("'s", "’s"):  # yesterday's dump: which one, not when
        span = replace(span, certain=False)
    named = _reference(span, Relation.DURING, text[start : first.end], zone)
    return named and _related(asked[:start], named, asked[first.end :])


def asks_for_all(rest: str) -> bool:
    """Return whether a question is about anything at a time: `what did we do last week?`

    :param rest: the question without the words for the time.
    """
    return all(word in STOP_WORDS or word in _ANYTHING for word in content_words(rest))


def _related(before: str, named: TimeReference, after: str) -> TimeReference:
    """Return the reference bounded by the words around it."""
    if (match := _BEFORE.search(before)) is not None:
        whole = match[1].lower() in ("until", "till", "up to", "by", "bis")
        return replace(named, relation=Relation.BEFORE, since=None, until=named.until if whole else named.since)
    if _AFTER.search(before):
        return replace(named, relation=Relation.AFTER, since=named.until, until=None)
    if _SINCE.search(before) or (_FROM.search(before) and _ON.match(after)):
        return replace(named, relation=Relation.AFTER, until=None)
    return named


def _between(text: str, first: Phrase, second: Phrase) -> Span | None:
    """Return the span between two; the first is relative to the second if it has no year or is later."""
    if not _FIRST_OF_TWO.search(text[: first.start]) or not _JOIN.match(text[first.end : second.start]):
        return None
    opening: Span | None = first.span
    if not first.span.certain or first.span.since >= second.span.until:
        opening = first.reading(second.span.until)
    if opening is None or opening.since >= second.span.until:
        return None
    return Span(opening.since, second.span.until, second.span.certain)


def _part(text: str, phrase: Phrase) -> Phrase:
    """Return the named part of a span, with its words: `the second week of February`, `the week of 9 February`, `the
    morning of` a day, or the `early`, `mid` or `late` third, a guess.
    """
    before, behind, span = text[: phrase.start], text[phrase.end :], phrase.span
    length = span.until - span.since
    if match := _NTH.search(before):
        if length > WEEK or match["unit"]:
            found = nth_of(span, match["nth"], match["unit"] or "day")
            return replace(phrase, start=match.start(), span=found) if found else phrase
    elif length == DAY and (match := _WEEK_OF.search(before)):
        monday = span.since.date() - span.since.weekday() * DAY
        return replace(phrase, start=match.start(), span=days(monday, monday + WEEK, span.certain))
    elif length == DAY and (match := _PART_BEFORE.search(before)):
        return replace(phrase, start=match.start(), span=part_of_day(span, match[1]))
    elif length == DAY and (match := _PART_BEHIND.match(behind)):
        return replace(phrase, end=phrase.end + match.end(), span=part_of_day(span, match[1]))
    elif length >= 6 * DAY and (match := _PART.search(before)):
        third, word = length / 3, match[1].lower()
        late = word.startswith(("late", "end"))
        middle = word.startswith("mi")
        since = span.until - third if late else span.since + third if middle else span.since
        until = span.until if late else span.until - third if middle else span.since + third
        return replace(phrase, start=match.start(), span=Span(since, until, certain=False))
    return phrase


def _reference(span: Span, relation: Relation, words: str, zone: tzinfo) -> TimeReference | None:
    since, until = (edge.replace(tzinfo=zone).astimezone(UTC) for edge in (span.since, span.until))
    if since >= until:  # the zone skipped this day
        return None
    return TimeReference(since, until, relation, words, span.certain)

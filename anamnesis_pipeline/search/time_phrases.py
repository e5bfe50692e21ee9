"""Find phrases that name a time in a text. Pure.

Our own rules instead of a library: dateparser 1.5 takes 290 ms to import and to answer once, then up to 8 ms a
question; it reads "we", "May we" and "port 8080" as dates, and returns moments where a question means spans.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial

from anamnesis_pipeline.search import calendar_spans as spans
from anamnesis_pipeline.search.calendar_spans import Span

FIRST_YEAR, LAST_YEAR = 1970, 2100
"""Limits of a year."""

_Reader = Callable[[re.Match[str], datetime], Span | None]


@dataclass(frozen=True, slots=True)
class Phrase:
    """Position of a phrase in the text, and `reading`, which returns its span relative to a moment."""

    start: int
    end: int
    span: Span
    reading: Callable[[datetime], Span | None]


def phrases_in(text: str, now: datetime) -> list[Phrase]:
    """Return the phrases of a text that name a time, in order, without overlaps.

    :param now: local time without zone.
    """
    found: list[Phrase] = []
    for pattern, read in _rules():
        for match in pattern.finditer(text):
            start = match.start("at") if "at" in match.groupdict() else match.start()
            span = None if _NUMBERED.search(text[:start]) else read(match, now)
            if span is not None and span.since.year >= FIRST_YEAR and span.until.year <= LAST_YEAR:
                found.append(Phrase(start, match.end(), span, partial(read, match)))
    apart: list[Phrase] = []
    for phrase in sorted(found, key=lambda phrase: (phrase.start, -phrase.end)):
        if not apart or phrase.start >= apart[-1].end:
            apart.append(phrase)
    return apart


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_YEAR = r"(?P<y>(?:19[7-9]|20\d)\d)"
_NO_YEAR = "(?P<y>)"
_MONTH = f"(?P<mon>{_any(spans.MONTHS)})"
_LONG_MONTH = f"(?P<mon>{_any(set(spans.MONTHS) - set('jan feb mar apr jun jul aug sept sep oct nov dec'.split()))})"
_WEEKDAY = f"(?P<weekday>{_any(spans.WEEKDAYS)})"
_SEASON = f"(?P<season>{_any(spans.SEASONS)})"
_HOLIDAY = r"(?P<holiday>(?:christmas|xmas)(?: eve)?|weihnachten|halloween|new year(?:'?s)?(?: eve| day)?)"
_DAY = r"(?P<d>0?[1-9]|[12]\d|3[01])"
_ORDINAL = f"(?:{_any(spans.ORDINALS)})[nrs]?"
_COUNT = f"(?P<n>{_any({*spans.VAGUE, *spans.NUMBERS, '[0-9]{1,3}'})})"
_UNIT = r"(?P<unit>minutes?|hours?|days?|weeks?|months?|years?|stunden?|tag(?:en?)?|wochen?|monat(?:en?)?|jahr(?:en?)?)"
_BY = "since|before|after|until|till|by|from|seit|vor|nach|bis"
_IN = (
    rf"(?P<pre>in|during|of|between|throughout|last|past|this|previous|early|late|mid|year|im|vom|des|dem|anfang|mitte|ende|{_BY})"
    r"(?:\s+|(?<=mid)-|(?<=late)-|(?<=early)-)(?:the\s+)?"
)
_AND = r"(?P<pre>between|from)\s[\w ,]{2,24}?\s(?:and|to|until|till|through)\s+"
"""The second of two: `between March and May`."""
_TO = r"\s*(?:-|–|to|until|till|through|and|bis|und)\s*(?:the\s+|zum\s+|dem\s+)?"
_WEEK = r"(?:(?:calendar\s+|iso\s+)?weeks?|wk|cw|kw|kalenderwochen?)"
_WEEK_NUMBER = r"(?P<w>0?[1-9]|[1-4]\d|5[0-3])"
_CALENDAR_UNIT = r"(?P<unit>week|weekend|month|quarter|year|woche|wochenende|monat|quartal|jahr)"
_WHICH = r"(?P<which>last|this|previous|past|letzte[nrs]?|diese[nrs]?|vorige[nrs]?|vorletzte[nrs]?)"
_CLAUSE_ENDS = r"(?=\s*(?:[?.,!;]|$))"
_NO_SERIES = "".join(rf"(?<!{word}\s)" for word in "every each next black a first second third other coming".split())
_UNCOUNTED = r"(?!\s+(?!(?:was|is|does|has|this)\b)[a-z]+s\b)"
"""The next word is no counted thing: `after 2000 requests`, `May 24 hours pass`."""
_NUMBERED = re.compile(
    r"\b(?:version|release|tag|build|rev|revision|api|branch|commit|ticket|issue|pr|error|code|port|line|rfc|section|"
    r"chapter|step|rule|page|exit|status|room)s?\s+#?$",
    re.IGNORECASE,
)
"""Words before a number that is a name and no date."""


def _rule(pattern: str, read: _Reader) -> tuple[str, _Reader]:
    """Build a rule that never matches inside a word, path, version, option or address."""
    return rf"(?<![\w./\\:=@#$+-])(?:{pattern})(?![\w/\\=]|[.:-]\w|\s?%)", read


@cache
def _rules() -> tuple[tuple[re.Pattern[str], _Reader], ...]:
    """Compile the rules at the first question, since it takes about 40 ms."""
    return tuple((re.compile(pattern, re.IGNORECASE), read) for pattern, read in _RULES)


_RULES = (
    _rule(
        rf"{_YEAR}(?P<by>[-/])(?P<m>\d\d)(?:(?P=by)(?P<d>\d\d)(?:[T ]\d\d:\d\d(?::[\d.]+)?(?:Z|[+-]\d\d:?\d\d)?)?)?",
        spans.read_numeric,
    ),
    _rule(rf"(?P<d>\d{{1,2}})\.\s?(?P<m>\d{{1,2}})\.\s?{_YEAR}", spans.read_numeric),
    _rule(rf"(?P<a>\d{{1,2}})/(?P<b>\d{{1,2}})/{_YEAR}", spans.read_slashed),
    _rule(rf"{_DAY}(?P<th>st|nd|rd|th|\.)?\s+(?:of\s+)?{_MONTH}\.?(?:,?\s+{_YEAR})?", spans.read_month_day),
    _rule(
        rf"{_DAY}(?P<th>st|nd|rd|th|\.)?{_TO}(?P<d2>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{_MONTH}\.?(?:,?\s+{_YEAR})?",
        spans.read_month_days,
    ),
    _rule(
        rf"{_MONTH}\.?\s+(?:the\s+)?{_DAY}(?P<th>st|nd|rd|th)?{_TO}(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+{_YEAR}\b)?"
        rf"(?!\.?\s+(?:of\s+)?(?:{_any(spans.MONTHS)}))(?!\s+{_UNIT}){_UNCOUNTED}",
        spans.read_month_days,
    ),
    _rule(rf"{_MONTH}\.?\s+(?:the\s+)?{_DAY}(?P<th>st|nd|rd|th)?(?:,?\s+{_YEAR}\b)?{_UNCOUNTED}", spans.read_month_day),
    _rule(rf"(?P<pre>){_MONTH}\.?,?\s+(?:of\s+)?{_YEAR}{_UNCOUNTED}", spans.read_month_name),
    *(_rule(rf"{before}(?P<at>{_LONG_MONTH}){_NO_YEAR}", spans.read_month_name) for before in (_IN, _AND)),
    *(_rule(rf"(?!of\s){before}(?P<at>{_YEAR}){_UNCOUNTED}", spans.read_year) for before in (_IN, _AND)),
    _rule(rf"of\s+(?P<at>{_YEAR}){_CLAUSE_ENDS}", spans.read_year),
    _rule(rf"Q(?P<q>[1-4])(?:\s+of)?[\s/-]?\s*{_YEAR}", spans.read_quarter),
    _rule(rf"{_YEAR}[\s/-]?Q(?P<q>[1-4])", spans.read_quarter),
    _rule(rf"(?:for\s+|{_IN})(?P<at>Q(?P<q>[1-4])){_NO_YEAR}", spans.read_quarter),
    _rule(rf"{_IN}(?P<at>(?P<q>{_ORDINAL})\s+(?:quarter|quartal))(?:\s+{_YEAR})?(?!\s+of\b)", spans.read_quarter),
    _rule(rf"{_YEAR}-?W{_WEEK_NUMBER}(?:-(?P<weekday_number>[1-7]))?", spans.read_week),
    _rule(
        rf"{_WEEK}\s?{_WEEK_NUMBER}(?:{_TO}(?:{_WEEK}\s?)?(?P<w2>\d{{1,2}}))?"
        rf"(?:(?:(?:\s+of|\s+in|,)?\s+|/){_YEAR})?(?!\s+(?:of|after|before|{_UNIT})\b)",
        spans.read_week,
    ),
    _rule(rf"{_IN}(?P<at>W{_WEEK_NUMBER}){_NO_YEAR}", spans.read_week),
    _rule(rf"(?P<pre>)(?P<the>){_SEASON}\s+(?:of\s+)?{_YEAR}", spans.read_season),
    _rule(
        rf"(?:(?P<pre>last|this)|(?:in|im|during|{_BY})(?:\s+(?P<the>the|dem))?)\s+(?P<at>{_SEASON}){_NO_YEAR}"
        r"(?!\s+(?:boot|framework|back|through|into|security|data|mvc|bean|\d))",
        spans.read_season,
    ),
    _rule(rf"{_HOLIDAY}\s+(?:of\s+)?{_YEAR}", spans.read_holiday),
    _rule(rf"(?:at|over|around|during|on|last|{_BY})\s+(?:the\s+)?(?P<at>{_HOLIDAY}){_NO_YEAR}", spans.read_holiday),
    _rule(
        rf"(?P<pre>on|last|this|past|between|am|letzten|{_BY})\s+(?:last\s+|this\s+)?(?P<at>{_WEEKDAY})",
        spans.read_weekday,
    ),
    _rule(rf"{_WEEKDAY},?\s+(?:of\s+|in\s+)?{_WHICH}\s+(?P<unit>week|woche)", spans.read_weekday),
    _rule(rf"{_WHICH}\s+(?P<unit>week|woche),?\s+(?:on\s+|am\s+)?{_WEEKDAY}", spans.read_weekday),
    _rule(rf"{_AND}(?P<at>{_WEEKDAY})", spans.read_weekday),
    _rule(rf"(?P<pre>){_NO_SERIES}{_WEEKDAY}{_CLAUSE_ENDS}", spans.read_weekday),
    _rule(r"(?P<day>today|yesterday|(?:the\s+)?day before yesterday|vorgestern|gestern|heute)", spans.read_day_word),
    _rule(r"the other day|kürzlich|neulich", spans.read_other_day),
    _rule(r"(?P<which>this|last)\s+(?P<part>morning|afternoon|evening|night)", spans.read_part_of_day),
    _rule(
        rf"(?:in|over|within|during|for)\s+(?:the\s+)?(?:last|past)\s+(?:{_COUNT}\s+)?{_UNIT}(?!\s+of\b)",
        spans.read_past_units,
    ),
    _rule(rf"(?:last|past|letzten)\s+(?!an?\s){_COUNT}\s+{_UNIT}(?!\s+of\b)", spans.read_past_units),
    _rule(rf"{_WHICH}\s+{_CALENDAR_UNIT}(?!\s+of\b)", spans.read_calendar_unit),
    _rule(
        rf"(?:the\s+)?{_CALENDAR_UNIT}\s+(?P<which>before)\s+last(?!\s+[a-z]+\s*[?.,!;]?$)", spans.read_calendar_unit
    ),
    _rule(
        r"(?P<which>at|on|over|during|am)\s+(?:the\s+)?(?P<at>(?P<unit>weekend|wochenende))", spans.read_calendar_unit
    ),
    _rule(rf"{_COUNT}\s+{_UNIT}\s+ago", spans.read_ago),
    _rule(rf"vor\s+{_COUNT}\s+{_UNIT}", spans.read_ago),
    _rule(rf"on\s+the\s+(?P<at>{_DAY}(?:st|nd|rd|th)){_CLAUSE_ENDS}", spans.read_day_of_month),
)

"""Convert a phrase that names a time to a span of local time. Pure.

Each `read_` takes a match of its pattern in `time_phrases.py` and the reference moment; None: no such time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

NOON, EVENING = timedelta(hours=12), timedelta(hours=18)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar jan",
            "february februar feb",
            "march märz mar",
            "april apr",
            "may mai",
            "june juni jun",
            "july juli jul",
            "august aug",
            "september sept sep",
            "october oktober oct",
            "november nov",
            "december dezember dec",
        ),
        1,
    )
    for name in names.split()
}
WEEKDAYS = {
    name: number
    for number, names in enumerate(
        (
            "monday montag",
            "tuesday dienstag",
            "wednesday mittwoch",
            "thursday donnerstag",
            "friday freitag",
            "saturday samstag",
            "sunday sonntag",
        )
    )
    for name in names.split()
}
SEASONS = {
    "spring": 3,
    "frühling": 3,
    "frühjahr": 3,
    "summer": 6,
    "sommer": 6,
    "autumn": 9,
    "fall": 9,
    "herbst": 9,
    "winter": 12,
}
ORDINALS = {
    word: number
    for number, words in enumerate(
        ("first 1st erste", "second 2nd zweite", "third 3rd dritte", "fourth 4th vierte", "fifth 5th fünfte"), 1
    )
    for word in words.split()
} | {"last": -1, "letzte": -1}
PARTS_OF_DAY = {
    part: edges
    for parts, edges in (
        ("morning morgen früh vormittag", (timedelta(), NOON)),
        ("afternoon nachmittag", (NOON, EVENING)),
        ("evening night abend nacht", (EVENING, DAY)),
    )
    for part in parts.split()
}
NUMBERS = {
    word: number
    for number, words in enumerate(
        (
            "",
            "a an one eine einer einem",
            "two zwei",
            "three drei",
            "four vier",
            "five fünf",
            "six sechs",
            "seven sieben",
            "eight acht",
            "nine neun",
            "ten zehn",
            "eleven elf",
            "twelve zwölf",
        )
    )
    for word in words.split()
}
VAGUE = {"a couple of": 2, "couple of": 2, "a few": 3, "few": 3, "some": 3, "several": 4, "ein paar": 3}
FORMER = ("last", "previous", "past", "letzte", "vorige")
MONTH, YEAR = timedelta(days=30.44), timedelta(days=365.25)
UNITS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": DAY,
    "week": WEEK,
    "month": MONTH,
    "year": YEAR,
    "stunde": timedelta(hours=1),
    "tag": DAY,
    "woche": WEEK,
    "monat": MONTH,
    "jahr": YEAR,
}


@dataclass(frozen=True, slots=True)
class Span:
    """Local times without zone, `since` < `until`. `certain` is False where a part was guessed."""

    since: datetime
    until: datetime
    certain: bool = True


def days(since: date, until: date, certain: bool = True) -> Span:
    """Return the span from the first midnight to the second."""
    return Span(datetime.combine(since, time()), datetime.combine(until, time()), certain)


def _month(year: int, month: int, count: int = 1, certain: bool = True) -> Span:
    """Return `count` whole months; `month` may exceed the year's ends."""
    first, past = divmod(12 * year + month - 1, 12), divmod(12 * year + month - 1 + count, 12)
    return days(date(first[0], first[1] + 1, 1), date(past[0], past[1] + 1, 1), certain)


def _latest(spans: Sequence[Span], now: datetime) -> Span:
    """Return the last span that has begun, as a guess; the first if none has."""
    chosen = max((span for span in spans if span.since <= now), key=lambda span: span.since, default=spans[0])
    return Span(chosen.since, chosen.until, certain=False)


def _day_of(year: int, month: int, day: int) -> Span | None:
    try:
        first = date(year, month, day)
    except ValueError:
        return None
    return days(first, first + DAY)


def read_numeric(match: re.Match[str], _now: datetime) -> Span | None:
    """Read `2024-03-05`, `2024-03`, `5.3.2024`: a day or a month."""
    year, month = int(match["y"]), int(match["m"])
    if match["d"]:
        return _day_of(year, month, int(match["d"]))
    return _month(year, month) if 1 <= month <= 12 else None


def read_slashed(match: re.Match[str], _now: datetime) -> Span | None:
    """Read the day first, as in most of the world; if both could be the month, it is a guess."""
    first, second, year = int(match["a"]), int(match["b"]), int(match["y"])
    if second > 12:
        first, second = second, first
    span = _day_of(year, second, first)
    return span and Span(span.since, span.until, certain=first > 12 or first == second)


def _is_word(match: re.Match[str]) -> bool:
    """Return whether `may` or `march` is probably the verb: lower case, no year, no marked day."""
    groups = match.groupdict()
    before = (groups.get("pre") or "").lower()
    marked = groups["y"] or groups.get("th") or before not in ("", "early", "late", "mid")
    return match["mon"] in ("may", "march") and not marked


def read_month_day(match: re.Match[str], now: datetime) -> Span | None:
    """Read `5 March`, `March 5th 2024`: a day, the last such one if no year is named."""
    if _is_word(match):
        return None
    month, day = MONTHS[match["mon"].lower().rstrip(".")], int(match["d"])
    if match["y"]:
        return _day_of(int(match["y"]), month, day)
    near = [
        span for back in range(9) if (span := _day_of(now.year - back, month, day))
    ]  # 29 February may be 8 years ago
    return _latest(near, now) if near else None


def read_month_name(match: re.Match[str], now: datetime) -> Span | None:
    """Read `March 2024`, `in March`: a month, the last that has begun if no year is named."""
    if _is_word(match):
        return None
    month = MONTHS[match["mon"].lower()]
    if match["y"]:
        return _month(int(match["y"]), month)
    span = _latest([_month(now.year, month), _month(now.year - 1, month)], now)
    if (match["pre"] or "").lower() in ("last", "past", "previous") and span.until > now:
        return _month(now.year - 1, month, certain=False)
    return span


def read_year(match: re.Match[str], _now: datetime) -> Span | None:
    """Read `in 2024`."""
    return _month(int(match["y"]), 1, 12)


def read_quarter(match: re.Match[str], now: datetime) -> Span | None:
    """Read `Q3 2025`, `in Q3`, `in the third quarter`."""
    quarter = int(match["q"]) if match["q"].isdecimal() else ordinal(match["q"])
    month = 3 * quarter - 2
    if not 1 <= quarter <= 4:
        return None
    if match["y"]:
        return _month(int(match["y"]), month, 3)
    return _latest([_month(now.year, month, 3), _month(now.year - 1, month, 3)], now)


def read_season(match: re.Match[str], now: datetime) -> Span | None:
    """Read `spring 2025`, `last winter`: three months of the northern year."""
    named, before = match["season"], (match["pre"] or "").lower()
    month = SEASONS[named.lower()]
    if match["y"]:
        return _month(int(match["y"]), month, 3, certain=month != 12)  # a year has two winters
    if not (before or match["the"]) and named in ("Spring", "fall", "Fall"):  # the framework, the verb
        return None
    near = [_month(now.year - back, month, 3) for back in range(3)]
    return _latest([span for span in near if span.until <= now] if before == "last" else near, now)


def read_holiday(match: re.Match[str], now: datetime) -> Span | None:
    """Read `Christmas 2025`, `new year`: the days of the holiday."""
    name = match["holiday"].lower()
    eve = name.endswith("eve")

    def of(year: int) -> Span:
        if name == "halloween":
            return days(date(year, 10, 31), date(year, 11, 1))
        if name.startswith("new"):
            return (
                days(date(year, 12, 31), date(year + 1, 1, 1))
                if eve
                else days(date(year - 1, 12, 31), date(year, 1, 2))
            )
        return days(date(year, 12, 24), date(year, 12, 25 if eve else 27))

    return of(int(match["y"])) if match["y"] else _latest([of(now.year + 1 - back) for back in range(3)], now)


def read_week(match: re.Match[str], now: datetime) -> Span | None:
    """Read `week 46`, `2026-W46`, `weeks 44 to 46`: ISO weeks, the last that has begun if no year is named."""
    first, weekday = int(match["w"]), match.groupdict().get("weekday_number")
    last = int(match.groupdict().get("w2") or first)

    def of(year: int) -> Span | None:
        try:
            since, until = date.fromisocalendar(year, first, 1), date.fromisocalendar(year, last, 1) + WEEK
        except ValueError:  # this year has no week 53
            return None
        day = since + (int(weekday) - 1) * DAY if weekday else since
        return days(day, day + DAY if weekday else until) if since < until else None

    if match["y"]:
        return of(int(match["y"]))
    near = [span for back in range(8) if (span := of(now.year + 1 - back))]
    return _latest(near, now) if near else None


def read_month_days(match: re.Match[str], now: datetime) -> Span | None:
    """Read `3 to 7 February`: from the first day to the end of the second."""
    since = read_month_day(match, now)
    if since is None or int(match["d2"]) <= int(match["d"]):
        return None
    last = _day_of(since.since.year, since.since.month, int(match["d2"]))
    return last and Span(since.since, last.until, since.certain)


def read_weekday(match: re.Match[str], now: datetime) -> Span | None:
    """Read `Monday last week` as that day. `last Monday` is in the seven days before today; only `this` and `since` may
    mean today.
    """
    weekday = WEEKDAYS[match["weekday"].lower()]
    if "unit" in match.groupdict() and (week := read_calendar_unit(match, now)) is not None:
        day = week.since.date() + weekday * DAY
        return days(day, day + DAY)
    back = (now.weekday() - weekday) % 7
    if back == 0 and (match["pre"] or "").lower() not in ("this", "since", "seit"):
        back = 7
    day = now.date() - back * DAY
    return days(day, day + DAY)


def read_day_word(match: re.Match[str], now: datetime) -> Span | None:
    """Read `today`, `vorgestern`."""
    back = {"today": 0, "heute": 0, "yesterday": 1, "gestern": 1}.get(match["day"].lower(), 2)
    day = now.date() - back * DAY
    return days(day, day + DAY, certain=back > 0)  # "today" often means "by now"


def read_other_day(_match: re.Match[str], now: datetime) -> Span | None:
    """Read `the other day`: one of the seven before today."""
    return days(now.date() - WEEK, now.date(), certain=False)


def read_part_of_day(match: re.Match[str], now: datetime) -> Span | None:
    """Read a part of a day: `last night`, `this morning`; a night runs from six to six."""
    today = datetime.combine(now.date(), time())
    if match["which"].lower() == "last":
        return Span(today - DAY + EVENING, today + timedelta(hours=6))
    return part_of_day(days(now.date(), now.date() + DAY), match["part"])


def part_of_day(day: Span, part: str) -> Span:
    """Return a part of a day, e.g. `afternoon`."""
    first, past = PARTS_OF_DAY[part.lower()]
    return Span(day.since + first, day.since + past, day.certain)


def nth_of(span: Span, nth: str, unit: str) -> Span | None:
    """Return the `second` `week` of a month, the `first` `half` of a year, the `last` `day` of a week; None: none such.

    The first week of a month is its first seven days: the first day of a week differs between countries.
    """
    since, until, unit, number = span.since, span.until, unit.lower(), ordinal(nth)
    months = 12 * (until.year - since.year) + until.month - since.month
    if unit in ("half", "hälfte"):
        middle = since + (until - since) // DAY // 2 * DAY
        if months and months % 2 == 0:
            middle = _month(since.year, since.month + months // 2).since
        halves = {1: Span(since, middle, span.certain), 2: Span(middle, until, span.certain)}
        return halves.get(2 if number < 0 else number)
    if unit in ("quarter", "quartal"):
        quarter = 4 if number < 0 else number
        return _month(since.year, 3 * quarter - 2, 3) if months == 12 and quarter <= 4 else None
    first, length, step = since, WEEK, WEEK
    if unit in ("weekend", "wochenende"):
        first, length = since + (5 - since.weekday()) % 7 * DAY, 2 * DAY
    elif unit not in ("week", "woche"):
        length = step = DAY
    count = -((first - until) // step)
    if not 0 < (count if number < 0 else number) <= count:
        return None
    begin = first + ((count if number < 0 else number) - 1) * step
    if number < 0 and length == WEEK:
        begin = until - WEEK
    return Span(begin, begin + length if length < WEEK else min(begin + length, until), span.certain)


def ordinal(word: str) -> int:
    """Return the number of `second`, `zweiten`; -1: the last."""
    word = word.lower()
    return ORDINALS[word] if word in ORDINALS else ORDINALS[word.rstrip("nrs")]


def read_calendar_unit(match: re.Match[str], now: datetime) -> Span | None:
    """Read `last week`, `this month`: the whole calendar unit."""
    unit, which = match["unit"].lower(), match["which"].lower()
    back = 2 if which.startswith(("before", "vorletzte")) else 1 if which.startswith(FORMER) else 0
    monday = now.date() - now.weekday() * DAY
    if unit in ("week", "woche"):
        return days(monday - back * WEEK, monday - (back - 1) * WEEK)
    if unit in ("weekend", "wochenende"):
        saturday = monday + 5 * DAY - max(back, 1 if now.weekday() < 5 else 0) * WEEK
        return days(saturday, saturday + 2 * DAY)
    if unit in ("month", "monat"):
        return _month(now.year, now.month - back)
    if unit in ("quarter", "quartal"):
        return _month(now.year, 3 * ((now.month - 1) // 3) + 1 - 3 * back, 3)
    return _month(now.year - back, 1, 12)


def _amount(match: re.Match[str]) -> tuple[int, bool]:
    """Return (number, whether it was given exactly)."""
    words = " ".join((match["n"] or "one").lower().split())
    if words in VAGUE:
        return VAGUE[words], False
    return (int(words), True) if words.isdecimal() else (NUMBERS[words], True)


def _unit(match: re.Match[str]) -> timedelta:
    word = match["unit"].lower()
    return next(length for name, length in UNITS.items() if word.startswith(name[:5]))


def read_ago(match: re.Match[str], now: datetime) -> Span | None:
    """Read an `ago` with its precision: `three days ago` is that day, `three weeks ago` the days around it."""
    (count, exact), unit = _amount(match), _unit(match)
    middle = now - count * unit
    if unit < DAY:
        around = max(unit / 2, count * unit / 5)
        return Span(middle - around, middle + around, exact)
    if unit == DAY and exact:
        return days(middle.date(), middle.date() + DAY)
    slack = {DAY: 2, WEEK: 3}.get(unit, 15 if unit == MONTH else 60) * (1 if exact else 2)
    return days(middle.date() - slack * DAY, middle.date() + (slack + 1) * DAY, exact and unit <= WEEK)


def read_past_units(match: re.Match[str], now: datetime) -> Span | None:
    """Read `in the last three days`: up to the end of today."""
    (count, exact), unit = _amount(match), _unit(match)
    return Span(now - count * unit, datetime.combine(now.date() + DAY, time()), exact)


def read_day_of_month(match: re.Match[str], now: datetime) -> Span | None:
    """Read `on the 5th`: of this month or the last one that had it."""
    whole = [_month(now.year, now.month - back).since for back in range(3)]
    near = [span for first in whole if (span := _day_of(first.year, first.month, int(match["d"])))]
    return _latest(near, now) if near else None

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.search.time_bounds import bound_texts, bounds_of

NOW = datetime(2026, 3, 18, 0, 30, tzinfo=UTC)
"""A Wednesday; in New York it is still Tuesday."""


def since(text: str, zone: str = "UTC") -> str | None:
    return bound_texts(text, None, NOW, ZoneInfo(zone))["since"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("2026", "2026-01-01T00:00:00Z"),
        ("2026-02", "2026-02-01T00:00:00Z"),
        ("2024-02-29", "2024-02-29T00:00:00Z"),
        ("2026-03-14T09:26", "2026-03-14T09:26:00Z"),
        ("2026-03-14T09:26:53+02:00", "2026-03-14T07:26:53Z"),
        ("today", "2026-03-18T00:00:00Z"),
        (" yesterday ", "2026-03-17T00:00:00Z"),
        ("last week", "2026-03-09T00:00:00Z"),
        ("3 days ago", "2026-03-15T00:00:00Z"),
        ("February 2026", "2026-02-01T00:00:00Z"),
        ("gestern", "2026-03-17T00:00:00Z"),
        ("week 7", "2026-02-09T00:00:00Z"),
        ("2026-W07", "2026-02-09T00:00:00Z"),
        ("the second week of February", "2026-02-08T00:00:00Z"),
    ],
)
def test_since_is_the_first_moment_of_a_time(text: str, first: str) -> None:
    assert since(text) == first
    assert bound_texts(None, text, NOW, UTC) == {"since": None, "until": first}


def test_times_without_a_zone_are_of_the_given_one() -> None:
    assert since("2026-07-01", "America/New_York") == "2026-07-01T04:00:00Z"
    assert since("2026-02", "America/New_York") == "2026-02-01T05:00:00Z"
    assert since("yesterday", "America/New_York") == "2026-03-16T04:00:00Z"
    assert since("2026-03-14T09:26Z", "America/New_York") == "2026-03-14T09:26:00Z"


def test_times_without_a_zone_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = datetime(2026, 1, 5).astimezone(UTC)
    assert bounds_of("2026-01-05", None, NOW) == (midnight, None)
    assert bounds_of("yesterday", None, datetime(2026, 1, 6, 12).astimezone()) == (midnight, None)


@pytest.mark.parametrize(
    "text",
    ["soon", "2026-13", "2026-02-30", "1066", "9999-12-31", "x" * 40, "2026-3", "before May 2026", "yesterday's dump"],
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    for bounds in ((text, None), (None, text)):
        with pytest.raises(GiveUp, match=r"2026-03-14|1970"):
            bounds_of(*bounds, NOW, UTC)


def test_no_time_is_no_bound() -> None:
    assert bounds_of(None, "", NOW) == (None, None)


@pytest.mark.parametrize(("first", "end"), [("2026-03", "2026-03"), ("2026-03-14", "2026-03"), ("today", "yesterday")])
def test_bounds_with_nothing_between_are_refused(first: str, end: str) -> None:
    with pytest.raises(GiveUp, match="until is exclusive"):
        bounds_of(first, end, NOW, UTC)

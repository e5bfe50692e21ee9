"""When a host is tried again; the clock is handed in."""

from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.steps.host_clock import (
    HostClock,
    Look,
    answered,
    failed,
    looked_since,
    read_clock,
    read_look,
    write_clock,
)
from anamnesis_pipeline.steps.host_clock import write_look as write
from anamnesis_pipeline.store.base import Store

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def waits(interval_s: int, times: int) -> list[float]:
    clock, now, found = HostClock(), NOW, []
    for _ in range(times):
        clock = failed(clock, now, "no route", interval_s)
        assert clock.next_at is not None
        found.append((clock.next_at - now).total_seconds())
        now = clock.next_at
    return found


def test_a_host_that_stays_away_is_tried_ever_more_rarely_but_every_hour() -> None:
    assert waits(300, 7) == [300, 600, 1200, 2400, 3600, 3600, 3600]
    assert waits(30, 3) == [30, 60, 120]


def test_a_host_whose_interval_is_longer_than_an_hour_is_not_tried_more_often_for_being_away() -> None:
    assert waits(86_400, 2) == [86_400, 86_400]


def test_a_failure_keeps_when_the_host_last_answered_and_an_answer_resets_the_wait() -> None:
    clock = failed(failed(answered(HostClock(), NOW, 1.5), NOW, "a", 300), NOW + timedelta(minutes=5), "b", 300)
    assert (clock.answered_at, clock.failures, clock.error, clock.skew_s) == (NOW, 2, "b", 1.5)
    assert not clock.is_due(NOW + timedelta(minutes=13))
    assert clock.is_due(NOW + timedelta(minutes=14, seconds=58)), "by a tick that comes a little early"
    assert clock.is_due(NOW + timedelta(minutes=15))
    back = answered(clock, NOW + timedelta(hours=1), None)
    assert (back.failures, back.error, back.next_at, back.skew_s) == (0, "", None, 1.5)


def test_asking_before_its_time_makes_nobody_wait_longer() -> None:
    clock = failed(HostClock(), NOW, "a", 300)
    by_hand = failed(clock, NOW + timedelta(minutes=1), "b", 300)
    assert (by_hand.next_at, by_hand.failures, by_hand.error) == (clock.next_at, 1, "b")


def test_ten_thousand_failures_are_no_overflow() -> None:
    assert failed(HostClock(failures=10_000), NOW, "", 300).next_at == NOW + timedelta(hours=1)


def test_a_source_is_due_when_its_interval_is_over_but_for_a_ticks_inaccuracy() -> None:
    assert Look().is_due(NOW, 300)
    look = Look(tried_at=NOW)
    assert [look.is_due(NOW + timedelta(seconds=s), 300) for s in (200, 269, 270, 300)] == [False, False, True, True]


def test_a_source_is_looked_at_by_the_last_tick_before_its_interval_is_over() -> None:
    look = Look(tried_at=NOW)
    ticks = (20, 165, 301, 465, 602)
    assert [look.is_due(NOW + timedelta(seconds=s), 300, 300) for s in ticks] == [False, True, True, True, True]
    assert [look.is_due(NOW + timedelta(seconds=s), 600, 300) for s in ticks] == [False, False, False, True, True]


def test_clocks_and_looks_are_kept(store: Store) -> None:
    clock = failed(answered(HostClock(), NOW, -0.25), NOW, "no route to host", 300)
    look = Look(NOW, NOW, "/home/ann/notes", "digest", "rules", "key", 3, 4, {"empty": 2}, ("p",), "e", {"k": "t"})
    write_clock(store.settings, "ann@nas", clock)
    write(store.settings, "notes", look)
    assert (read_clock(store.settings, "ann@nas"), read_look(store.settings, "notes")) == (clock, look)
    assert (read_clock(store.settings, ""), read_look(store.settings, "x")) == (HostClock(), Look())
    write(store.settings, "notes", None)
    assert read_look(store.settings, "notes") == Look()


def test_every_source_was_looked_at_since_a_moment_but_those_of_hosts_that_do_not_answer(store: Store) -> None:
    settings, since = store.settings, datetime(2026, 1, 1, tzinfo=UTC)
    assert not looked_since(settings, {"notes": ""}, since)
    write(settings, "notes", Look(tried_at=since - timedelta(seconds=1)))
    assert not looked_since(settings, {"notes": ""}, since)
    write(settings, "notes", Look(tried_at=since))
    assert looked_since(settings, {"notes": ""}, since)
    assert not looked_since(settings, {"notes": "", "far": "nas"}, since)
    write_clock(settings, "nas", failed(HostClock(), since, "no answer", 300))
    assert looked_since(settings, {"notes": "", "far": "nas"}, since)

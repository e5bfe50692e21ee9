"""When a host is tried again; the clock is handed in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.pipeline.host_clock import (
    HostClock,
    Look,
    answered,
    failed,
    looked_since,
    read_clock,
    read_look,
    write_clock,
    write_problems,
)
from anamnesis_pipeline.pipeline.host_clock import write_look as write
from anamnesis_pipeline.runtime.crawler_wiring import built_in
from anamnesis_pipeline.services.crawler_status import crawler_status
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import SettingsRecords

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("interval_s", "expected"),
    [(300, [300, 600, 1200, 2400, 3600, 3600, 3600]), (30, [30, 60, 120]), (86_400, [86_400, 86_400])],
)
def test_a_host_that_stays_away_is_tried_ever_more_rarely(interval_s: int, expected: list[int]) -> None:
    clock, now, waits = HostClock(), NOW, []
    for _ in expected:
        clock = failed(clock, now, "no route", interval_s)
        assert clock.next_at is not None
        waits.append((clock.next_at - now).total_seconds())
        now = clock.next_at
    assert waits == expected
    assert failed(HostClock(failures=10_000), NOW, "", 300).next_at == NOW + timedelta(hours=1), "no overflow"


def test_an_answer_resets_the_wait_and_a_failure_keeps_the_rest() -> None:
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


def test_a_source_is_looked_at_by_the_last_tick_in_its_interval() -> None:
    assert Look().is_due(NOW, 300)
    look = Look(tried_at=NOW)
    assert [look.is_due(NOW + timedelta(seconds=s), 300) for s in (200, 269, 270, 300)] == [False, False, True, True]
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


def test_sources_were_looked_at_but_those_of_silent_hosts(store: Store) -> None:
    settings, since = store.settings, datetime(2026, 1, 1, tzinfo=UTC)
    assert not looked_since(settings, {"notes": ""}, since)
    write(settings, "notes", Look(tried_at=since - timedelta(seconds=1)))
    assert not looked_since(settings, {"notes": ""}, since)
    write(settings, "notes", Look(tried_at=since))
    assert looked_since(settings, {"notes": ""}, since)
    assert not looked_since(settings, {"notes": "", "far": "nas"}, since)
    write_clock(settings, "nas", failed(HostClock(), since, "no answer", 300))
    assert looked_since(settings, {"notes": "", "far": "nas"}, since)


# --- how machines and sources are doing ------------------------------------------------------------------


class Counted:
    """The settings of a store, and how often they were asked."""

    def __init__(self, settings: SettingsRecords) -> None:
        self._settings, self.asked = settings, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        return getattr(self._settings, name)


def status_of(store: Store, tmp_path: Path, sources: int) -> tuple[int, tuple[str, ...]]:
    """How often the settings were asked, and what is told of the one configured source that has so many folders."""
    settings = Settings(home=tmp_path / "home", log_roots=(tmp_path / "logs",), machine="box")
    spec = built_in(settings)[0]
    made = [Source(f"box--{n}--0", "box", spec.root, f"f{n}") for n in range(sources)]
    store.files.put_sources(made)
    write_problems(store.settings, made[-1].key, ["a.jsonl: torn"])
    counted = Counted(store.settings)
    (row,) = crawler_status(replace(store, settings=cast(SettingsRecords, counted)), [spec], 300, NOW).sources
    assert len(row.partitions) == sources
    return counted.asked, row.errors


def test_a_status_of_many_sources_costs_no_more_than_of_few(store: Store, tmp_path: Path) -> None:
    few, _ = status_of(store, tmp_path, 2)
    many, told = status_of(store, tmp_path, 60)
    assert many == few
    assert told == ("a.jsonl: torn",)

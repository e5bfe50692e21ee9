from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.schedules import daily_consolidation, daily_ingest
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.steps.daily import INTERVALS, TICK, fires, is_the_hour, next_tick
from anamnesis_tests.store.samples import put

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana",
    "Africa/Cairo", "Asia/Kathmandu", "Pacific/Chatham", "America/St_Johns",
]  # fmt: skip
START = datetime(2025, 1, 1, tzinfo=UTC)
TICKS = [START + n * TICK for n in range(365 * 96)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("hour", [0, 1, 2, 3, 23])
def test_every_day_of_a_year_has_exactly_one_firing(zone: str, hour: int) -> None:
    fired = Counter(tick.astimezone(ZoneInfo(zone)).date() for tick in TICKS if is_the_hour(tick, hour, zone))
    days = {tick.astimezone(ZoneInfo(zone)).date() for tick in TICKS}
    whole = days - {min(days), max(days)}
    assert {day: fired[day] for day in whole if fired[day] != 1} == {}


@pytest.mark.parametrize("zone", ZONES)
def test_it_fires_on_the_hour_in_every_time_zone(zone: str) -> None:
    local = [tick.astimezone(ZoneInfo(zone)) for tick in TICKS if is_the_hour(tick, 5, zone)]
    assert {(moment.hour, moment.minute) for moment in local} == {(5, 0)}


def test_the_hour_stays_when_the_clocks_are_changed() -> None:
    changes = (datetime(2025, 3, 9, tzinfo=UTC), datetime(2025, 11, 2, tzinfo=UTC))
    for day in changes:
        around = [day + n * TICK for n in range(-96, 192)]
        fired = [tick for tick in around if is_the_hour(tick, 5, "America/New_York")]
        apart = {later - earlier for earlier, later in pairwise(fired)}
        assert timedelta(hours=23 if day.month == 3 else 25) in apart
        assert {tick.astimezone(ZoneInfo("America/New_York")).hour for tick in fired} == {5}


@pytest.mark.parametrize(("schedule", "a_day"), [("disabled", 0), ("30min", 48), ("1h", 24), ("2h", 12), ("6h", 4)])
def test_the_other_presets_fire_all_day_long_or_never(schedule: str, a_day: int) -> None:
    fired = [tick for tick in TICKS[: 96 * 7] if fires(tick, schedule, 5, "Asia/Kathmandu")]
    assert len(fired) == 7 * a_day
    assert {b - a for a, b in pairwise(fired)} == ({INTERVALS[schedule]} if a_day else set())
    found = next_tick(START + timedelta(minutes=1, seconds=2), schedule, 5, "UTC")
    assert found == (START + INTERVALS[schedule] if a_day else None)


def test_a_day_that_skips_the_hour_fires_at_the_next_one() -> None:
    springs_forward = datetime(2025, 3, 30, tzinfo=UTC)
    fired = [tick for tick in TICKS if tick.date() == springs_forward.date() and is_the_hour(tick, 2, "Europe/Berlin")]
    assert [tick.astimezone(ZoneInfo("Europe/Berlin")).hour for tick in fired] == [3]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryResource:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    monkeypatch.setenv("ANAMNESIS_TIMEZONE", "Europe/Berlin")
    return MemoryResource()


def tick(memory: MemoryResource, instance: dg.DagsterInstance, when: datetime) -> list[dg.RunRequest] | None:
    context = dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=when,
        resources={"memory": memory},
        repository_def=defs.get_repository_def(),
    )
    with context:
        return list(daily_ingest.evaluate_tick(context).run_requests or [])


def test_the_stored_hour_counts_from_the_next_tick_on_and_reserved_sources_are_left_out(
    memory: MemoryResource, tmp_path: Path
) -> None:
    memory.store.ingest.put_sources([Source("known", "mac", "/l", "a"), Source("not-a-partition", "mac", "/l", "b")])
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.add_dynamic_partitions(str(SOURCES.name), ["known", "direct"])
        five, nine = datetime(2026, 1, 10, 4, tzinfo=UTC), datetime(2026, 1, 10, 8, tzinfo=UTC)
        (request,) = tick(memory, instance, five) or []
        assert (request.partition_key, request.tags["dagster/partition"]) == ("known", "known")
        assert request.run_key == "2026-01-10/known"
        assert tick(memory, instance, nine) == []
        memory.store.settings.set("config.ingest_hour", 9)
        assert tick(memory, instance, five) == []
        assert len(tick(memory, instance, nine) or []) == 1
        memory.store.settings.set("config.timezone", "Asia/Tokyo")
        assert tick(memory, instance, nine) == []
        assert len(tick(memory, instance, datetime(2026, 1, 10, 0, tzinfo=UTC)) or []) == 1
        memory.store.settings.set("config.ingest_schedule", "30min")
        (request,) = tick(memory, instance, nine) or []
        assert request.run_key == "2026-01-10T08:00Z/known"
        assert tick(memory, instance, nine + TICK) == []
        assert len(tick(memory, instance, nine + 2 * TICK) or []) == 1
        memory.store.settings.set("config.ingest_schedule", "disabled")
        assert tick(memory, instance, nine) == []
    memory.store.close()


@pytest.mark.parametrize("zone", ZONES)
def test_the_next_tick_is_the_first_that_fires(zone: str) -> None:
    for after in (START + timedelta(minutes=hours * 61) for hours in range(0, 9_000, 97)):
        found = next_tick(after, "nightly", 2, zone)
        assert found is not None
        assert found > after
        assert is_the_hour(found, 2, zone)
        between = [tick for tick in TICKS if after < tick < found]
        assert not any(is_the_hour(tick, 2, zone) for tick in between)


def test_consolidation_runs_at_its_own_hour_and_only_for_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))

    def ticked(hour: int) -> dg.RunRequest | dg.SkipReason:
        context = dg.build_schedule_context(
            scheduled_execution_time=datetime(2026, 3, 1, hour, tzinfo=UTC), resources={"memory": MemoryResource()}
        )
        with context:
            outcome = daily_consolidation(context)
        assert isinstance(outcome, dg.RunRequest | dg.SkipReason)
        return outcome

    assert isinstance(ticked(6), dg.SkipReason)
    store = MemoryResource().store
    put(store, "a", "text", source="logs", session_id="s")
    store.close()
    assert isinstance(ticked(5), dg.SkipReason)
    fired = ticked(6)
    assert isinstance(fired, dg.RunRequest)
    assert fired.run_key == "2026-03-01T06:00Z"
    result = defs.resolve_job_def("consolidate").execute_in_process(resources={"memory": MemoryResource()})
    (done,) = result.asset_materializations_for_node("consolidation_report")
    assert done.metadata["waiting"].value == 1

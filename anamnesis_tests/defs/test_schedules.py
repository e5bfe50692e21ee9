"""The schedules: their cron strings as Dagster reads them, what a tick requests, and the hourly check."""

import importlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs import resources, sensors
from anamnesis_pipeline.defs import schedules as schedules_module
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.defs.schedules import (
    HourlyCheck,
    daily_consolidation,
    daily_dream,
    daily_ingest,
    daily_map,
    weekly_review,
)
from anamnesis_pipeline.errors import GiveUp, ServiceUnreachable
from anamnesis_pipeline.knowledge.dream import observe
from anamnesis_pipeline.knowledge.repetitions import RepeatedErrors
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.pipeline.daily import INTERVALS, Timing, timings
from anamnesis_pipeline.services.dagster.definitions import LoadedSchedule
from anamnesis_pipeline.services.dagster.graphql import REPOSITORY
from anamnesis_pipeline.services.proposals import LAST_RUN, last_run
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.knowledge_model import Signal
from anamnesis_tests.defs.conftest import Daemon
from anamnesis_tests.support.dagster_parts import dagster_webserver
from anamnesis_tests.support.samples import put

CHANGES = {
    "Europe/Berlin": (date(2026, 3, 29), date(2026, 10, 25)),
    "America/New_York": (date(2026, 3, 8), date(2026, 11, 1)),
    "Australia/Lord_Howe": (date(2026, 4, 5), date(2026, 10, 4)),  # clocks move by half an hour
    "America/Havana": (date(2026, 3, 8), date(2026, 11, 1)),  # midnight is skipped
    "America/St_Johns": (date(2026, 3, 8), date(2026, 11, 1)),
    "Pacific/Chatham": (date(2026, 4, 5), date(2026, 9, 27)),
    "Asia/Kolkata": (date(2026, 3, 29),),
    "Asia/Kathmandu": (date(2026, 3, 29),),
    "UTC": (date(2026, 3, 29),),
}
"""Days on which clocks change, by zone; any day where they never do."""


def ticks_of(timing: Timing, day: date) -> list[datetime]:
    """The ticks around a day, as Dagster's own reading of the cron string gives them."""
    start = datetime(day.year, day.month, day.day) - timedelta(days=2)
    windows = dg.TimeWindowPartitionsDefinition(
        start=start, cron_schedule=timing.cron, timezone=timing.zone, fmt="%Y-%m-%d"
    )
    window, ticks = windows.get_first_partition_window(), list[datetime]()
    while window and window.end.date() <= day + timedelta(days=2):
        ticks.append(window.end)
        window = windows.get_next_partition_window(window.end)
    return ticks


@pytest.mark.parametrize(
    ("hour", "zone", "day", "expected"),
    [
        (5, "Europe/Berlin", date(2026, 3, 28), "2026-03-28T04:00"),
        (5, "Europe/Berlin", date(2026, 3, 29), "2026-03-29T03:00"),
        (2, "Europe/Berlin", date(2026, 3, 29), "2026-03-29T01:00"),  # the gap's end, 03:00
        (3, "Europe/Berlin", date(2026, 3, 29), "2026-03-29T01:00"),
        (2, "Europe/Berlin", date(2026, 10, 25), "2026-10-25T01:00"),  # the second of two
        (3, "Europe/Berlin", date(2026, 10, 25), "2026-10-25T02:00"),
        (5, "Asia/Kolkata", date(2026, 3, 29), "2026-03-28T23:30"),
        (2, "Australia/Lord_Howe", date(2026, 10, 4), "2026-10-03T15:30"),  # the gap's end, 02:30
    ],
)
def test_nightly_tick_is_where_the_clock_says(hour: int, zone: str, day: date, expected: str) -> None:
    ticks = ticks_of(Timing("nightly", hour, zone), day)
    (found,) = [tick for tick in ticks if tick.astimezone(ZoneInfo(zone)).date() == day]
    assert f"{found.astimezone(UTC):%Y-%m-%dT%H:%M}" == expected


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize(("preset", "hour"), [("nightly", 2), ("nightly", 5), *((name, 0) for name in INTERVALS)])
def test_next_run_of_pages_is_the_one_of_dagster(zone: str, preset: str, hour: int) -> None:
    if (zone, preset) == ("Australia/Lord_Howe", "1h"):
        pytest.skip("Dagster ticks at the former half hour until it counts again from another tick")
    quarters = ("Pacific/Chatham", "Asia/Kathmandu")
    if dg.__version__.startswith("1.12.") and preset == "30min" and zone in quarters:
        pytest.skip("Dagster 1.12 counts half hours in UTC where the zone is a quarter of an hour from it")
    timing = Timing(preset, hour, zone)
    for day in CHANGES[zone]:
        ticks = [tick.astimezone(UTC) for tick in ticks_of(timing, day)]
        assert [timing.next_tick(tick) for tick in ticks[:-1]] == ticks[1:]
        between = [before + (after - before) / 2 for before, after in pairwise(ticks)]
        assert [timing.last_tick(moment) for moment in between] == ticks[:-1]


@pytest.mark.parametrize(
    ("preset", "cron", "a_day"),
    [
        ("30min", "*/30 * * * *", 48),
        ("1h", "0 * * * *", 24),
        ("2h", "0 */2 * * *", 12),
        ("6h", "0 */6 * * *", 4),
        ("nightly", "0 5 * * *", 1),
        ("disabled", "0 5 * * *", 1),
    ],
)
def test_preset_is_a_cron_string(preset: str, cron: str, a_day: int) -> None:
    timing = Timing(preset, 5, "Asia/Kathmandu")
    assert timing.cron == cron
    days = Counter(tick.date() for tick in ticks_of(timing, date(2026, 6, 10)))
    assert days[date(2026, 6, 10)] == a_day
    assert (timing.next_tick(datetime(2026, 6, 10, tzinfo=UTC)) is None) == (preset == "disabled")


@pytest.fixture
def load(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Loads the schedules again under other environment variables, as the code server does."""

    def reloaded(**environment: str) -> ModuleType:
        for name, value in environment.items():
            monkeypatch.setenv(f"ANAMNESIS_{name.upper()}", value)
        monkeypatch.setattr(resources, "AT_LOAD", resources.settings_at_load()[0])
        return importlib.reload(schedules_module)

    yield reloaded
    monkeypatch.undo()
    importlib.reload(schedules_module)


def test_schedules_have_hour_and_zone_of_the_settings(load: Callable[..., ModuleType], home: Path) -> None:
    loaded = load(ingest_hour="7", timezone="Europe/Berlin", consolidate_hour="8", consolidate_schedule="6h")
    found = [loaded.daily_ingest, loaded.daily_consolidation, loaded.daily_map]
    assert [each.cron_schedule for each in found] == ["0 7 * * *", "0 */6 * * *", "0 8 * * *"]
    assert {each.execution_timezone for each in found} == {"Europe/Berlin"}
    assert {each.default_status for each in found} == {dg.DefaultScheduleStatus.RUNNING}
    assert "07:00" in str(loaded.daily_ingest.description)
    assert not home.exists()


def test_stored_hour_is_loaded_where_it_can_be(load: Callable[..., ModuleType], memory: MemoryResource) -> None:
    memory.store.settings.set("config.ingest_hour", 9)
    assert load().daily_ingest.cron_schedule == "0 9 * * *"
    memory.store.settings.set("config.ingest_hour", 99)
    assert load().daily_ingest.cron_schedule == "0 5 * * *"


def test_disabled_schedule_is_stopped_and_says_so(load: Callable[..., ModuleType]) -> None:
    loaded = load(ingest_schedule="disabled")
    assert loaded.daily_ingest.default_status is dg.DefaultScheduleStatus.STOPPED
    assert "ingest_schedule is disabled" in str(loaded.daily_ingest.description)
    assert loaded.daily_map.default_status is dg.DefaultScheduleStatus.RUNNING


def evaluated(
    schedule: dg.ScheduleDefinition, memory: MemoryResource, instance: dg.DagsterInstance, when: datetime
) -> tuple[list[dg.RunRequest], str]:
    """Run requests and skip reason of a tick."""
    given = {"resources": {"memory": memory}, "repository_def": defs.get_repository_def()}
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=when, **given) as context:
        data = schedule.evaluate_tick(context)
    return list(data.run_requests or []), data.skip_message or ""


FIVE = datetime(2026, 1, 10, 4, tzinfo=UTC)
"""05:00 in Berlin."""


def test_tick_requests_sources_once_a_day(
    memory: MemoryResource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_TIMEZONE", "Europe/Berlin")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert evaluated(daily_ingest, memory, instance, FIVE) == ([], "There is no source yet.")
        sources = [Source("known", "mac", "/l", "a"), Source("not-a-partition", "mac", "/l", "b")]
        memory.store.files.put_sources([*sources, Source("direct", kind="reserved")])
        instance.add_dynamic_partitions(str(SOURCES.name), ["known", "direct"])
        ((request,), _) = evaluated(daily_ingest, memory, instance, FIVE)
        assert (request.partition_key, request.run_key) == ("known", "2026-01-10/known")
        assert request.tags["dagster/partition"] == "known"
        late_in_utc = datetime(2026, 1, 9, 23, 30, tzinfo=UTC)
        ((request,), _) = evaluated(daily_ingest, memory, instance, late_in_utc)
        assert request.run_key == "2026-01-10/known"
        memory.store.settings.set("config.ingest_schedule", "30min")
        ((request,), _) = evaluated(daily_ingest, memory, instance, FIVE)
        assert request.run_key == "2026-01-10T04:00Z/known"
        memory.store.settings.set("config.ingest_schedule", "disabled")
        assert evaluated(daily_ingest, memory, instance, FIVE) == ([], "ingest_schedule is disabled.")


NOTES = (("a", "The staging database runs on port 5433"), ("b", "Staging database port 5433"))


def test_dream_runs_for_what_came_and_fails_with_one_detector(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    seven = datetime(2026, 3, 2, 7, tzinfo=UTC)
    memory.store.settings.set(LAST_RUN, {"started_at": datetime.now(UTC).isoformat()})
    assert "Nothing came" in evaluated(daily_dream, memory, instance, seven)[1]
    memory.store.settings.set(LAST_RUN, None)
    assert evaluated(daily_dream, memory, instance, seven)[0], "it looks back once a week"
    for name, text in NOTES:
        put(memory.store, name, text, raw_exchange=text, minute=ord(name))
    ((request,), _) = evaluated(daily_dream, memory, instance, seven)
    assert request.run_key == "2026-03-02T07:00Z"
    observe(memory.store)
    memory.store.settings.set(LAST_RUN, {"started_at": datetime.now(UTC).isoformat()})
    assert evaluated(daily_dream, memory, instance, seven)[0], "an ingest observed it, and no detector has looked"

    def fail(*_: object) -> None:
        raise GiveUp("broken")

    monkeypatch.setattr(RepeatedErrors, "find", fail)
    monkeypatch.setattr(RepeatedErrors, "signals", (Signal.NOTE,))
    run = defs.resolve_job_def("dream").execute_in_process(
        resources={"memory": MemoryResource(), "embedding_pool": EmbeddingPoolResource()}, raise_on_error=False
    )
    assert not run.success
    made = {each.asset_key.to_user_string() for each in run.asset_materializations_for_node("proposals")}
    assert {"proposals/DuplicateNotes", "proposals/Promotions"} <= made
    assert "proposals/RepeatedErrors" not in made
    assert "merge" in {each.kind for each in memory.store.proposals.page(10)}
    report = last_run(memory.store)
    assert report is not None
    assert report.problems == {"RepeatedErrors": "broken"}
    monkeypatch.undo()
    defs.resolve_job_def("dream").execute_in_process(
        resources={"memory": MemoryResource(), "embedding_pool": EmbeddingPoolResource()}
    )
    assert "Nothing came" in evaluated(daily_dream, memory, instance, seven)[1], "all detectors looked"


def test_weekly_review_quotes_what_waits(memory: MemoryResource, instance: dg.DagsterInstance) -> None:
    for name, text in NOTES:
        put(memory.store, name, text, raw_exchange=text, minute=ord(name))
    resources = {"memory": MemoryResource(), "embedding_pool": EmbeddingPoolResource()}
    defs.resolve_job_def("dream").execute_in_process(resources=resources)
    run = defs.resolve_job_def("review").execute_in_process(resources={"memory": MemoryResource()})
    (report,) = run.asset_materializations_for_node("review_report")
    assert all(text in str(report.metadata["report"].value) for _, text in NOTES)
    assert all(each.passed for each in run.get_asset_check_evaluations())
    monday = datetime(2026, 3, 2, 7, tzinfo=UTC)
    ((request,), _) = evaluated(weekly_review, memory, instance, monday)
    assert request.run_key == "2026-03-02T07:00Z"


def test_consolidation_runs_only_for_what_changed(memory: MemoryResource, instance: dg.DagsterInstance) -> None:
    six = datetime(2026, 3, 1, 6, tzinfo=UTC)
    assert "Nothing changed" in evaluated(daily_consolidation, memory, instance, six)[1]
    put(memory.store, "a", "text", source="logs", session_id="s")
    ((request,), _) = evaluated(daily_consolidation, memory, instance, six)
    assert request.run_key == "2026-03-01T06:00Z"
    result = defs.resolve_job_def("consolidate").execute_in_process(resources={"memory": MemoryResource()})
    (done,) = result.asset_materializations_for_node("consolidation_report")
    assert done.metadata["waiting"].value == 1
    memory.store.settings.set("config.consolidate_schedule", "disabled")
    assert "disabled" in evaluated(daily_consolidation, memory, instance, six)[1]
    assert "too little" in evaluated(daily_map, memory, instance, six)[1]


# --- the hourly check

LOADED_AT = datetime(2026, 1, 10, 4, 30, tzinfo=UTC)
YESTERDAY = FIVE - timedelta(days=1)
KNOWN = {"known": "2026-01-10/known"}


def ingest_schedule(*, running: bool = True, started: datetime | None, evaluated: datetime | None) -> LoadedSchedule:
    return LoadedSchedule("daily_ingest", "0 5 * * *", "Europe/Berlin", running, started, evaluated, None)


@dataclass
class DagsterSaying:
    """Answers with one schedule, and counts reloads."""

    memory: MemoryResource
    schedule: LoadedSchedule
    reloads: int = 0
    is_up: bool = True

    def reload_definitions(self, timeout_s: float) -> None:
        assert timeout_s < 30
        self._expect_up()
        self.reloads += 1

    def schedules(self) -> list[LoadedSchedule]:
        self._expect_up()
        return [self.schedule]

    def _expect_up(self) -> None:
        if not self.is_up:
            raise ServiceUnreachable("Dagster does not answer")

    def missed(self, check: HourlyCheck, minutes: float, since: datetime = LOADED_AT) -> dict[str, str]:
        """What a check finds so many minutes after the definitions were loaded."""
        return check.missed_ingest(self.memory, since + timedelta(minutes=minutes), logging.getLogger("test"))


@pytest.fixture
def dagster(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> DagsterSaying:
    monkeypatch.setenv("ANAMNESIS_TIMEZONE", "Europe/Berlin")
    memory.store.files.put_sources([Source("known", "mac", "/l", "a"), Source("direct", kind="reserved")])
    last = ingest_schedule(started=YESTERDAY - timedelta(days=3), evaluated=YESTERDAY)
    saying = DagsterSaying(memory, last)
    monkeypatch.setattr(schedules_module, "open_dagster", lambda _: saying)
    return saying


@pytest.fixture
def check(memory: MemoryResource, dagster: DagsterSaying) -> HourlyCheck:
    return HourlyCheck(memory.settings, LOADED_AT)


@pytest.mark.parametrize(("name", "value"), [("crawl_interval_s", 60), ("embed_cores", [0]), ("summarizer", "ollama")])
def test_changed_setting_reloads_in_an_hour(
    check: HourlyCheck, dagster: DagsterSaying, name: str, value: object
) -> None:
    dagster.memory.store.settings.set(f"config.{name}", value)
    for minutes, reloads in ((59, 0), (60, 1), (65, 1), (119, 1), (120, 2)):
        assert (dagster.missed(check, minutes), dagster.reloads) == ({}, reloads)


def test_definitions_loaded_without_the_store_are_reloaded_soon(dagster: DagsterSaying) -> None:
    check = HourlyCheck(Settings.model_construct(), LOADED_AT, is_complete=False)
    dagster.memory.store.settings.set("config.ingest_hour", 9)
    dagster.is_up = False  # as the webserver, which starts after the code server
    assert dagster.missed(check, 0.5) == {}
    dagster.is_up = True
    for minutes in (1, 1.5):
        assert dagster.missed(check, minutes) == {}
    assert dagster.reloads == 1


def test_load_without_its_store_is_said_to_be_incomplete(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert resources.settings_at_load()[2]
    home.mkdir()
    (home / "anamnesis.db").write_text("no database " * 100)
    assert not resources.settings_at_load()[2]
    assert "the stored settings cannot be read" in caplog.text


def test_missed_ingest_is_requested_once_an_hour(check: HourlyCheck, dagster: DagsterSaying) -> None:
    dagster.is_up = False
    assert dagster.missed(check, 60) == {}, "Dagster does not answer, and is asked again in an hour"
    dagster.is_up = True
    assert [dagster.missed(check, minutes) for minutes in (120, 125, 180)] == [KNOWN, {}, KNOWN]
    assert dagster.reloads == 0


@pytest.mark.parametrize(
    "schedule",
    [
        ingest_schedule(started=YESTERDAY, evaluated=FIVE),
        ingest_schedule(started=YESTERDAY, evaluated=FIVE - timedelta(hours=3)),  # at another hour of the same day
        ingest_schedule(started=YESTERDAY, evaluated=YESTERDAY, running=False),
        ingest_schedule(started=FIVE + timedelta(minutes=1), evaluated=YESTERDAY),
        ingest_schedule(started=None, evaluated=None),
    ],
    ids=["evaluated", "evaluated earlier that day", "stopped", "started later", "not seen yet"],
)
def test_ingest_is_not_missed(check: HourlyCheck, dagster: DagsterSaying, schedule: LoadedSchedule) -> None:
    dagster.schedule = schedule
    assert dagster.missed(check, 60) == {}


def test_ingest_due_since_the_last_check_is_left_to_dagster(dagster: DagsterSaying) -> None:
    check = HourlyCheck(dagster.memory.settings, FIVE - timedelta(minutes=10))
    assert dagster.missed(check, 50, FIVE) == {}
    assert dagster.missed(check, 110, FIVE) != {}


@pytest.mark.parametrize("preset", ["1h", "disabled"])
def test_other_presets_miss_no_ingest(check: HourlyCheck, dagster: DagsterSaying, preset: str) -> None:
    dagster.memory.store.settings.set("config.ingest_schedule", preset)
    assert dagster.missed(check, 60) == {}


START = """mutation($schedule: ScheduleSelector!) { startSchedule(scheduleSelector: $schedule) {
  ... on ScheduleStateResult { scheduleState { id } } } }"""
STOP = "mutation($id: String) { stopRunningSchedule(id: $id) { __typename } }"


def test_dagster_is_asked_for_missed_runs(memory: MemoryResource, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.store.files.put_sources([Source("known", "mac", "/l", "a")])
    code = "python_module: {module_name: anamnesis_pipeline.definitions, location_name: anamnesis}"
    with dagster_webserver(home, code) as dagster:
        monkeypatch.setenv("ANAMNESIS_DAGSTER_URL", dagster.link("").removesuffix("/runs/b/"))
        due = timings(memory.settings)["daily_ingest"].next_tick(datetime.now(UTC) + timedelta(days=1))
        assert due is not None

        def missed() -> dict[str, str]:
            check = HourlyCheck(memory.settings, due + timedelta(minutes=30))
            return check.missed_ingest(memory, due + timedelta(minutes=90), logging.getLogger("test"))

        assert missed() == {}, "no daemon has started the schedule yet"
        schedule = {**REPOSITORY, "scheduleName": "daily_ingest"}
        state = dagster.ask(START, {"schedule": schedule})["startSchedule"]["scheduleState"]["id"]
        dagster.ask(STOP, {"id": state})
        assert missed() == {}
        dagster.ask(START, {"schedule": schedule})
        assert missed() == {"known": f"{due:%Y-%m-%d}/known"}


def test_sensor_requests_missed_ingest(daemon: Daemon, dagster: DagsterSaying, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.instance.add_dynamic_partitions(str(SOURCES.name), ["known", "direct", "uploads", "chat"])
    settings = daemon.memory.settings
    due = timings(settings)["daily_ingest"].last_tick(datetime.now(UTC))
    dagster.schedule = ingest_schedule(started=due - timedelta(days=3), evaluated=due - timedelta(days=1))
    monkeypatch.setattr(sensors, "HOURLY_CHECK", HourlyCheck(settings, datetime.now(UTC) - timedelta(hours=1)))
    if due > datetime.now(UTC) - timedelta(hours=1):
        pytest.skip("a tick of the last hour is still Dagster's")
    keys = [(request.partition_key, request.run_key) for request in daemon.requests(sensors.crawl_sensor)]
    assert keys == [("known", f"{due.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%d}/known")]


def test_settings_that_cannot_be_read_leave_the_defaults() -> None:
    assert timings(Settings.model_construct())["daily_ingest"] == Timing("nightly", 5, "UTC")

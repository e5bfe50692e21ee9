"""Schedules of ingest, consolidation and the map, at the configured times."""

import logging
import math
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg

from anamnesis_pipeline.defs.jobs import consolidate, draw_map, dream, ingest, review
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import owned, tagged
from anamnesis_pipeline.defs.resources import AT_LOAD, MemoryResource
from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.knowledge.dream import DETECTORS, has_work
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.pipeline.daily import DISABLED, NIGHTLY, Timing, timings
from anamnesis_pipeline.pipeline.memory_map import is_map_due
from anamnesis_pipeline.services.dagster.api import open_dagster
from anamnesis_pipeline.services.dagster.definitions import LoadedSchedule
from anamnesis_pipeline.services.proposals import last_run
from anamnesis_pipeline.services.wiring import loaded_values
from anamnesis_pipeline.settings import Settings

CHECK_INTERVAL = timedelta(hours=1)
RELOAD_TIMEOUT_S = 15.0
"""Limit for the reload within a sensor tick, which has 60 s; Dagster continues it afterwards."""


TIMINGS = timings(AT_LOAD)
"""A changed setting reloads the code location, and so these (`HourlyCheck`, `anamnesis config set`)."""


def _status(timing: Timing) -> dg.DefaultScheduleStatus:
    return dg.DefaultScheduleStatus.RUNNING if timing.is_enabled else dg.DefaultScheduleStatus.STOPPED


def _described(does: str, timing: Timing, setting: str) -> str:
    """Describe a schedule and its settings for the UI."""
    if not timing.is_enabled:
        return f"{does} Off, as the setting {setting}_schedule is {DISABLED}: started here, it skips every tick."
    if timing.preset == NIGHTLY:
        return f"{does} Daily at {timing.hour:02}:00, by the settings {setting}_hour and timezone."
    return f"{does} Every {timing.preset}, by the settings {setting}_schedule and timezone."


@dg.schedule(
    job=ingest,
    cron_schedule=TIMINGS["daily_ingest"].cron,
    execution_timezone=TIMINGS["daily_ingest"].zone,
    tags=tagged("ingest"),
    **owned(dg.schedule),
    default_status=_status(TIMINGS["daily_ingest"]),
    description=_described("Ingests every source, one run each.", TIMINGS["daily_ingest"], "ingest"),
)
def daily_ingest(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> list[dg.RunRequest] | dg.SkipReason:
    """Request one run per source. Run keys contain the local day of a nightly tick, else the tick's time in UTC."""
    timing = timings(memory.settings)["daily_ingest"]
    if not timing.is_enabled:
        return dg.SkipReason(f"ingest_schedule is {DISABLED}.")
    known = set(context.instance.get_dynamic_partitions(str(SOURCES.name)))
    keys = _run_keys(memory, timing, context.scheduled_execution_time)
    if not keys.keys() & known:
        return dg.SkipReason("There is no source yet.")
    return [dg.RunRequest(run_key=run_key, partition_key=key) for key, run_key in keys.items() if key in known]


@dg.schedule(
    job=consolidate,
    cron_schedule=TIMINGS["daily_consolidation"].cron,
    execution_timezone=TIMINGS["daily_consolidation"].zone,
    tags=tagged("memory"),
    **owned(dg.schedule),
    default_status=_status(TIMINGS["daily_consolidation"]),
    description=_described("Consolidates sessions that changed.", TIMINGS["daily_consolidation"], "consolidate"),
)
def daily_consolidation(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> dg.RunRequest | dg.SkipReason:
    """Request a run if a session changed since the last one."""
    if memory.settings.consolidate_schedule == DISABLED:
        return dg.SkipReason(f"consolidate_schedule is {DISABLED}.")
    if not memory.store.consolidation.changed_count():
        return dg.SkipReason("Nothing changed in any session since it was consolidated.")
    return dg.RunRequest(run_key=_minute(context.scheduled_execution_time))


@dg.schedule(
    job=draw_map,
    cron_schedule=TIMINGS["daily_map"].cron,
    execution_timezone=TIMINGS["daily_map"].zone,
    tags=tagged("memory"),
    **owned(dg.schedule),
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description=_described("Draws the map where 2% of the episodes are new.", TIMINGS["daily_map"], "consolidate"),
)
def daily_map(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> dg.RunRequest | dg.SkipReason:
    """Request a run if the map lacks enough episodes."""
    if not is_map_due(memory.store, memory.settings.home):
        return dg.SkipReason("The map shows nearly all there is, or there is too little for one.")
    return dg.RunRequest(run_key=_minute(context.scheduled_execution_time))


@dg.schedule(
    job=dream,
    cron_schedule=TIMINGS["daily_dream"].cron,
    execution_timezone=TIMINGS["daily_dream"].zone,
    tags=tagged("knowledge"),
    **owned(dg.schedule),
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description=_described("Proposes what follows from what came.", TIMINGS["daily_dream"], "consolidate"),
)
def daily_dream(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> dg.RunRequest | dg.SkipReason:
    """Request a run if something was observed since the last one, or waits to be."""
    last = last_run(memory.store)
    is_fresh = last is not None and not last.problems and _days_since(last.started_at) < LOOKS_BACK_DAYS
    wanted = [each for each in DETECTORS if each.kind not in memory.settings.dream_off]
    has_come = memory.store.observations.unobserved_count() or any(has_work(memory.store, each) for each in wanted)
    if is_fresh and not has_come:
        return dg.SkipReason("Nothing came since the last run.")
    return dg.RunRequest(run_key=_minute(context.scheduled_execution_time))


@dg.schedule(
    job=review,
    cron_schedule=f"{TIMINGS['daily_dream'].cron.rpartition(' ')[0]} 1",
    execution_timezone=TIMINGS["daily_dream"].zone,
    tags=tagged("knowledge"),
    **owned(dg.schedule),
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Reports on Mondays what waits for a decision, an hour after the setting consolidate_hour.",
)
def weekly_review(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Request the report of the week."""
    return dg.RunRequest(run_key=_minute(context.scheduled_execution_time))


LOOKS_BACK_DAYS = 7
"""Days after which a run also looks back at what has grown old."""


def _days_since(started_at: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(started_at)) / timedelta(days=1) if started_at else math.inf


def _minute(tick: datetime) -> str:
    return f"{tick.astimezone(UTC):%Y-%m-%dT%H:%M}Z"


def _run_keys(memory: MemoryResource, timing: Timing, tick: datetime) -> dict[str, str]:
    """Return source -> run key for the ingest of a tick."""
    local = tick.astimezone(ZoneInfo(timing.zone))
    name = f"{local:%Y-%m-%d}" if timing.preset == NIGHTLY else _minute(tick)
    sources = [source.key for source in memory.store.files.sources()]
    return {key: f"{name}/{key}" for key in sources if key not in RESERVED_SOURCES}


class HourlyCheck:
    """Hourly check in a sensor for unreported changes: of `config.toml`, by another machine on the same store, or while
    Dagster's webserver did not answer.

    :param loaded: the settings of this process's definitions.
    :param since: when it loaded them.
    :param is_complete: False: the stored settings could not be read then. The first check is at the next tick, and
        repeats at each until Dagster answers.
    """

    def __init__(self, loaded: Settings, since: datetime, *, is_complete: bool = True) -> None:
        self._loaded = loaded_values(loaded)
        self._checked_at = since
        self._is_complete = is_complete

    def missed_ingest(self, memory: MemoryResource, now: datetime, log: logging.Logger) -> dict[str, str]:
        """Reload the definitions if the settings changed, else find a missed daily ingest.

        Dagster evaluates the last tick missed while it was off, unless the time was changed externally shortly before,
        or the evaluation failed. Then the ingest is requested here, an hour later.
        :return: run keys by source; the same for one day, so that Dagster requests them once.
        """
        if self._is_complete and now - self._checked_at < CHECK_INTERVAL:
            return {}
        before, self._checked_at = self._checked_at, now
        settings = memory.settings
        timing, dagster = timings(settings)["daily_ingest"], open_dagster(settings)
        try:
            if loaded_values(settings) != self._loaded:
                log.info("Settings of schedules, sensors or resources changed; reloading the code location.")
                dagster.reload_definitions(RELOAD_TIMEOUT_S)
                self._is_complete = True
                return {}
            schedule = next((each for each in dagster.schedules() if each.name == "daily_ingest"), None)
        except ServiceUnreachable as exc:
            later = "hour" if self._is_complete else "tick"
            log.warning(f"The hourly check of the schedules is left to the next {later}: {exc}")
            return {}
        self._is_complete = True
        due = timing.last_tick(now)
        if schedule is None or timing.preset != NIGHTLY or due > before or not is_missed(schedule, due, timing.zone):
            return {}
        log.warning(f"daily_ingest was not evaluated at {due:%Y-%m-%d %H:%M} UTC; requesting it now.")
        return _run_keys(memory, timing, due)


def is_missed(schedule: LoadedSchedule, due: datetime, zone: str) -> bool:
    """Return whether a running schedule had no tick on the local day of a due one. Pure."""
    if not schedule.is_running or schedule.started_at is None or schedule.started_at >= due:
        return False
    local = ZoneInfo(zone)
    seen = schedule.evaluated_at
    return seen is None or seen.astimezone(local).date() < due.astimezone(local).date()

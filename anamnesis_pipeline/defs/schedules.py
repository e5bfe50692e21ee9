"""The ingest of all sources, consolidation and the map, at times that settings may change while Dagster runs."""

from datetime import UTC
from zoneinfo import ZoneInfo

import dagster as dg

from anamnesis_pipeline.defs.jobs import consolidate, draw_map, ingest
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.steps.daily import fires
from anamnesis_pipeline.steps.memory_map import is_map_due


@dg.schedule(
    job=ingest,
    cron_schedule="*/15 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Ingests every source, as `ingest_schedule` says: unless set, once a day at `ingest_hour`.",
)
def daily_ingest(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> list[dg.RunRequest] | dg.SkipReason:
    """Ticks every quarter of an hour and fires as stored (`ingest_schedule`, `ingest_hour`, `timezone`; at 05:00 UTC
    unless set).
    """
    settings = memory.settings
    tick = context.scheduled_execution_time
    if not fires(tick, settings.ingest_schedule, settings.ingest_hour, settings.timezone):
        nightly = f"at {settings.ingest_hour:02}:00 {settings.timezone}"
        return dg.SkipReason(f"Fires {nightly if settings.ingest_schedule == 'nightly' else settings.ingest_schedule}.")
    is_daily = settings.ingest_schedule == "nightly"
    local = tick.astimezone(ZoneInfo(settings.timezone))
    run = f"{local:%Y-%m-%d}" if is_daily else f"{tick.astimezone(UTC):%Y-%m-%dT%H:%M}Z"
    known = set(context.instance.get_dynamic_partitions(str(SOURCES.name)))
    keys = [s.key for s in memory.store.ingest.sources() if s.key in known and s.key not in RESERVED_SOURCES]
    return [dg.RunRequest(run_key=f"{run}/{key}", partition_key=key) for key in keys]


@dg.schedule(
    job=consolidate,
    cron_schedule="*/15 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Consolidates sessions, as `consolidate_schedule` says: unless set, once a day at `consolidate_hour`.",
)
def daily_consolidation(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> dg.RunRequest | dg.SkipReason:
    """Ticks every quarter of an hour and fires as stored (`consolidate_schedule`, `consolidate_hour`, `timezone`; at
    06:00 UTC, after the ingest, unless set).
    """
    settings, tick = memory.settings, context.scheduled_execution_time
    if not fires(tick, settings.consolidate_schedule, settings.consolidate_hour, settings.timezone):
        return dg.SkipReason(f"Fires as consolidate_schedule says: {settings.consolidate_schedule}.")
    if not memory.store.consolidation.changed_count():
        return dg.SkipReason("Nothing changed in any session since it was consolidated.")
    return dg.RunRequest(run_key=f"{tick.astimezone(UTC):%Y-%m-%dT%H:%M}Z")


@dg.schedule(
    job=draw_map,
    cron_schedule="*/15 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Draws the map of memory anew once a day at `consolidate_hour`, where 2% of the episodes are new.",
)
def daily_map(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> dg.RunRequest | dg.SkipReason:
    """Ticks every quarter of an hour and fires once a day, when the ingest is over, at 06:00 UTC unless set."""
    settings, tick = memory.settings, context.scheduled_execution_time
    if not fires(tick, "nightly", settings.consolidate_hour, settings.timezone):
        return dg.SkipReason(f"Fires at {settings.consolidate_hour:02}:00 {settings.timezone}.")
    if not is_map_due(memory.store, settings.home):
        return dg.SkipReason("The map shows nearly all there is, or there is too little for one.")
    return dg.RunRequest(run_key=f"{tick.astimezone(UTC):%Y-%m-%dT%H:%M}Z")

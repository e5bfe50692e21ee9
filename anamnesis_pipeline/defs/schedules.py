"""The daily ingest of all sources, at an hour that settings may change while Dagster runs."""

from zoneinfo import ZoneInfo

import dagster as dg

from anamnesis_pipeline.defs.jobs import ingest
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.steps.daily import is_the_hour


@dg.schedule(
    job=ingest,
    cron_schedule="0 * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Ingests every source once a day: ticks every hour and fires at the stored one (`ingest_hour`).",
)
def daily_ingest(context: dg.ScheduleEvaluationContext, memory: MemoryResource) -> list[dg.RunRequest] | dg.SkipReason:
    """Ticks every hour and fires at the stored one (`ingest_hour`, `timezone`; 05:00 UTC unless set)."""
    settings = memory.settings
    tick = context.scheduled_execution_time
    if not is_the_hour(tick, settings.ingest_hour, settings.timezone):
        return dg.SkipReason(f"Fires at {settings.ingest_hour:02}:00 {settings.timezone}.")
    day = f"{tick.astimezone(ZoneInfo(settings.timezone)):%Y-%m-%d}"
    known = set(context.instance.get_dynamic_partitions(str(SOURCES.name)))
    keys = [s.key for s in memory.store.ingest.sources() if s.key in known and s.key not in RESERVED_SOURCES]
    return [dg.RunRequest(run_key=f"{day}/{key}", partition_key=key) for key in keys]

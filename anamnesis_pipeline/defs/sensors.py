"""What starts the reading of logs: the crawl every `crawl_interval_s`."""

import time
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime, timedelta

import dagster as dg

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.defs.jobs import ingest
from anamnesis_pipeline.defs.partitions import SOURCES, new_keys
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES
from anamnesis_pipeline.errors import AnamnesisError, SourceUnreadable
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.steps.crawl import source_changed
from anamnesis_pipeline.steps.forget import is_forgetting
from anamnesis_pipeline.wiring import discover_sources, effective_settings, open_store
from anamnesis_pipeline.wording import counted

SUMMARIES_PER_TICK = 20
"""Sources whose summaries alone are to be made that one tick requests: an LLM that is back is not stormed."""
TICK_S = 30.0
"""A tick lists for at most this long; what it did not reach comes first in the next one."""
INGEST_MAX_S = 7_200
"""After so long Dagster takes an `ingest` run for dead: a run that lost its process would hold its source for ever. One
that was still alive is requested again and goes on where it was."""


def crawl_interval_s() -> int:
    """Seconds between two crawls, as set when the definitions are loaded; never makes the home folder.

    Settings that cannot be read are the doctor's business and no reason to have no sensor.
    """
    try:
        settings = settings_module.load()
        if not settings.database.exists():
            return settings.crawl_interval_s
        with closing(open_store(settings)) as store:
            return effective_settings(store).crawl_interval_s
    except AnamnesisError:
        return int(settings_module.Settings.model_fields["crawl_interval_s"].default)


@dg.sensor(
    job=ingest,
    minimum_interval_seconds=crawl_interval_s(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Lists the log roots, adds new sources, and ingests those with something new or left half done.",
)
def crawl_sensor(context: dg.SensorEvaluationContext, memory: MemoryResource) -> dg.SensorResult:
    """Lists the log roots, adds new sources, and requests `ingest` for sources with something new or left to do."""
    discovery = discover_sources(memory.settings)
    for problem in discovery.problems:
        context.log.warning(problem)
    memory.store.ingest.put_sources(discovery.sources)
    now = datetime.now(UTC)
    unfinished = memory.store.ingest.unfinished_sources(now - timedelta(minutes=memory.settings.idle_minutes))
    if is_forgetting(memory.store):  # any run finishes it; this one has nothing else to do
        unfinished.add(RESERVED_SOURCES[0])
    to_summarize = memory.store.ingest.sources_to_summarize(now) - unfinished
    found = sorted(source.key for source in discovery.sources)
    known = context.instance.get_dynamic_partitions(str(SOURCES.name))
    added = new_keys(known, [*RESERVED_SOURCES, *sorted(unfinished), *sorted(to_summarize), *found])
    running = _running_sources(context.instance)
    changed, last = _changed_sources(context, memory, [key for key in found if key not in unfinished])
    summarized_too = sorted(to_summarize - running - set(changed))[:SUMMARIES_PER_TICK]
    wanted = [*sorted(unfinished), *changed, *summarized_too]
    requests = [_ingest_request(key) for key in wanted if key not in running]
    if not requests and not added:
        return dg.SensorResult(skip_reason=_why_nothing(len(found), len(running), discovery.problems), cursor=last)
    return dg.SensorResult(
        run_requests=requests, dynamic_partitions_requests=[SOURCES.build_add_request(added)], cursor=last
    )


def _changed_sources(
    context: dg.SensorEvaluationContext, memory: MemoryResource, keys: list[str]
) -> tuple[list[str], str | None]:
    """The sources with something new, as far as the time of a tick goes, and the last one looked at."""
    until = time.monotonic() + TICK_S
    changed, last = [], context.cursor
    for key in _rotated(keys, context.cursor):
        if time.monotonic() > until:
            break
        last = key
        if _changed(context, memory, key):
            changed.append(key)
    return changed, last


def _changed(context: dg.SensorEvaluationContext, memory: MemoryResource, key: str) -> bool:
    try:
        source = memory.source(key)
        return source_changed(memory.store, memory.pipeline.host_of(source), source)
    except SourceUnreadable as problem:
        context.log.warning(str(problem))
        return False


def _rotated(keys: list[str], after: str | None) -> list[str]:
    """`keys`, beginning behind `after`."""
    start = next((n for n, key in enumerate(keys) if after is not None and key > after), 0)
    return keys[start:] + keys[:start]


def _ingest_request(key: str) -> dg.RunRequest:
    return dg.RunRequest(partition_key=key, tags={"dagster/max_runtime": str(INGEST_MAX_S)})


def _why_nothing(sources: int, running: int, problems: Collection[str]) -> str:
    busy = f"; {counted(running, 'is', 'are')} being ingested" if running else ""
    return f"Nothing new in {counted(sources, 'source')}{busy}." + "".join(f" {problem}" for problem in problems)


def _running_sources(instance: dg.DagsterInstance) -> set[str]:
    runs = instance.get_runs(dg.RunsFilter(job_name=ingest.name, statuses=UNFINISHED_STATUSES))
    return {run.tags.get("dagster/partition", "") for run in runs}

"""Sensors that start the ingest: the crawl every `crawl_interval_s`, and a quick one for some sources."""

import random
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg

from anamnesis_pipeline.defs.checks import evaluation, freshness, sources_are_fresh
from anamnesis_pipeline.defs.jobs import UNFINISHED_STATUSES, has_run, ingest
from anamnesis_pipeline.defs.partitions import SOURCES, new_keys
from anamnesis_pipeline.defs.posted import finish_posted
from anamnesis_pipeline.defs.reporting import owned, tagged
from anamnesis_pipeline.defs.resources import AT_LOAD, IS_COMPLETE, MemoryResource
from anamnesis_pipeline.defs.schedules import HourlyCheck
from anamnesis_pipeline.model import RESERVED_SOURCES, Source
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.in_flight import Flights
from anamnesis_pipeline.pipeline.parse_again import sources_asked_again
from anamnesis_pipeline.pipeline.sessions import sources_to_summarize
from anamnesis_pipeline.pipeline.source_specs import spec_of_source
from anamnesis_pipeline.pipeline.survey import Answer, look
from anamnesis_pipeline.services.forget import is_forgetting
from anamnesis_pipeline.settings import MIN_INTERVAL_S

CHANGED_PER_TICK = 50
"""Max changed sources per tick, drawn at random, so that none waits forever behind failing ones. The others remain
changed: a scan stores a listing only when nothing in it is new."""
SUMMARIES_PER_TICK = 20
"""Max sources per tick requested only for summaries: a recovering LLM is not overloaded."""
MACHINE_TAG = "anamnesis/machine"
QUICK_LOOK_S = 10.0
"""Seconds that a quick scan waits for its machines; later answers are used by the next scan."""
_QUICK_FLIGHTS = Flights[Answer]()
"""Separate: a machine that hangs in `crawl_sensor` must not delay quick scans."""


CRAWL_S = AT_LOAD.crawl_interval_s
"""Seconds between ticks of `crawl_sensor`."""
STARTED = datetime.now(UTC)
"""When this process loaded the code: at startup, or at its reload after a change of settings."""
CRAWLED_AT = "crawl.tick"
"""Setting with the time of the last crawl of all machines (ISO 8601)."""
HOURLY_CHECK = HourlyCheck(AT_LOAD, STARTED, is_complete=IS_COMPLETE)


@dg.sensor(
    jobs=[ingest, finish_posted],
    minimum_interval_seconds=CRAWL_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=tagged("ingest"),
    **owned(dg.sensor),
    description="Looks at all machines, adds new sources, and ingests those with something new or left half done.",
)
def crawl_sensor(context: dg.SensorEvaluationContext, memory: MemoryResource) -> dg.SensorResult:
    """Crawl the sources without a shorter interval."""
    return _crawl(context, memory)


def _crawl(context: dg.SensorEvaluationContext, memory: MemoryResource) -> dg.SensorResult:
    """Scan the due machines in parallel, add new sources, and request `ingest` for sources with changes or unfinished
    work. An unreachable machine is reported and delays no other. A removed source without ingested data loses its
    partition. The cursor is the stale sources.

    Once an hour it also checks the definitions' settings, and the daily ingest (`HourlyCheck`).
    """
    now = datetime.now(UTC)
    memory.store.settings.set(CRAWLED_AT, now.isoformat())
    found = look(memory.crawler, now, next_tick_s=CRAWL_S)
    for problem in found.problems:
        context.log.warning(problem)
    unfinished = memory.store.parts.unfinished_sources(now - timedelta(minutes=memory.settings.idle_minutes))
    unfinished |= sources_asked_again(memory.store)
    to_summarize = sources_to_summarize(memory.store, now) - unfinished
    is_posted_left = is_forgetting(memory.store) or not (unfinished | to_summarize).isdisjoint(RESERVED_SOURCES)
    crawled = {source.key: source for source in memory.store.files.log_sources()}
    unfinished, to_summarize = unfinished & crawled.keys(), to_summarize & crawled.keys()
    keys = [source.key for source in found.sources]
    known = context.instance.get_dynamic_partitions(str(SOURCES.name))
    added = new_keys(known, [*sorted(unfinished), *sorted(to_summarize), *keys])
    running = _running_sources(context.instance)
    left = set(new_keys([*keys, *unfinished, *to_summarize, *running], known))
    dropped = [key for key in sorted(left) if not _has_a_past(memory, crawled.get(key))]
    changed = [key for key in found.changed if key not in unfinished]
    summarized_too = sorted(to_summarize - running - set(changed))[:SUMMARIES_PER_TICK]
    wanted = [*sorted(unfinished - running), *_drawn(set(changed) - running), *summarized_too]
    missed = {
        key: run_key for key, run_key in HOURLY_CHECK.missed_ingest(memory, now, context.log).items() if key in known
    }
    wanted += sorted(missed.keys() - running - set(wanted))
    stale, events = _told_freshness(memory, context.cursor)
    going = dg.RunsFilter(job_name=finish_posted.name, statuses=UNFINISHED_STATUSES)
    is_finishing_due = is_posted_left and not has_run(context.instance, going)
    finishing = [dg.RunRequest(job_name=finish_posted.name)] if is_finishing_due else []
    if not wanted and not added and not dropped and not finishing:
        reason = _why_nothing(len(crawled), len(running), found.problems)
        return dg.SensorResult(skip_reason=reason, cursor=stale, asset_events=events)
    machines = {source.key: source.machine for source in memory.store.files.sources()}
    requests = [_ingest_request(key, machines.get(key, ""), missed.get(key)) for key in wanted]
    changes: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = [
        SOURCES.build_add_request(added)
    ]
    if dropped:
        changes.append(SOURCES.build_delete_request(dropped))
    return dg.SensorResult(
        run_requests=[*requests, *finishing], dynamic_partitions_requests=changes, cursor=stale, asset_events=events
    )


@dg.sensor(
    jobs=[ingest, finish_posted],
    minimum_interval_seconds=MIN_INTERVAL_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=tagged("ingest"),
    **owned(dg.sensor),
    description="Looks at the sources with a shorter interval than crawl_sensor has, and ingests those with news. "
    "After a start it looks at all sources once, ahead of crawl_sensor.",
)
def quick_crawl_sensor(context: dg.SensorEvaluationContext, memory: MemoryResource) -> dg.SensorResult | dg.SkipReason:
    """Scan only the sources with a shorter interval than `crawl_sensor`, each at its interval, effective from its
    change. Without such sources no machine is contacted.

    Dagster keeps the last tick's time over a restart, so `crawl_sensor` could come CRAWL_S after a start with other log
    roots. The first tick in a new process crawls in its place, unless its own tick is due as well.
    """
    if _is_ahead(memory):
        return _crawl(context, memory)
    crawler = memory.crawler
    quick = [spec for spec in crawler.specs if crawler.interval_of(spec) < CRAWL_S]
    if not quick:
        return dg.SkipReason(f"No source is to be looked at more often than every {CRAWL_S} s.")
    theirs = replace(crawler, hosts=replace(crawler.hosts, specs=quick), flights=_QUICK_FLIGHTS)
    found = look(theirs, datetime.now(UTC), budget_s=QUICK_LOOK_S, next_tick_s=MIN_INTERVAL_S)
    for problem in found.problems:
        context.log.warning(problem)
    running = _running_sources(context.instance)
    wanted = _drawn(set(found.changed) - running)
    if not wanted:
        return dg.SkipReason(_why_nothing(len(quick), len(running), found.problems))
    added = new_keys(context.instance.get_dynamic_partitions(str(SOURCES.name)), wanted)
    machines = {source.key: source.machine for source in found.sources}
    return dg.SensorResult(
        run_requests=[_ingest_request(key, machines.get(key, "")) for key in wanted],
        dynamic_partitions_requests=[SOURCES.build_add_request(added)],
    )


def _is_ahead(memory: MemoryResource) -> bool:
    """Return whether the last crawl was by an earlier process and `crawl_sensor` is not due yet."""
    crawled_at = memory.store.settings.get(CRAWLED_AT)
    if crawled_at is None:
        return False
    at = datetime.fromisoformat(crawled_at)
    return at < STARTED and datetime.now(UTC) < at + timedelta(seconds=CRAWL_S - MIN_INTERVAL_S)


def _drawn(keys: set[str]) -> list[str]:
    return sorted(random.sample(sorted(keys), min(CHANGED_PER_TICK, len(keys))))


def _told_freshness(memory: MemoryResource, told: str | None) -> tuple[str, list[dg.AssetCheckEvaluation]]:
    """Return the stale sources, and the check's result if they changed: without readable sources no run reports it."""
    result = freshness(memory)
    stale = str(result.metadata["stale"].value)
    if stale == (told or "none"):
        return stale, []
    return stale, [evaluation(sources_are_fresh.check_key, result)]


def _has_a_past(memory: MemoryResource, source: Source | None) -> bool:
    """Return whether a missing source keeps its partition: it is configured, or has ingested files."""
    if source is None:
        return False
    return (
        spec_of_source(source, memory.crawler.specs) is not None or memory.store.overview.counts(source.key).files > 0
    )


def _ingest_request(key: str, machine: str, run_key: str | None = None) -> dg.RunRequest:
    tags = {MACHINE_TAG: machine} if machine else {}
    return dg.RunRequest(job_name=ingest.name, run_key=run_key, partition_key=key, tags=tags)


def _why_nothing(sources: int, running: int, problems: Collection[str]) -> str:
    busy = f"; {counted(running, 'is', 'are')} being ingested" if running else ""
    return f"Nothing new in {counted(sources, 'source')}{busy}." + "".join(f" {problem}" for problem in problems)


def _running_sources(instance: dg.DagsterInstance) -> set[str]:
    records = instance.get_run_records(dg.RunsFilter(job_name=ingest.name, statuses=UNFINISHED_STATUSES))
    return {record.dagster_run.tags.get("dagster/partition", "") for record in records}

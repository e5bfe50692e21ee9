"""What starts work: the crawl every `crawl_interval_s`, and embedding whatever the store says is missing."""

import json
import time
from collections.abc import Collection, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import dagster as dg

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.defs.jobs import embed, index, ingest
from anamnesis_pipeline.defs.partitions import EMBED_TAG, SOURCE_TAG, SOURCES, SPACES, contiguous_runs, embed_key
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES
from anamnesis_pipeline.errors import AnamnesisError, SourceUnreadable
from anamnesis_pipeline.model import RESERVED_SOURCES, Space
from anamnesis_pipeline.steps.crawl import source_changed
from anamnesis_pipeline.wiring import discover_sources, effective_settings, open_store, wanted_space

TICK_S = 30.0
"""A tick lists for at most this long; what it did not reach comes first in the next one."""
SOURCES_PER_RUN = 50
INGEST_MAX_S = 7_200
"""After so long Dagster takes an `ingest` run for dead: a run that lost its process would hold its source for ever. One
that was still alive is requested again and goes on where it was."""
REINDEX_AFTER = 5_000
"""New vectors after which the index file is looked at again; below that the exact scan of what is new is fast."""


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
    """Lists the log roots, adds new sources, and requests `ingest` for sources with something new."""
    discovery = discover_sources(memory.settings)
    for problem in discovery.problems:
        context.log.warning(problem)
    memory.store.ingest.put_sources(discovery.sources)
    idle_since = datetime.now(UTC) - timedelta(minutes=memory.settings.idle_minutes)
    unfinished = memory.store.ingest.unfinished_sources(idle_since)
    found = sorted(source.key for source in discovery.sources)
    new_keys = _new_keys(context, SOURCES.name, [*RESERVED_SOURCES, *sorted(unfinished), *found])
    running = _running_sources(context.instance)
    changed, last = _changed_sources(context, memory, [key for key in found if key not in unfinished])
    requests = [_ingest_request(key) for key in [*sorted(unfinished), *changed] if key not in running]
    if not requests and not new_keys:
        return dg.SensorResult(skip_reason=_why_nothing(len(found), len(running), discovery.problems), cursor=last)
    return dg.SensorResult(
        run_requests=requests, dynamic_partitions_requests=[SOURCES.build_add_request(new_keys)], cursor=last
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
        return source_changed(memory.store, memory.pipeline.host, memory.source(key))
    except SourceUnreadable as problem:
        context.log.warning(str(problem))
        return False


def _rotated(keys: list[str], after: str | None) -> list[str]:
    """`keys`, beginning behind `after`."""
    start = next((n for n, key in enumerate(keys) if after is not None and key > after), 0)
    return keys[start:] + keys[:start]


def _ingest_request(key: str) -> dg.RunRequest:
    return dg.RunRequest(partition_key=key, tags={SOURCE_TAG: key, "dagster/max_runtime": str(INGEST_MAX_S)})


def _why_nothing(sources: int, running: int, problems: Collection[str]) -> str:
    busy = f"; {running} are being ingested" if running else ""
    return f"Nothing new in {sources} sources{busy}." + "".join(f" {problem}" for problem in problems)


def _running_sources(instance: dg.DagsterInstance) -> set[str]:
    runs = instance.get_runs(dg.RunsFilter(job_name=ingest.name, statuses=UNFINISHED_STATUSES))
    return {run.tags.get("dagster/partition", "") for run in runs}


def _new_keys(context: dg.SensorEvaluationContext, partitions: str | None, keys: Iterable[str]) -> list[str]:
    known = set(context.instance.get_dynamic_partitions(str(partitions)))
    return [key for key in dict.fromkeys(keys) if key not in known]


@dg.sensor(
    jobs=[embed, index],
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Embeds what the store says is missing, then indexes the space once nothing is.",
)
def embed_sensor(context: dg.SensorEvaluationContext, memory: MemoryResource) -> dg.SensorResult | dg.SkipReason:
    """Asks the store which spaces miss vectors; requests `embed` for many sources at once, then `index`."""
    try:
        wanted: Space | None = wanted_space(memory.settings, memory.store)
    except AnamnesisError as exc:
        wanted = None
        context.log.warning(str(exc))
    known = memory.store.spaces.all()
    spaces = [space for space in known if space.status in ("active", "building") or space == wanted]
    new_sources = _new_keys(context, SOURCES.name, (source.key for source in memory.store.ingest.sources()))
    new_spaces = _new_keys(context, SPACES.name, (space.key for space in spaces))
    additions = [SOURCES.build_add_request(new_sources), SPACES.build_add_request(new_spaces)]
    indexed: dict[str, int] = json.loads(context.cursor or "{}")
    requests: list[dg.RunRequest] = []
    if not _busy(context.instance, embed.name) and not _busy(context.instance, index.name):
        order = [*context.instance.get_dynamic_partitions(str(SOURCES.name)), *new_sources]
        requests = _requests(memory, spaces, order, indexed)
    if not requests and not new_spaces and not new_sources:
        return dg.SkipReason("Nothing lacks a vector, or a run that adds them is still going.")
    return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=additions, cursor=json.dumps(indexed))


def _busy(instance: dg.DagsterInstance, job: str) -> bool:
    return instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED_STATUSES)) > 0


def _requests(
    memory: MemoryResource, spaces: list[Space], order: list[str], indexed: dict[str, int]
) -> list[dg.RunRequest]:
    """`embed` where vectors are missing; `index`, noted in `indexed`, where none is and enough is new."""
    requests = []
    for space in spaces:
        pending = memory.store.vectors.pending_sources(space.key)
        if pending:
            runs = contiguous_runs(order, set(pending), SOURCES_PER_RUN)
            requests += [_embed_request(first, last, space.key) for first, last in runs]
            continue
        count = memory.store.vectors.count(space.key)
        seen = indexed.get(space.key)
        if count and (seen is None or space.status == "building" or abs(count - seen) >= REINDEX_AFTER):
            requests.append(dg.RunRequest(job_name=index.name, partition_key=space.key))
            indexed[space.key] = count
    return requests


def _embed_request(first: str, last: str, space: str) -> dg.RunRequest:
    tags = {
        "dagster/asset_partition_range_start": embed_key(first, space),
        "dagster/asset_partition_range_end": embed_key(last, space),
        EMBED_TAG: space,
    }
    return dg.RunRequest(job_name=embed.name, tags=tags)

"""Asset: searchable episodes."""

import time

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, counted, per_second, table, watermark
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.services.dagster.runs import EPISODES_WRITTEN

LATEST = 5


@dg.asset(partitions_def=SOURCES, deps=["exchanges", "documents", "summaries"], group_name="memory", kinds={"python"})
def episodes(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """Part, summary and passages joined into episodes; found by their words as soon as they are written."""
    started = time.perf_counter()
    report = memory.pipeline.publish(memory.source(context.partition_key))
    if report.problem:
        context.log.warning(report.problem)
    seconds = time.perf_counter() - started
    counts = memory.store.overview.counts(context.partition_key)
    latest = memory.store.episodes.page(EpisodeFilter(source=context.partition_key), LATEST).items
    put = {name: getattr(report.put, name) for name in ("created", "updated", "unchanged", "tombstoned")}
    return dg.MaterializeResult(
        data_version=watermark(counts, "episodes", "passages", "summaries"),
        metadata={
            ROWS: counts.episodes,
            "episodes": counted(put),
            EPISODES_WRITTEN: report.put.created + report.put.updated,
            "written per second": per_second(report.put.created + report.put.updated, seconds),
            "typed records": report.records,
            "passages written": report.passages,
            "superseded by another text": report.settled.superseded,
            "retired, since their section is gone": report.settled.retired,
            "current again": report.settled.revived,
            "problem": report.problem or "none",
            "episodes in all": counts.episodes,
            "passages in all": counts.passages,
            # no text: forgotten content would stay in Dagster's storage
            "latest": table([{"when": f"{e.timestamp:%Y-%m-%d %H:%M}", "id": e.episode_id} for e in latest]),
        },
    )

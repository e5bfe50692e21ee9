"""Asset: the things that sessions, notes and documents touch or name."""

import time

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, per_second, watermark
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.entities.linking import link
from anamnesis_pipeline.model import RESERVED_SOURCES


@dg.asset(partitions_def=SOURCES, deps=["episodes"], group_name="knowledge", kinds={"python"})
def entities(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """Files edited, commands with their outcome, errors with what ended them, and what texts name, by episode. Every
    run also reads what was posted.
    """
    started = time.perf_counter()
    report = link(memory.store, [context.partition_key, *RESERVED_SOURCES])
    counts = memory.store.overview.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "episodes"),
        metadata={
            ROWS: report.mentions,
            "read": report.read,
            "read per second": per_second(report.read, time.perf_counter() - started),
            "waiting in all sources": report.waiting,
        },
    )


@dg.asset_check(asset=entities, description="The things of every session, note and text that changed are found.")
def every_thing_is_found(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of what waits for the next run."""
    waiting = memory.store.entities.unlinked_count()
    return dg.AssetCheckResult(passed=not waiting, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})

"""Asset: one summary per closed part."""

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import watermark
from anamnesis_pipeline.defs.resources import MemoryResource


@dg.asset(partitions_def=SOURCES, deps=["exchanges"], group_name="ingest", kinds={"python"})
def summaries(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """A few sentences on each closed part that has none for its present text."""
    report = memory.pipeline.summarize_parts(memory.source(context.partition_key))
    counts = memory.store.ingest.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "parts", "open_parts", "summaries"),
        metadata={
            "written": report.written,
            "summarizer": report.model,
            "summaries in all": counts.summaries,
            "parts in all": counts.parts,
            "parts still open": counts.open_parts,
        },
    )

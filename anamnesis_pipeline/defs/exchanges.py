"""Asset: archived lines as exchanges, cut into parts."""

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import counted, per_second, watermark
from anamnesis_pipeline.defs.resources import MemoryResource


@dg.asset(partitions_def=SOURCES, deps=["crawled_files"], group_name="ingest", kinds={"python"})
def exchanges(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """Messages, each counted once whatever copies exist, grouped by the prompt they answer and cut at seams."""
    report = memory.pipeline.parse(memory.source(context.partition_key))
    counts = memory.store.ingest.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "messages", "exchanges", "parts", "open_parts", "unparsed_lines"),
        metadata={
            "new messages": report.messages,
            "copies of known messages": report.duplicates,
            "parts written": report.parts,
            "exchanges touched": report.exchanges,
            "parts closed": report.closed,
            "lines": report.lines,
            "lines per second": per_second(report.lines, report.seconds),
            "malformed lines": report.malformed,
            "left out on purpose": counted(report.skipped),
            "exchanges in all": counts.exchanges,
            "parts in all": counts.parts,
        },
    )

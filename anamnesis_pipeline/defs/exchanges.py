"""Asset: archived lines as exchanges, split into chunks."""

from dataclasses import asdict

import dagster as dg
from pydantic import Field

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, counted, per_second, watermark
from anamnesis_pipeline.defs.resources import MemoryResource, SshResource
from anamnesis_pipeline.pipeline.parse_again import ask_again

PARSE_AGAIN_TAG = "anamnesis/parse_again"
"""Tag of a run or backfill; the value `true` equals the configuration `parse_again`."""


class ExchangesConfig(dg.Config):
    """What a run may be told from the launchpad."""

    parse_again: bool = Field(
        default=False,
        description="Parse what is archived of the source again from its first line, e.g. after an upgrade.",
    )


@dg.asset(partitions_def=SOURCES, deps=["crawled_files"], group_name="ingest", kinds={"python"})
def exchanges(
    context: dg.AssetExecutionContext, config: ExchangesConfig, memory: MemoryResource, ssh: SshResource
) -> dg.MaterializeResult[None]:
    """Messages, each counted once even if copies exist, grouped by the prompt they answer and split at boundaries.

    A materialization parses lines that are new in the archive. To parse everything of a source again, e.g. after an
    upgrade, materialize or backfill it with the tag `anamnesis/parse_again: true` (or the configuration
    `parse_again: true`), then `summaries` and `episodes`. What is read as before keeps its ids, vectors and marks.
    """
    if config.parse_again or context.run.tags.get(PARSE_AGAIN_TAG) == "true":
        ask_again(memory.store, context.partition_key)
    report = ssh.pipeline(memory).parse(memory.source(context.partition_key))
    again = report.again
    counts = memory.store.overview.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "messages", "exchanges", "parts", "open_parts", "unparsed_lines"),
        metadata={
            ROWS: counts.parts,
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
            **({f"parsed again: {name}": count for name, count in asdict(again).items()} if again else {}),
        },
    )

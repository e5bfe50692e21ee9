"""Asset: one summary per closed chunk."""

import time
from collections.abc import Mapping

import dagster as dg
from pydantic import Field

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, per_second, watermark
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource
from anamnesis_pipeline.services.dagster.runs import AUTOMATIC_TAG

AUTOMATIC_TAGS = frozenset(
    {
        "dagster/sensor_name",
        "dagster/schedule_name",
        "dagster/auto_materialize",
        "dagster/from_automation_condition",
        AUTOMATIC_TAG,
    }
)
"""Tags of runs that no person started."""
AGAIN_TAG = "anamnesis/summarize_again"
"""Tag of a run or backfill; the value `true` equals the configuration `again`."""


class SummariesConfig(dg.Config):
    """What a run may be told from the launchpad."""

    again: bool = Field(default=False, description="Summarize again what has a summary, with the LLM that is set now.")
    project: str = Field(default="", description="Only parts of this project. Empty: of all in the source.")


def is_by_hand(tags: Mapping[str, str]) -> bool:
    """Return whether a person started the run: a paid LLM then needs no budget."""
    return not AUTOMATIC_TAGS & tags.keys()


@dg.asset(partitions_def=SOURCES, deps=["exchanges", "documents"], group_name="ingest", kinds={"python"})
def summaries(
    context: dg.AssetExecutionContext, config: SummariesConfig, memory: MemoryResource, llm: LlmResource
) -> dg.MaterializeResult[None]:
    """A few sentences on each closed part that has none for its present text: by the LLM of the setting `summarizer`
    where the part is worth it, else by picking telling sentences.

    To make all summaries of a source or project again with the present LLM, materialize or backfill it with the tag
    `anamnesis/summarize_again: true` (or the configuration `again: true`), then `episodes`. The budget of the LLM
    counts, a reply that it gave to the same prompt is taken from the cache, and each summary stays until its successor
    is made. What the budget or `max_exchanges_per_run` leaves is done by later runs.
    """
    started = time.perf_counter()
    record = context.instance.get_run_record_by_id(context.run.run_id)
    report = llm.pipeline(memory).summarize_parts(
        memory.source(context.partition_key),
        again=config.again or context.run.tags.get(AGAIN_TAG) == "true",
        project=config.project or None,
        by_hand=is_by_hand(context.run.tags),
        asked_at=record.create_timestamp if record else None,
        limit=memory.settings.max_exchanges_per_run or None,
    )
    if report.problem:
        context.log.warning(f"{report.counts.get('flagged', 0)} summaries are put off: {report.problem}")
    counts, seconds = memory.store.overview.counts(context.partition_key), time.perf_counter() - started
    return dg.MaterializeResult(
        data_version=watermark(counts, "parts", "open_parts", "summaries"),
        metadata={
            ROWS: counts.summaries,
            "written": report.written,
            "written per second": per_second(report.written, seconds),
            "summarizer": report.model if report.looked_at else "not asked: no part waits",
            "LLM calls": report.used.calls,
            "cached": report.counts.get("cached", 0),
            "tokens in": report.used.input_tokens,
            "tokens out": report.used.output_tokens,
            "dollars": round(report.used.dollars, 6),
            "flagged": report.counts.get("flagged", 0),
            "in a batch": report.counts.get("in a batch", 0),
            "short": report.counts.get("short", 0),
            "low value": report.counts.get("low value", 0),
            "nothing worth remembering": report.counts.get("skipped", 0),
            "private": report.counts.get("private", 0),
            "problem": report.problem or "none",
            "summaries in all": counts.summaries,
            "parts in all": counts.parts,
            "parts still open": counts.open_parts,
        },
    )

"""Content without a log: external assets that `embed_sensor` reports, and the job for unfinished work."""

from collections.abc import Iterator, Mapping

import dagster as dg

from anamnesis_pipeline.defs.reporting import ROWS, owned, tagged, versioned
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource
from anamnesis_pipeline.defs.summaries import is_by_hand
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.services.dagster.api import POSTED_ASSETS
from anamnesis_pipeline.services.dagster.runs import POSTED_JOB
from anamnesis_pipeline.store.records.overview import SourceState

_DESCRIPTIONS = (
    "Episodes that clients post: the MCP tool `remember`, `POST /api/episodes`, `POST /memory/ingest`.",
    "Sections of files and web pages that people upload: `anamnesis upload`, `POST /api/uploads`.",
    "Questions and answers of the page Chat that are kept as episodes.",
)
"""Descriptions of `POSTED_ASSETS`, in order."""


def posted_news(instance: dg.DagsterInstance, held: Mapping[str, SourceState]) -> Iterator[dg.AssetMaterialization]:
    """Yield a materialization for each asset whose data version differs from Dagster's.

    :param held: contents of the store, by source.
    """
    for source, spec in POSTED.items():
        state = held.get(source)
        version = f"episodes:{state.episodes}-newest:{state.newest.isoformat()}" if state else "episodes:0"
        known = instance.get_latest_materialization_event(spec.key)
        told = known.asset_materialization if known is not None else None
        if told is not None and versioned(version).items() <= (told.tags or {}).items():
            continue
        newest = {"newest": dg.MetadataValue.timestamp(state.newest)} if state else {"state": "nothing is stored yet"}
        yield dg.AssetMaterialization(
            spec.key,
            metadata={ROWS: state.episodes if state else 0, **newest},
            tags=versioned(version),
        )


_REPORTED_BY = dg.LocalFileCodeReference(
    file_path=__file__, line_number=posted_news.__code__.co_firstlineno, label="posted_news"
)
POSTED = {
    source: dg.AssetSpec(
        name,
        description=f"{description} The service stores and searches them at once; Dagster only learns of them, at most "
        "30 seconds later. One materialization stands for everything stored since the one before.",
        group_name="posted",
        metadata={"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[_REPORTED_BY])},
    )
    for (source, name), description in zip(POSTED_ASSETS.items(), _DESCRIPTIONS, strict=True)
}
"""Reserved source -> its asset."""


@dg.op
def forget_the_rest(memory: MemoryResource) -> bool:
    """Remove what an interrupted `anamnesis forget` had begun with; whether there was any."""
    return memory.pipeline.forgetter().resume()


@dg.op
def summarize_posted(context: dg.OpExecutionContext, memory: MemoryResource, llm: LlmResource, forgot: bool) -> None:
    """Summarize the sections of uploads that have no summary yet, and publish what a stopped service left."""
    if forgot:
        context.log.info("finished to forget what an earlier run had begun with")
    pipeline = llm.pipeline(memory)
    for key in RESERVED_SOURCES:
        source = memory.source(key)
        pipeline.parse_documents(source)
        report = pipeline.summarize_parts(
            source, by_hand=is_by_hand(context.run.tags), limit=memory.settings.max_exchanges_per_run or None
        )
        published = pipeline.publish(source).put
        context.log.info(f"{key}: {report.written} summaries written, {published.updated} episodes updated")
        if report.problem:
            context.log.warning(f"{key}: {report.counts.get('flagged', 0)} summaries are put off: {report.problem}")


@dg.job(
    name=POSTED_JOB,
    description="Do what is left of text without a log: summaries of uploads, what a stopped service had begun to "
    "store, and what was being forgotten when something died.",
    tags=tagged("posted"),
    **owned(dg.job),
)
def finish_posted() -> None:
    """Has no partitions: what is forgotten may be of several sources, or of none."""
    summarize_posted(forget_the_rest())

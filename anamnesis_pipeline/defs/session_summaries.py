"""Asset: one record per session."""

import dagster as dg

from anamnesis_pipeline.defs.kinds import STORE_KIND
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import watermark
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.session_model import SESSION_KIND


@dg.asset(partitions_def=SOURCES, deps=["episodes"], group_name="memory", kinds={STORE_KIND})
def session_summaries(
    context: dg.AssetExecutionContext, memory: MemoryResource, llm: LlmResource
) -> dg.MaterializeResult[None]:
    """One record per session that has ended or been idle, joined over resumes, forks and compactions: what was asked,
    done, decided and left. A session that goes on gets a revision.
    """
    report = llm.pipeline(memory).summarize_sessions(memory.source(context.partition_key))
    if report.problem:
        context.log.warning(f"sessions have no summary by the LLM: {report.problem}")
    of_sessions = Where(source=context.partition_key, kinds=(SESSION_KIND,))
    counts = memory.store.ingest.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "episodes", "passages"),
        metadata={
            "written": report.written,
            "revised, since the session went on": report.revised,
            "changed in place": report.changed,
            "unchanged": report.unchanged,
            "sessions that are not at rest": report.waiting,
            "problem": report.problem or "none",
            "sessions in all": memory.store.episodes.count(of_sessions),
        },
    )

"""Asset: one record per session."""

import time

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, per_second, watermark
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.session_model import SESSION_KIND


@dg.asset(partitions_def=SOURCES, deps=["episodes"], group_name="memory", kinds={"python"})
def session_summaries(
    context: dg.AssetExecutionContext, memory: MemoryResource, llm: LlmResource
) -> dg.MaterializeResult[None]:
    """One record per session that has ended or been idle, joined over resumes, forks and compactions: what was asked,
    done, decided and left. A session that goes on gets a revision.
    """
    started = time.perf_counter()
    report = llm.pipeline(memory).summarize_sessions(memory.source(context.partition_key))
    if report.problem:
        context.log.warning(f"sessions have no summary by the LLM: {report.problem}")
    seconds = time.perf_counter() - started
    of_sessions = EpisodeFilter(source=context.partition_key, kinds=(SESSION_KIND,))
    sessions = memory.store.episodes.count(of_sessions)
    counts = memory.store.overview.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "episodes", "passages"),
        metadata={
            ROWS: sessions,
            "written": report.written,
            "written per second": per_second(report.written + report.revised + report.changed, seconds),
            "revised, since the session went on": report.revised,
            "changed in place": report.changed,
            "unchanged": report.unchanged,
            "sessions that are not at rest": report.waiting,
            "problem": report.problem or "none",
            "sessions in all": sessions,
        },
    )

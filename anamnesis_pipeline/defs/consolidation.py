"""Asset: the last consolidation within sessions."""

import dagster as dg

from anamnesis_pipeline.defs.reporting import ROWS, per_second
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.pipeline.consolidation import consolidate_sessions, stats_of


@dg.asset(deps=["embeddings"], group_name="memory", kinds={"python"})
def consolidation_report(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """Consolidate the sessions with new episodes: an episode that a later one of its session repeats is superseded."""
    report = consolidate_sessions(memory.store, memory.settings.consolidate_cosine)
    if report.problem:
        context.log.warning(report.problem)
    counts = memory.store.consolidation.counts()
    return dg.MaterializeResult(
        data_version=dg.DataVersion("-".join(f"{name}:{count}" for name, count in counts.items())),
        metadata={ROWS: sum(counts.values()), "episodes per second": per_second(report.episodes, report.seconds)}
        | stats_of(report)
        | {f"{name} in all": count for name, count in counts.items()},
    )

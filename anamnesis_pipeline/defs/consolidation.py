"""Asset: what consolidation within sessions did last."""

import dagster as dg

from anamnesis_pipeline.defs.kinds import STORE_KIND
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.steps.consolidation import consolidate_sessions, stats_of


@dg.asset(deps=["embeddings"], group_name="memory", kinds={STORE_KIND})
def consolidation_report(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """Sessions in which something changed, settled: what a later episode repeats is superseded by it."""
    report = consolidate_sessions(memory.store, memory.settings.consolidate_cosine)
    if report.problem:
        context.log.warning(report.problem)
    counts = memory.store.consolidation.counts()
    return dg.MaterializeResult(
        data_version=dg.DataVersion("-".join(f"{name}:{count}" for name, count in counts.items())),
        metadata=stats_of(report) | {f"{name} in all": count for name, count in counts.items()},
    )

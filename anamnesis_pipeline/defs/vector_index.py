"""Asset: a space's search index, and the switch to a space that is complete."""

import dagster as dg

from anamnesis_pipeline.defs.partitions import SPACES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.steps.spaces import index_space


@dg.asset(partitions_def=SPACES, deps=["embeddings"], group_name="memory", kinds={"usearch"})
def vector_index(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """The index file of a space, rebuilt when too much is new or dead. A new space goes live here, once complete."""
    report = index_space(memory.store, context.partition_key)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(f"vectors:{report.index.vectors}-indexed:{report.index.indexed}"),
        metadata={
            "vectors": report.index.vectors,
            "in the index file": report.index.indexed,
            "dead in the index file": report.index.dead,
            "rebuilt": report.index.rebuilt,
            "seconds": round(report.index.seconds, 2),
            "active": report.active,
            "switched to it now": report.switched,
        },
    )

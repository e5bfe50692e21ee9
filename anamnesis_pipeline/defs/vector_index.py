"""Asset: a space's search index, and the switch to a complete space."""

import dagster as dg

from anamnesis_pipeline.defs.canceled import end_as_canceled
from anamnesis_pipeline.defs.partitions import SPACES
from anamnesis_pipeline.defs.reporting import INDEX_KIND, ROWS, per_second
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.embeddings.cores import Priority, run_ranked
from anamnesis_pipeline.errors import SpaceNotFound
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.pipeline.index import RECALL_FLOOR, index_space, known_space
from anamnesis_pipeline.pipeline.reembed_state import is_paused
from anamnesis_pipeline.services.wiring import configured_cores
from anamnesis_pipeline.store.contracts import IndexReport

RECALL_CHECK = "index_recall"


@dg.asset(
    partitions_def=SPACES,
    deps=["embeddings"],
    group_name="memory",
    kinds={INDEX_KIND},
    check_specs=[
        dg.AssetCheckSpec(
            RECALL_CHECK,
            asset="vector_index",
            description=f"Searches find at least {RECALL_FLOOR:.0%} of the ten nearest that an exact scan finds, "
            "and by the index.",
        )
    ],
)
def vector_index(
    context: dg.AssetExecutionContext, memory: MemoryResource, embedding_pool: EmbeddingPoolResource
) -> dg.MaterializeResult:  # type: ignore[type-arg]  # with a check, Dagster reads no parameter
    """The search index of a space, updated when enough vectors are new or deleted. A space that is complete begins to
    answer searches here.
    """
    key, settings = context.partition_key, embedding_pool.settings(memory)

    def embed_rest() -> None:
        if is_paused(memory.store):
            return
        pending = memory.store.vectors.pending_sources(key)
        with embedding_pool.open(memory, known_space(memory.store, key)) as pool:
            embed_sources(
                memory.store,
                key,
                list(pending),
                pool,
                settings.checkpoint_every,
                should_pause=lambda: is_paused(memory.store),
            )

    def build(force: bool) -> IndexReport:
        cores = configured_cores(settings)
        return run_ranked(lambda: memory.store.vectors.build(key, force=force), cores, Priority.BACKGROUND)

    try:
        report = index_space(
            memory.store,
            key,
            embed_rest=embed_rest,
            build=build,
            switch=settings.switch == "auto",
            wanted_model=memory.settings.model,
        )
    except SpaceNotFound as exc:
        end_as_canceled(context, memory, f"{exc}. It was dropped meanwhile, or add it with: anamnesis model add")
    return dg.MaterializeResult(
        data_version=dg.DataVersion(f"vectors:{report.index.vectors}-indexed:{report.index.indexed}"),
        metadata={
            ROWS: report.index.vectors,
            "status": "READY",  # a build ends only once the index can be searched
            "dimensions": known_space(memory.store, key).dim,
            "similarity": "cosine",
            "passages": report.passages,
            "passages without a vector": report.missing,
            "vectors": report.index.vectors,
            "in the index": report.index.indexed,
            "dead in the index": report.index.dead,
            "rebuilt": report.index.rebuilt,
            "seconds": round(report.index.seconds, 2),
            "vectors per second": per_second(report.index.vectors, report.index.seconds),
            "recall at 10": round(report.recall, 4),
            "active": report.active,
            "switched to it now": report.switched,
            "waits for a yes": report.waits,
        },
        check_results=[
            dg.AssetCheckResult(
                check_name=RECALL_CHECK,
                passed=report.recall >= RECALL_FLOOR and not report.state.problem,
                severity=dg.AssetCheckSeverity.WARN,
                description=report.state.problem or None,
                metadata={
                    "space": key,
                    "recall at 10": round(report.recall, 4),
                    "recall of the index": round(
                        report.recall if report.state.recall is None else report.state.recall, 4
                    ),
                    "passages": report.passages,
                },
            )
        ],
    )

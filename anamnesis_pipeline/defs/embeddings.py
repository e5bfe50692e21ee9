"""Asset: vectors of passages, one partition per source and embedding space."""

from collections import defaultdict

import dagster as dg

from anamnesis_pipeline.defs.partitions import SPACE_BY_SOURCE, split_embed_key
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.steps.embeddings import EmbedReport, embed_source

OBSERVE_EVERY_S = 5.0
"""Seconds between two progress events; one costs some 45 ms of Dagster's storage."""
PARTITIONS_PER_RUN = 50


@dg.asset(
    partitions_def=SPACE_BY_SOURCE,
    deps=["episodes"],
    group_name="memory",
    kinds={"pytorch"},
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=PARTITIONS_PER_RUN),
)
def embeddings(
    context: dg.AssetExecutionContext, memory: MemoryResource, embedding_pool: EmbeddingPoolResource
) -> None:
    """Vectors for the passages of a source that have none in a space; a checkpoint every 25 episodes."""
    by_space: dict[str, list[str]] = defaultdict(list)
    for key in context.partition_keys:
        source, space_key = split_embed_key(key)
        by_space[space_key].append(source)
    spaces = {space.key: space for space in memory.store.spaces.all()}
    for space_key, sources in by_space.items():
        if space_key not in spaces:
            raise dg.Failure(f"no space {space_key!r} in the store; spaces are added by choosing a model")
        space = spaces[space_key]
        lacking = memory.store.vectors.pending_sources(space.key).keys() & set(sources)
        for source in set(sources) - lacking:
            _report(context, source, space, EmbedReport(0, 0, 0, 0.0))
        if lacking:
            with embedding_pool.open(memory.settings, space) as pool:
                for source in sorted(lacking):
                    _report(context, source, space, _embed(context, memory, pool, space, source))


def _embed(
    context: dg.AssetExecutionContext, memory: MemoryResource, pool: PinnedPool, space: Space, source: str
) -> EmbedReport:
    total = memory.store.vectors.pending_sources(space.key).get(source, 0)
    next_event = OBSERVE_EVERY_S

    def observe(report: EmbedReport) -> None:
        nonlocal next_event
        if report.seconds < next_event:
            return
        next_event = report.seconds + OBSERVE_EVERY_S
        context.log_event(
            dg.AssetObservation(
                asset_key=context.asset_key,
                partition=f"{source}|{space.key}",
                metadata={"done": report.passages, "total": total, "per second": round(report.passages_per_s, 1)},
            )
        )

    return embed_source(memory.store, space, source, pool, memory.settings.checkpoint_every, observe)


def _report(context: dg.AssetExecutionContext, source: str, space: Space, report: EmbedReport) -> None:
    context.add_asset_metadata(
        {
            "episodes": report.episodes,
            "passages": report.passages,
            "vectors": report.vectors,
            "passages per second": round(report.passages_per_s, 1),
            "model": space.model_id,
            "dimensions": space.dim,
            "precision": space.precision,
        },
        partition_key=f"{source}|{space.key}",
    )

"""The backfills of `embeddings` that go on, and which spaces they embed into. Read from Dagster's instance."""

from collections.abc import Iterator, Sequence

import dagster as dg
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus, PartitionBackfill

from anamnesis_pipeline.dagster_api.backfills import EmbeddingBackfill
from anamnesis_pipeline.defs.partitions import split_embed_key
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES

BACKFILL_TAG = "dagster/backfill"
"""On every run of a backfill."""
STARTING_RUNS = (BulkActionStatus.REQUESTED,)
UNFINISHED_BACKFILLS = (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING)

_EMBEDDINGS = dg.AssetKey("embeddings")


def embedding_backfills(
    instance: dg.DagsterInstance, statuses: Sequence[BulkActionStatus] = UNFINISHED_BACKFILLS
) -> Iterator[EmbeddingBackfill]:
    """Those in these states that have work to do, whoever launched them.

    One whose runs have all ended does no more; Dagster takes up to a minute to see that.
    """
    for backfill in instance.get_backfills(filters=BulkActionsFilter(statuses=statuses)):
        spaces = _spaces(backfill)
        if spaces and _has_work(instance, backfill.backfill_id):
            yield EmbeddingBackfill(backfill.backfill_id, spaces)


def _spaces(backfill: PartitionBackfill) -> frozenset[str]:
    data = backfill.asset_backfill_data
    if data is None or _EMBEDDINGS not in data.target_subset.asset_keys:
        return frozenset()
    return frozenset(
        split_embed_key(key)[1] for key in data.get_target_partitions_subset(_EMBEDDINGS).get_partition_keys()
    )


def _has_work(instance: dg.DagsterInstance, backfill_id: str) -> bool:
    tags = {BACKFILL_TAG: backfill_id}
    unfinished = instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED_STATUSES, tags=tags))
    return unfinished > 0 or instance.get_runs_count(dg.RunsFilter(tags=tags)) == 0

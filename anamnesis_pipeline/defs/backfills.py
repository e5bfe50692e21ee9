"""The backfills of `embeddings` that go on, and which spaces they embed into. Read from Dagster's instance."""

from collections.abc import Collection, Iterator

import dagster as dg

from anamnesis_pipeline.dagster_api.backfills import EmbeddingBackfill
from anamnesis_pipeline.defs.partitions import split_embed_key
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES

BACKFILL_TAG = "dagster/backfill"
"""On every run of a backfill."""
STARTING_RUNS = frozenset({"REQUESTED"})
"""Statuses, by GraphQL's names, of a backfill that starts runs."""
UNFINISHED_BACKFILLS = STARTING_RUNS | {"CANCELING", "FAILING"}
NEWEST = 100
"""Backfills that are looked at: an older one that goes on beside so many later ones is not expected."""

_EMBEDDINGS = dg.AssetKey("embeddings")


def embedding_backfills(
    instance: dg.DagsterInstance, statuses: Collection[str] = UNFINISHED_BACKFILLS
) -> Iterator[EmbeddingBackfill]:
    """Those of the NEWEST in these states that have work to do, whoever launched them.

    One whose runs have all ended does no more; Dagster takes up to a minute to see that.
    """
    for backfill in instance.get_backfills(limit=NEWEST):
        data = backfill.asset_backfill_data if backfill.status.value in statuses else None
        if data is None or _EMBEDDINGS not in data.target_subset.asset_keys:
            continue
        keys = data.get_target_partitions_subset(_EMBEDDINGS).get_partition_keys()
        if _has_work(instance, backfill.backfill_id):
            yield EmbeddingBackfill(backfill.backfill_id, frozenset(split_embed_key(key)[1] for key in keys))


def _has_work(instance: dg.DagsterInstance, backfill_id: str) -> bool:
    tags = {BACKFILL_TAG: backfill_id}
    unfinished = instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED_STATUSES, tags=tags))
    return unfinished > 0 or instance.get_runs_count(dg.RunsFilter(tags=tags)) == 0

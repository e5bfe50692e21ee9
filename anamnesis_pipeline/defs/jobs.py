"""The jobs. Assets of different partitions cannot share one."""

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES, SPACE_BY_SOURCE, SPACES
from anamnesis_pipeline.defs.reporting import DAILY, owned, tagged

INGEST_MAX_S = 7_200
"""Seconds after which Dagster ends any run of `ingest`: a hung one would block its source forever. An unfinished ingest
is requested again and resumes."""

ingest = dg.define_asset_job(
    "ingest",
    dg.AssetSelection.assets(*sorted(DAILY)),
    partitions_def=SOURCES,
    description="Read what is new in one source and make it searchable by its words.",
    tags={**tagged("ingest"), "dagster/max_runtime": str(INGEST_MAX_S)},
    **owned(dg.define_asset_job),
)
embed = dg.define_asset_job(
    "embed",
    dg.AssetSelection.assets("embeddings"),
    partitions_def=SPACE_BY_SOURCE,
    description="Give the passages of sources their vectors in one space.",
    tags=tagged("memory"),
    **owned(dg.define_asset_job),
)
index = dg.define_asset_job(
    "index",
    dg.AssetSelection.assets("vector_index"),
    partitions_def=SPACES,
    description="Make one space fast to search, and switch to it when it is complete.",
    tags=tagged("memory"),
    **owned(dg.define_asset_job),
)
consolidate = dg.define_asset_job(
    "consolidate",
    dg.AssetSelection.assets("consolidation_report"),
    description="Let the newest episode stand for those of its session that it repeats.",
    tags=tagged("memory"),
    **owned(dg.define_asset_job),
)
draw_map = dg.define_asset_job(
    "draw_map",
    dg.AssetSelection.assets("memory_map"),
    description="Draw the map of memory again, from the space that searches use.",
    tags=tagged("memory"),
    **owned(dg.define_asset_job),
)

dream = dg.define_asset_job(
    "dream",
    dg.AssetSelection.assets("memory_index", "drift_report") | dg.AssetSelection.key_prefixes("proposals"),
    description="Propose what follows from what came, render the indexes, check claims. Nothing changes.",
    tags=tagged("knowledge"),
    **owned(dg.define_asset_job),
)
review = dg.define_asset_job(
    "review",
    dg.AssetSelection.assets("review_report"),
    description="Report what waits for a decision.",
    tags=tagged("knowledge"),
    **owned(dg.define_asset_job),
)


# --- run statuses ----------------------------------------------------------------------------------------

# Statuses of unfinished runs, and a query for runs.

UNFINISHED_STATUSES = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def has_run(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> bool:
    """Return whether such a run exists."""
    return bool(instance.get_run_records(filters, limit=1))

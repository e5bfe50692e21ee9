"""Which runs are not over, and whether there is one."""

import dagster as dg

UNFINISHED_STATUSES = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def has_run(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> bool:
    """Whether there is such a run."""
    return bool(instance.get_run_records(filters, limit=1))

"""Statuses of unfinished runs, and a query for runs."""

import dagster as dg

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

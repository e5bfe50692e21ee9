"""Marks runs of an earlier life as failed, before the daemon starts: `python -m anamnesis_pipeline.defs.recovery`.

Dagster's default launcher cannot tell that a run's process is gone, so a run that was cut off stays `STARTED` for
ever and keeps its place among the runs allowed at a time. One that gives each run a container can tell, and there the
daemon may start again beside runs that go on: those are left alone, and so are the ones that only wait.

Runs are never deleted: that would un-materialize what they wrote. Nothing is lost by failing them: the sensors ask the
store what is missing and request that.
"""

import logging

import dagster as dg

from anamnesis_pipeline.dagster_api.runs import INTERRUPTED_TAG
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES

MESSAGE = (
    "Anamnesis was ended while this run was unfinished. What it wrote is kept; the sensors request what is missing."
)


def fail_unfinished_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark every run that was cut off as failed and free its concurrency slots; returns their ids, oldest first.

    Only right while no daemon of this instance is running and, with a launcher that cannot tell what became of a run,
    no process at all.
    """
    unfinished = instance.get_runs(filters=dg.RunsFilter(statuses=UNFINISHED_STATUSES), ascending=True)
    runs = [run for run in unfinished if not _goes_on(instance, run)]
    for run in runs:
        instance.add_run_tags(run.run_id, {INTERRUPTED_TAG: "true"})
        instance.report_run_failed(run, MESSAGE)
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in runs]


def _goes_on(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the launcher knows that a run is at work, or that the daemon has yet to launch it."""
    launcher = instance.run_launcher
    if not launcher.supports_check_run_worker_health:
        return False
    if run.status is dg.DagsterRunStatus.QUEUED:
        return True
    return launcher.check_run_worker_health(run).status.value == "RUNNING"


def main() -> None:
    """Recover the instance that DAGSTER_HOME names, and log which runs were marked."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    log = logging.getLogger("anamnesis.recovery")
    log.setLevel(logging.INFO)
    with dg.DagsterInstance.get() as instance:
        failed = fail_unfinished_runs(instance)
    log.info("marked %d unfinished runs as failed %s", len(failed), failed)


if __name__ == "__main__":
    main()

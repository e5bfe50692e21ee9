"""Marks runs of an earlier life as failed, before the daemon starts: `python -m anamnesis_pipeline.defs.recovery`.

Dagster's default launcher cannot tell that a run's process is gone, so a run that was cut off stays `STARTED` for
ever and keeps its place among the runs allowed at a time. Runs are never deleted: that would un-materialize what
they wrote. Nothing is lost by failing them: the sensors ask the store what is missing and request that.
"""

import logging

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import SensorInstigatorData

from anamnesis_pipeline.dagster_api import INTERRUPTED_TAG
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES

MESSAGE = (
    "Anamnesis was ended while this run was unfinished. What it wrote is kept; the sensors request what is missing."
)


def fail_unfinished_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark every unfinished run as failed and free its concurrency slots; returns their ids, oldest first.

    Only right while no process of this instance is running.
    """
    runs = instance.get_runs(filters=dg.RunsFilter(statuses=UNFINISHED_STATUSES), ascending=True)
    for run in runs:
        instance.add_run_tags(run.run_id, {INTERRUPTED_TAG: "true"})
        instance.report_run_failed(run, MESSAGE)
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in runs]


def tick_at_once(instance: dg.DagsterInstance) -> None:
    """Let every sensor tick as soon as the daemon starts: it would wait for the interval of the earlier life.

    Whoever starts again, perhaps with other log roots, should not look at an empty memory for five minutes.
    """
    for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
        data = state.instigator_data
        if isinstance(data, SensorInstigatorData):
            fresh = data._replace(last_tick_timestamp=None, last_tick_start_timestamp=None)
            instance.update_instigator_state(state.with_data(fresh))


def main() -> None:
    """Recover the instance that DAGSTER_HOME names."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    log = logging.getLogger("anamnesis.recovery")
    log.setLevel(logging.INFO)
    with dg.DagsterInstance.get() as instance:
        failed = fail_unfinished_runs(instance)
        tick_at_once(instance)
    log.info("marked %d unfinished runs as failed %s", len(failed), failed)


if __name__ == "__main__":
    main()

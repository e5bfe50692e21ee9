"""Ends runs of an earlier process group, before the daemon starts: `python -m anamnesis_pipeline.defs.recovery`.

Dagster's default launcher cannot tell that a run's process is gone, so a run that was cut off stays `STARTED` for
ever and keeps its place among the runs allowed at a time. Marked as canceled, it frees that place. A launcher that
gives each run a container can tell, and the daemon's run monitoring ends the runs that are gone; with
`--launched-runs-go-on` only runs that were never put into the queue are marked.

Queued runs stay queued: no process has begun them, so the daemon starts them as if nothing had happened. A backfill may
be the only one to ask for them: no sensor requests that lines be parsed again.

Runs are never deleted: that would un-materialize what they wrote. Nothing is lost by canceling them: the sensors ask
the store what is missing and request that.
"""

import argparse
import logging
from contextlib import closing

import dagster as dg

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.dagster_api.runs import CUT_OFF, mark_canceled
from anamnesis_pipeline.defs.resources import TICK_WAIT_S
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES
from anamnesis_pipeline.errors import AnamnesisError, ServiceUnreachable
from anamnesis_pipeline.wiring import impatient, open_store

CUT_OFF_STATUSES: list[dg.DagsterRunStatus] = [
    status for status in UNFINISHED_STATUSES if status is not dg.DagsterRunStatus.QUEUED
]
"""Of runs that no process works on after an end of the whole system, and that nothing starts again."""

log = logging.getLogger("anamnesis.recovery")


def cancel_cut_off_runs(statuses: list[dg.DagsterRunStatus]) -> list[dg.DagsterRun]:
    """Mark the runs in these states as canceled, in the instance that DAGSTER_HOME names; return them, oldest first.

    Only right while no daemon of this instance is running and no process works on such a run.
    :raises ServiceUnreachable: the command of Dagster that does so fails.
    """
    with dg.DagsterInstance.get() as instance:
        records = instance.get_run_records(dg.RunsFilter(statuses=statuses), ascending=True)
    runs = [record.dagster_run for record in records]
    mark_canceled([run.run_id for run in runs])
    return runs


def note_cut_off(run_id: str) -> None:
    """Store which run of `ingest` was cut off, for the page Logs; a store that cannot be opened now has no note."""
    try:
        settings = settings_module.load()
        if settings.has_store:
            with closing(open_store(impatient(settings, TICK_WAIT_S))) as store:
                store.settings.set(CUT_OFF, run_id)
    except AnamnesisError as exc:
        log.warning("the run %s is not noted as cut off: %s", run_id, exc)


def main() -> None:
    """Recover the instance that DAGSTER_HOME names, and log which runs were marked."""
    parser = argparse.ArgumentParser(description="Mark runs that were cut off as canceled.")
    parser.add_argument("--launched-runs-go-on", action="store_true", help="Dagster ends the runs whose process died.")
    kept = parser.parse_args().launched_runs_go_on
    logging.basicConfig(format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO)
    try:
        runs = cancel_cut_off_runs([dg.DagsterRunStatus.NOT_STARTED] if kept else CUT_OFF_STATUSES)
    except ServiceUnreachable as exc:  # Dagster starts all the same: a run with a limit ends at that, others by hand
        log.warning("runs that were cut off stay as they are; end them on Dagster's page Runs: %s", exc)
        return
    log.info("marked %d unfinished runs as canceled %s", len(runs), [run.run_id for run in runs])
    if ingests := [run for run in runs if run.job_name == "ingest"]:
        note_cut_off(ingests[-1].run_id)


if __name__ == "__main__":
    main()

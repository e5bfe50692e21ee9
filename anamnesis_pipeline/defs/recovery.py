"""Ends runs of an earlier process group, before the daemon starts: `python -m anamnesis_pipeline.defs.recovery`.

Dagster's default launcher cannot detect that a run's process is gone, so an interrupted run stays `STARTED` forever and
occupies a slot. Marking it as canceled frees the slot. A launcher with one container per run can detect it, and the
daemon's run monitoring ends such runs; with `--launched-runs-go-on` only runs that were never queued are marked.

Queued runs stay queued: no process has begun them, so the daemon starts them normally. A backfill may be their only
source: no sensor requests parsing again.

Runs are never deleted: that would un-materialize their output. Canceling loses nothing: the sensors request again what
the store lacks.
"""

import argparse
import logging
from contextlib import closing

import dagster as dg

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.defs.jobs import UNFINISHED_STATUSES
from anamnesis_pipeline.defs.resources import TICK_WAIT_S
from anamnesis_pipeline.errors import AnamnesisError, ServiceUnreachable
from anamnesis_pipeline.services.dagster.runs import CUT_OFF, mark_canceled
from anamnesis_pipeline.services.wiring import impatient, open_store

CUT_OFF_STATUSES: list[dg.DagsterRunStatus] = [
    status for status in UNFINISHED_STATUSES if status is not dg.DagsterRunStatus.QUEUED
]
"""Statuses of runs that have no process after a system shutdown, and that nothing restarts."""

log = logging.getLogger("anamnesis.recovery")


def cancel_cut_off_runs(statuses: list[dg.DagsterRunStatus]) -> list[dg.DagsterRun]:
    """Mark the runs in these states as canceled, in the instance of DAGSTER_HOME; return them, oldest first.

    Only valid while no daemon of this instance is running and no process works on such a run.
    :raises ServiceUnreachable: Dagster's command fails.
    """
    with dg.DagsterInstance.get() as instance:
        records = instance.get_run_records(dg.RunsFilter(statuses=statuses), ascending=True)
    runs = [record.dagster_run for record in records]
    mark_canceled([run.run_id for run in runs])
    return runs


def note_cut_off(run_id: str) -> None:
    """Store the interrupted run of `ingest` for the page Logs; skipped if the store cannot be opened."""
    try:
        settings = settings_module.load()
        if settings.has_store:
            with closing(open_store(impatient(settings, TICK_WAIT_S))) as store:
                store.settings.set(CUT_OFF, run_id)
    except AnamnesisError as exc:
        log.warning("the run %s is not noted as cut off: %s", run_id, exc)


def main() -> None:
    """Recover the instance of DAGSTER_HOME, and log the marked runs."""
    parser = argparse.ArgumentParser(description="Mark runs that were cut off as canceled.")
    parser.add_argument("--launched-runs-go-on", action="store_true", help="Dagster ends the runs whose process died.")
    kept = parser.parse_args().launched_runs_go_on
    logging.basicConfig(format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO)
    try:
        runs = cancel_cut_off_runs([dg.DagsterRunStatus.NOT_STARTED] if kept else CUT_OFF_STATUSES)
    except ServiceUnreachable as exc:  # start Dagster anyway: run limits or a user end them
        log.warning("runs that were cut off stay as they are; end them on Dagster's page Runs: %s", exc)
        return
    log.info("marked %d unfinished runs as canceled %s", len(runs), [run.run_id for run in runs])
    if ingests := [run for run in runs if run.job_name == "ingest"]:
        note_cut_off(ingests[-1].run_id)


if __name__ == "__main__":
    main()

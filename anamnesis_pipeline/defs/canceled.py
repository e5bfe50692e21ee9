"""Ends a run that must wait or stop: as canceled, with the reason; its backfill too.

It is no failure, since nothing went wrong, and no success, since work is left. A canceled run leaves its partitions
unmarked, and a canceled backfill starts no more runs, which would end the same way. Dagster's webserver does both, as
for a click on *Terminate*.
"""

import threading
from typing import NoReturn

import dagster as dg

from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.services.dagster.api import open_dagster
from anamnesis_pipeline.services.dagster.backfills import BACKFILL_TAG, STARTING_RUNS

INTERRUPT_WAIT_S = 60.0
"""Max seconds to wait for the launcher's interrupt after the termination."""


def end_as_canceled(context: dg.AssetExecutionContext, memory: MemoryResource, reason: str) -> NoReturn:
    """End this run as canceled.

    :param reason: for the run's log.
    :raises dg.Failure: Dagster's webserver does not answer; the run fails with the same reason.
    """
    context.log.warning(reason)
    dagster, backfill_id = open_dagster(memory.settings), context.run.tags.get(BACKFILL_TAG)
    try:
        backfill = dagster.backfill_state(backfill_id) if backfill_id is not None else None
        if backfill_id is not None and backfill is not None and backfill.status == STARTING_RUNS:
            dagster.cancel_backfill(backfill_id)
        dagster.stop_runs([context.run.run_id])
    except ServiceUnreachable as exc:
        raise dg.Failure(f"{reason} This run could not be canceled: {exc}", allow_retries=False) from exc
    threading.Event().wait(INTERRUPT_WAIT_S)
    # A launcher that cannot reach this process sends none. Dagster accepts this exception instead.
    raise dg.DagsterExecutionInterruptedError(reason)

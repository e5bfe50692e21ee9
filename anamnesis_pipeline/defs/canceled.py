"""How a run ends that was told to wait or to stop: canceled, with the reason, and so is the backfill it belongs to.

Nothing went wrong, so it is no failure; something is left, so it is no success. A canceled run leaves its partitions
without a new mark of either kind, and a canceled backfill starts no more runs, each of which would only end like this.
"""

from typing import NoReturn

import dagster as dg

from anamnesis_pipeline.defs.backfills import BACKFILL_TAG, STARTING_RUNS


def end_as_canceled(context: dg.AssetExecutionContext, reason: str) -> NoReturn:
    """End this run as canceled.

    :param reason: what the run's log and the UI say.
    """
    _cancel_backfill(context.instance, context.run.tags.get(BACKFILL_TAG))
    context.instance.report_run_canceling(context.run, message=reason)
    # An interrupt of a run that is being canceled is what Dagster takes for the end of a canceled run.
    raise dg.DagsterExecutionInterruptedError(reason)


def _cancel_backfill(instance: dg.DagsterInstance, backfill_id: str | None) -> None:
    backfill = instance.get_backfill(backfill_id) if backfill_id is not None else None
    if backfill is not None and backfill.status.value in STARTING_RUNS:
        canceling = type(backfill.status)("CANCELING")
        instance.update_backfill(backfill.with_status(canceling))  # type: ignore[no-untyped-call]

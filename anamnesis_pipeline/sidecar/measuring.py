"""Measurement of the active space's null-query baseline, so that a search can return nothing."""

import logging

import anyio
from starlette.concurrency import run_in_threadpool

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.search.levels import is_due, measure_level
from anamnesis_pipeline.sidecar.services import Services

log = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0


async def keep_measured(services: Services) -> None:
    """Check every ten seconds whether the space grew enough to be measured again, until cancelled."""
    while True:
        await anyio.sleep(LOOK_EVERY_S)
        await run_in_threadpool(measure_if_due, services)


def measure_if_due(services: Services) -> bool:
    """Measure the active space if due; return whether it was. Failures are retried at the next check."""
    try:
        active = services.store.spaces.active()
        if active is None or not services.pool.ready:
            return False
        space = services.pool.space_for(active)
        if not is_due(services.store, space):
            return False
        measure_level(services.store, space, services.pool.embed_query)
    except AnamnesisError as exc:  # a busy store, or a full query queue
        log.info("what is unrelated was not measured, and will be soon: %s", exc)
        return False
    return True

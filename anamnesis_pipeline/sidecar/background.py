"""Background tasks of the service. A task that fails unexpectedly is restarted after a pause; the others go on."""

import ctypes
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.search.levels import is_due, measure_level
from anamnesis_pipeline.services.machine_checks import Finding
from anamnesis_pipeline.sidecar.services import Services

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Exponential pause before a failed task restarts."""
TOLD_FOR_S = 600.0
"""How long a failure is listed as a present problem."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    at: float
    times: int
    kind: str


class Background:
    """Restarts failed tasks and remembers the failures. Event loop only; `findings` is safe from any thread."""

    def __init__(self, failures: Counter, clock: Callable[[], float] = time.monotonic) -> None:
        """:param failures: counts failures by task.
        :param clock: returns seconds.
        """
        self._failures, self._clock = failures, clock
        self._failed: dict[str, _Failure] = {}

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it returns or is cancelled; restart it when it fails."""
        await AsyncRetrying(
            retry=retry_if_exception_type(Exception),
            wait=wait_exponential(FIRST_PAUSE_S, max=LONGEST_PAUSE_S),
            before_sleep=lambda state: self._note(name, state),
        )(work)

    def findings(self) -> list[Finding]:
        """Return one finding for each task that failed recently."""
        advice = "it has begun again; the log names the place, which is a defect to be reported"
        lately = {name: each for name, each in self._failed.copy().items() if self._clock() - each.at < TOLD_FOR_S}
        return [
            Finding(False, name, f"failed unforeseen: {each.kind}, {each.times} times since the start", advice)
            for name, each in lately.items()
        ]

    def _note(self, name: str, state: RetryCallState) -> None:
        problem = state.outcome.exception() if state.outcome else None
        log.error("%s failed and begins again", name, exc_info=problem)
        self._failures.labels(name).inc()
        self._failed[name] = _Failure(self._clock(), state.attempt_number, type(problem).__name__)


# --- measuring -------------------------------------------------------------------------------------------

# Measurement of the active space's null-query baseline, so that a search can return nothing.

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


# --- trimming --------------------------------------------------------------------------------------------

# Return of freed memory to the system. glibc keeps it in an arena per thread, and under steady searching these grow
# for hours (benchmarks/README.md, "Memory under steady searching").

TRIMMED_EVERY_S = 60.0
ARENAS = 2
M_ARENA_MAX = -8
"""From glibc's malloc.h."""


def share_arenas() -> None:
    """Limit the number of arenas for all threads of this process. Call it before they start."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


async def keep_trimmed() -> None:
    """Trim once a minute, until cancelled: about 50 ms, without the GIL."""
    while True:
        await anyio.sleep(TRIMMED_EVERY_S)
        await run_in_threadpool(trim)


def trim() -> None:
    """Return freed memory to the system. C libraries other than glibc do so automatically."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

"""Background tasks of the service. A task that fails unexpectedly is restarted after a pause; the others go on."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import Counter
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from anamnesis_pipeline.sidecar.machine_checks import Finding

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

"""What goes on beside the requests. What fails unforeseen stops for a moment, and nothing else does."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import Counter
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from anamnesis_pipeline.sidecar.machine_checks import Finding

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before a work that failed begins again: as long, twice as long, and so on."""
TOLD_FOR_S = 600.0
"""A failure is a present problem for so long."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    at: float
    times: int
    kind: str


class Background:
    """Keeps works going, and knows which of them failed. Used on the event loop; `findings` from anywhere."""

    def __init__(self, failures: Counter, clock: Callable[[], float] = time.monotonic) -> None:
        """:param failures: counts them, by work.
        :param clock: seconds.
        """
        self._failures, self._clock = failures, clock
        self._failed: dict[str, _Failure] = {}

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Have a work go on until it ends by itself or is cancelled; what fails begins again."""
        await AsyncRetrying(
            retry=retry_if_exception_type(Exception),
            wait=wait_exponential(FIRST_PAUSE_S, max=LONGEST_PAUSE_S),
            before_sleep=lambda state: self._note(name, state),
        )(work)

    def findings(self) -> list[Finding]:
        """One for each work that failed lately."""
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

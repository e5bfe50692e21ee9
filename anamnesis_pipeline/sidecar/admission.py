"""Concurrency limit for searches: how many run, how many wait, and for how long."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException

from anamnesis_pipeline.services.store_checks import cannot_write
from anamnesis_pipeline.store.base import Store

T = TypeVar("T")

SEARCHES_AT_ONCE = 8
SEARCHES_WAITING = 64
PATIENCE_S = 5.0


class Admission:
    """Concurrency limiter for work in threads: N running, M queued, then 429.

    It uses its own threads, so that many searches do not delay the fetch of an episode.
    """

    def __init__(
        self, at_once: int = SEARCHES_AT_ONCE, waiting: int = SEARCHES_WAITING, patience_s: float = PATIENCE_S
    ) -> None:
        self._places = anyio.CapacityLimiter(at_once)
        self._threads = anyio.CapacityLimiter(at_once)
        self._waiting = waiting
        self._patience_s = patience_s

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result.

        :raises HTTPException: 429, the queue is full, or the wait exceeded its limit.
        """
        line = self._places.statistics()
        if line.borrowed_tokens >= line.total_tokens and line.tasks_waiting >= self._waiting:
            raise _too_busy()
        try:
            with anyio.fail_after(self._patience_s):
                await self._places.acquire()
        except TimeoutError:
            raise _too_busy() from None
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._places.release()


def _too_busy() -> HTTPException:
    return HTTPException(429, "too many searches at once; try again in a second")


# --- disk space ------------------------------------------------------------------------------------------

# Disk-space check of the store. When it is full, searches go on but nothing new is stored.


class DiskSpace:
    """Disk-space state of one application: after a refused write, the store is probed until a write succeeds."""

    def __init__(self) -> None:
        self._was_refused = False

    def refused(self) -> None:
        """Record that a full store refused a write."""
        self._was_refused = True

    def problem(self, store: Store) -> str | None:
        """Return why the store still refuses writes; None: it accepts them, or never refused."""
        if not self._was_refused:
            return None
        problem = cannot_write(store)
        self._was_refused = problem is not None
        return problem

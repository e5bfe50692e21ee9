"""How many searches run at once, how many may wait, and for how long."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException

T = TypeVar("T")

SEARCHES_AT_ONCE = 8
SEARCHES_WAITING = 64
PATIENCE_S = 5.0


class Admission:
    """A door for work that runs in threads: so many inside, so many in line, the rest is sent away with 429.

    The work gets threads of its own, so that a rush of searches does not keep an episode from being fetched.
    """

    def __init__(
        self, at_once: int = SEARCHES_AT_ONCE, waiting: int = SEARCHES_WAITING, patience_s: float = PATIENCE_S
    ) -> None:
        self._places = anyio.CapacityLimiter(at_once)
        self._threads = anyio.CapacityLimiter(at_once)
        self._waiting = waiting
        self._patience_s = patience_s

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns, called in a thread.

        :raises HTTPException: 429, the line is too long or does not move.
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

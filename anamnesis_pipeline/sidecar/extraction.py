"""LLM calls that HTTP clients wait for: limited in number and waiting time, each in a separate thread."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from anamnesis_pipeline.services.recording import Recorded

AT_ONCE = 4
PATIENCE_S = 30.0
TOO_MANY = "too many pairs are with the LLM already; post this one again later to have its records found"
TOO_SLOW = "the LLM takes its time; its records are stored when it answers: post the same pair again to get them"

log = logging.getLogger(__name__)


class Extraction:
    """Work that continues after its client stopped waiting. If the process ends, the next post does it."""

    def __init__(self, at_once: int = AT_ONCE, patience_s: float = PATIENCE_S) -> None:
        self._at_once, self._patience_s = at_once, patience_s
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Recorded]] = {}

    async def run(self, name: str, work: Callable[[], Recorded]) -> Recorded | str:
        """Return the result of `work`, or why there is none yet. Callers with the same name share one run.

        It blocks neither the event loop nor the threads that answer other requests.
        """
        future = self._begin(name, work)
        if future is None:
            return TOO_MANY
        waited_for = asyncio.wrap_future(future)
        waited_for.add_done_callback(_retrieve)
        try:
            return await asyncio.wait_for(asyncio.shield(waited_for), self._patience_s)
        except TimeoutError:
            return TOO_SLOW

    def _begin(self, name: str, work: Callable[[], Recorded]) -> "Future[Recorded] | None":
        with self._lock:
            if name in self._under_way or len(self._under_way) >= self._at_once:
                return self._under_way.get(name)
            future = self._under_way[name] = Future()
        # a daemon thread: a call of minutes must not block the exit of the process
        threading.Thread(target=self._work, args=(name, work, future), name="extraction", daemon=True).start()
        return future

    def _work(self, name: str, work: Callable[[], Recorded], future: "Future[Recorded]") -> None:
        try:
            found = work()
        except Exception as exc:  # passed to waiting callers, and logged
            log.error("records of an exchange were not stored: %s", type(exc).__name__)  # noqa: TRY400 - no text
            self._end(name)
            future.set_exception(exc)
        else:
            self._end(name)
            future.set_result(found)

    def _end(self, name: str) -> None:
        with self._lock:
            del self._under_way[name]


def _retrieve(future: "asyncio.Future[Recorded]") -> None:
    """Mark the exception as retrieved: it is logged, so asyncio need not report it."""
    if not future.cancelled():
        future.exception()

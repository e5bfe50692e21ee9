"""Calls of an LLM that somebody waits for over HTTP: so many at once, each in a thread of its own, and not for ever."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from anamnesis_pipeline.steps.recording import Recorded

AT_ONCE = 4
PATIENCE_S = 30.0
TOO_MANY = "too many pairs are with the LLM already; post this one again later to have its records found"
TOO_SLOW = "the LLM takes its time; its records are stored when it answers: post the same pair again to get them"

log = logging.getLogger(__name__)


class Extraction:
    """Work that outlasts whoever asked for it. Nothing is lost when the process ends: it is done by the next post."""

    def __init__(self, at_once: int = AT_ONCE, patience_s: float = PATIENCE_S) -> None:
        self._at_once, self._patience_s = at_once, patience_s
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Recorded]] = {}

    async def run(self, name: str, work: Callable[[], Recorded]) -> Recorded | str:
        """What `work` returns, or why there is nothing yet. Work of one name is done once at a time, for all who ask.

        The event loop is never held up, and neither are the threads that answer other requests.
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
        # a daemon, since a call of minutes must not keep the process from ending
        threading.Thread(target=self._work, args=(name, work, future), name="extraction", daemon=True).start()
        return future

    def _work(self, name: str, work: Callable[[], Recorded], future: "Future[Recorded]") -> None:
        try:
            found = work()
        except Exception as exc:  # handed to whoever waits; who went away left it to the log
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
    """Its error is in the log: asyncio need not tell of it again where nobody waits any more."""
    if not future.cancelled():
        future.exception()

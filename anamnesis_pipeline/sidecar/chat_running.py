"""The answers that are being written: so many at once, one of a conversation, each of which can be stopped."""

import asyncio
from typing import NamedTuple

from starlette.exceptions import HTTPException

AT_ONCE = 8
END_S = 15.0
"""A stopped answer that is not stored by then is not waited for."""
LOOK_S = 0.5


class Running(NamedTuple):
    """An answer: the task that writes it, which can be ended, and the one that stores it then and ends with all."""

    writing: "asyncio.Task[None]"
    whole: "asyncio.Task[None]"

    def stop(self) -> bool:
        """End the writing; False: it ends already, or is over."""
        return not self.writing.cancelling() and self.writing.cancel()


class Chats:
    """Places for answers. Only changed on the event loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._running: dict[str, Running | None] = {}
        self._unwanted: set[str] = set()
        """Whose answer was stopped while it was prepared."""

    def claim(self, session_id: str) -> None:
        """Take a place for an answer of a conversation, to be given back by `begin` or `release`.

        :raises HTTPException: 429, there is none; 409, the conversation has one already.
        """
        if session_id in self._running:
            raise HTTPException(409, "an answer of this conversation is being written; stop it, or wait for it")
        if len(self._running) >= self._at_once:
            raise HTTPException(429, "as many answers as may be are being written; try again when one is done")
        self._running[session_id] = None

    def begin(self, session_id: str, answer: Running) -> None:
        """Say what writes the answer, which ends at once where it was stopped before; its end gives the place back."""
        self._running[session_id] = answer
        answer.whole.add_done_callback(lambda _: self.release(session_id))
        if session_id in self._unwanted:
            answer.stop()

    def release(self, session_id: str) -> None:
        """Give a place back."""
        self._running.pop(session_id, None)
        self._unwanted.discard(session_id)

    def is_answering(self, session_id: str) -> bool:
        """Whether an answer of a conversation is being written, or stored."""
        return session_id in self._running

    async def idle(self) -> None:
        """Return once no answer is being written."""
        while self._running:
            await asyncio.sleep(LOOK_S)

    def stop(self, session_id: str) -> bool:
        """End the answer of a conversation, one that is being prepared as soon as it begins; False: there is none, or
        it ends already.
        """
        answer = self._running.get(session_id)
        if answer is not None:
            return answer.stop()
        is_prepared = session_id in self._running and session_id not in self._unwanted
        if is_prepared:
            self._unwanted.add(session_id)
        return is_prepared

    def stop_all(self) -> None:
        """End every answer; each stores what it has."""
        for session_id in list(self._running):
            self.stop(session_id)

    async def stopped(self, session_id: str) -> bool:
        """End the answer of a conversation, and wait until what was said so far is stored."""
        answer = self._running.get(session_id)
        was_written = self.stop(session_id)
        if answer is not None:
            await asyncio.wait([answer.whole], timeout=END_S)
        return was_written

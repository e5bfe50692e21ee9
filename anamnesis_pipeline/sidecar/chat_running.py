"""Answers in progress: a limited number, one per conversation; each can be stopped."""

import asyncio
from dataclasses import dataclass

from starlette.exceptions import HTTPException

AT_ONCE = 8
END_S = 15.0
"""Seconds to wait until a stopped answer is stored."""
LOOK_S = 0.5


@dataclass(slots=True)
class Running:
    """An answer: the task that writes it, which can be cancelled, and the one that then stores it and ends last."""

    writing: "asyncio.Task[None]"
    whole: "asyncio.Task[None]"
    is_stopped: bool = False

    def stop(self) -> bool:
        """Cancel the writing; False: it is ending or done."""
        # a flag, since `Task.cancelling` also counts cancel scopes inside libraries
        was_stopped, self.is_stopped = self.is_stopped, True
        return not was_stopped and self.writing.cancel()


class Chats:
    """Slots for answers. Modified only on the event loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._running: dict[str, Running | None] = {}
        self._unwanted: set[str] = set()
        """Conversations whose answer was stopped during its preparation."""

    def claim(self, session_id: str) -> None:
        """Take a slot for an answer of a conversation; `begin` or `release` frees it.

        :raises HTTPException: 429, no slot is free; 409, the conversation has an answer in progress.
        """
        if session_id in self._running:
            raise HTTPException(409, "an answer of this conversation is being written; stop it, or wait for it")
        if len(self._running) >= self._at_once:
            raise HTTPException(429, "as many answers as may be are being written; try again when one is done")
        self._running[session_id] = None

    def begin(self, session_id: str, answer: Running) -> None:
        """Register the tasks of an answer; stop it at once if that was requested before. Its end frees the slot."""
        self._running[session_id] = answer
        answer.whole.add_done_callback(lambda _: self.release(session_id))
        if session_id in self._unwanted:
            answer.stop()

    def release(self, session_id: str) -> None:
        """Free a slot."""
        self._running.pop(session_id, None)
        self._unwanted.discard(session_id)

    def is_answering(self, session_id: str) -> bool:
        """Return whether an answer of a conversation is being written or stored."""
        return session_id in self._running

    async def idle(self) -> None:
        """Return once no answer is in progress."""
        while self._running:
            await asyncio.sleep(LOOK_S)

    def stop(self, session_id: str) -> bool:
        """Stop the answer of a conversation; one in preparation stops as soon as it begins. False: there is none, or it
        is ending already.
        """
        answer = self._running.get(session_id)
        if answer is not None:
            return answer.stop()
        is_prepared = session_id in self._running and session_id not in self._unwanted
        if is_prepared:
            self._unwanted.add(session_id)
        return is_prepared

    def stop_all(self) -> None:
        """Stop every answer; each stores its text so far."""
        for session_id in list(self._running):
            self.stop(session_id)

    async def stopped(self, session_id: str) -> bool:
        """Stop the answer of a conversation, and wait until its text so far is stored."""
        answer = self._running.get(session_id)
        was_written = self.stop(session_id)
        if answer is not None:
            await asyncio.wait([answer.whole], timeout=END_S)
        return was_written

"""A program on another host that is read while it writes, over SSH; it ends when the connection does.

The connection is a thread's, which hands on what the program writes through a pair of sockets: who reads slowly slows
the program down, and who closes the socket ends it.
"""

import asyncio
import shlex
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio.to_thread

from anamnesis_pipeline.chat.base import STALL_S
from anamnesis_pipeline.chat.command import LAST_WORDS_S, MOST_STDERR, Running, unread
from anamnesis_pipeline.chat.http import MOST_LINE_BYTES
from anamnesis_pipeline.errors import HostRefused, HostUnreachable, LlmRefused, LlmUnavailable
from anamnesis_pipeline.ssh_connection import CONNECT_TIMEOUT_S, connected, translated
from anamnesis_pipeline.summaries.local_command import PIECE_BYTES, Outcome
from anamnesis_pipeline.summaries.ssh_command import quoted, surroundings

MOST_S = 1_800
"""Seconds after which the far end ends the program in any case."""
LOOK_S = 0.2
"""Seconds between two looks at whether anybody still reads."""
END_S = 5.0
"""A thread that has not left by then is still connecting, and leaves when that has come to an end."""

_SCRIPT = """\
{surroundings}
trap : TERM
(sleep {seconds}; trap '' TERM; kill -TERM 0; sleep 2; kill -KILL 0) <&- >/dev/null 2>&1 &
{{ head -c {size}; exec >/dev/null 2>&1; cat; trap '' TERM; kill -TERM 0; sleep 2; kill -KILL 0; }} |
{{ {command}; status=$?; trap '' TERM; kill -TERM 0
  (for pause in 1 2 4 8; do sleep $pause; kill -TERM 0; done) </dev/null >/dev/null 2>&1 &
  exit $status; }}
exit $?
"""
"""Runs in a process group of its own, as sshd gives one to each command; `kill 0` ends whatever is left of it. After
the text nothing comes on the standard input: that it ends means that the connection did. More signals come for what
had hardly begun at the first, and still had the trap of its parent.
"""


class _Left(Exception):  # noqa: N818 - no error: nobody reads any more
    """The program is to be ended."""


@asynccontextmanager
async def running_there(
    place: str, command: Sequence[str], text: str, *, environment: Mapping[str, str], without: Sequence[str]
) -> AsyncIterator[Running]:
    """Run `command` on the host `place` with `text` on its standard input. What keeps it from running is raised by
    `Running.outcome`: LlmRefused where the host's key is not known or has changed, or it lets nobody in; LlmUnavailable
    where there is no connection, or it breaks off.

    :param environment: variables added there.
    :param without: variables taken away there.
    """
    data = text.encode("utf-8", "replace")
    script = _SCRIPT.format(
        surroundings=surroundings(environment, without), command=quoted(command), size=len(data), seconds=MOST_S
    )
    ours, theirs = socket.socketpair()
    session = _Session(place, f"exec sh -c {shlex.quote(script)}", data, theirs)
    stdout, writer = await asyncio.open_connection(sock=ours, limit=MOST_LINE_BYTES)
    work = asyncio.ensure_future(anyio.to_thread.run_sync(session.run, abandon_on_cancel=True))
    try:
        yield Running(stdout, lambda: asyncio.shield(work))
    finally:
        session.left.set()
        writer.close()
        await asyncio.wait([work], timeout=END_S)
        if not work.cancel() and not work.cancelled():
            work.exception()  # whoever wanted to know it has asked


class _Session:
    """One run of the command, in a thread of its own."""

    def __init__(self, place: str, script: str, data: bytes, out: socket.socket) -> None:
        self.left = threading.Event()
        self._place, self._script, self._data, self._out = place, script, data, out

    def run(self) -> Outcome:
        """Until the program ends, or nobody reads any more."""
        with self._out:
            try:
                with translated(self._place), connected(self._place) as client:
                    self._look()
                    with client.get_transport().open_session(timeout=CONNECT_TIMEOUT_S) as channel:
                        return self._talk(channel)
            except HostRefused as problem:
                raise LlmRefused(str(problem)) from None
            except HostUnreachable as problem:
                raise LlmUnavailable(str(problem)) from None
            except _Left:
                return Outcome("", "", 1)

    def _talk(self, channel: Any) -> Outcome:
        channel.settimeout(LOOK_S)
        channel.exec_command(self._script)
        self._send(channel)
        stderr = self._read(channel)
        channel.status_event.wait(LAST_WORDS_S)
        status = channel.exit_status
        if status < 0:  # ended by a signal, or the connection broke
            raise LlmUnavailable(f"the command on {self._place} was ended, or the connection broke off; try again")
        return Outcome("", stderr.decode("utf-8", "replace"), status)

    def _send(self, channel: Any) -> None:
        data, deadline = memoryview(self._data), time.monotonic() + STALL_S
        while data:
            self._look()
            if time.monotonic() > deadline:
                raise LlmUnavailable(unread(f"the command on {self._place}"))
            with suppress(TimeoutError):  # it reads nothing for a moment
                data = data[channel.send(data[:PIECE_BYTES]) :]

    def _read(self, channel: Any) -> bytes:
        """Hand on what the command writes, until it closes its standard output; what it says of errors."""
        stderr, piece = bytearray(), b" "
        while piece:
            self._look()
            try:
                piece = channel.recv(PIECE_BYTES)
                self._hand_on(piece)
            except TimeoutError:
                piece = b" "  # nothing for a moment
            while channel.recv_stderr_ready():
                stderr += channel.recv_stderr(PIECE_BYTES)[: MOST_STDERR - len(stderr)]
        return bytes(stderr)

    def _hand_on(self, piece: bytes) -> None:
        try:
            self._out.sendall(piece)
        except OSError:
            raise _Left from None

    def _look(self) -> None:
        """:raises _Left: nobody reads any more."""
        if self.left.is_set():
            raise _Left

"""A remote program whose output is streamed over SSH; it ends with the connection.

A thread holds the connection and forwards the output through a socket pair: a slow reader slows the program down, and
closing the socket ends it.
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

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.chat.base import STALL_S
from anamnesis_pipeline.llm.chat.command import LAST_WORDS_S, MOST_STDERR, Running, unread
from anamnesis_pipeline.llm.chat.http import MOST_LINE_BYTES
from anamnesis_pipeline.llm.local_command import PIECE_BYTES, Outcome
from anamnesis_pipeline.llm.ssh_command import quoted, surroundings
from anamnesis_pipeline.sources.ssh.connection import CONNECT_TIMEOUT_S, connected, translated

MOST_S = 1_800
"""Seconds after which the remote side ends the program in any case."""
LOOK_S = 0.2
"""Seconds between checks whether the client still reads."""
END_S = 5.0
"""Seconds to wait for the thread; one still running then is connecting, and ends once that has finished."""

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
"""Runs in a separate process group, as sshd starts each command; `kill 0` ends all that is left of it. Nothing follows
the text on standard input: its end means that the connection ended. Signals are repeated for processes that had just
started at the first one and still had their parent's trap."""


class _Left(Exception):  # noqa: N818 - no error: the client stopped reading
    """Ends the program."""


@asynccontextmanager
async def running_there(
    place: str, command: Sequence[str], text: str, *, environment: Mapping[str, str], without: Sequence[str]
) -> AsyncIterator[Running]:
    """Run `command` on the host `place` with `text` on its standard input. `Running.outcome` raises what prevents that:
    LlmRefused if the host key is unknown or has changed, or login failed; LlmUnavailable if there is no connection, or
    it breaks off.

    :param environment: variables added there.
    :param without: variables removed there.
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
            work.exception()  # already reported through `outcome` if requested


class _Session:
    """One run of the command, in a separate thread."""

    def __init__(self, place: str, script: str, data: bytes, out: socket.socket) -> None:
        self.left = threading.Event()
        self._place, self._script, self._data, self._out = place, script, data, out

    def run(self) -> Outcome:
        """Run until the program ends or the client stops reading."""
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
            with suppress(TimeoutError):  # the program reads nothing for a moment
                data = data[channel.send(data[:PIECE_BYTES]) :]

    def _read(self, channel: Any) -> bytes:
        """Forward the output until the command closes it; return its standard error."""
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
        """:raises _Left: the client stopped reading."""
        if self.left.is_set():
            raise _Left

"""Run a command here or on another host over SSH, stream its output, and end all its processes with the reader.

Over SSH a thread holds the connection and forwards the output through a socket pair: a slow reader slows the program
down, and closing the socket ends it.
"""

import asyncio
import os
import shlex
import signal
import socket
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import anyio.to_thread
from typing_extensions import override

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, LlmAnswerInvalid, LlmRefused, LlmUnavailable

MAX_OUTPUT_BYTES = 1_000_000
MAX_LINE_BYTES = 1_000_000
MAX_STDERR_BYTES = 20_000
MAX_S = 1_800
"""Seconds after which the remote side ends a streamed program in any case."""
LAST_WORDS_S = 2.0
"""Seconds for a program to exit after it closed its output."""
LOOK_S = 0.2
"""Seconds between checks whether a silent program still runs, and whether the reader still reads."""
UNREAD_S = 150.0
"""Seconds for a program to read its input: below `STALL_S`, so that errors name the cause."""
END_S = 5.0
"""Seconds to wait for the end: of the pipes, and of the thread, which ends once it is connected."""
GRACE_S = 5.0
"""Seconds for the remote side to end the command before the connection is dropped."""
PIECE_BYTES = 65_536

_SCRIPT = """\
PATH="$HOME/.local/bin:$PATH:/usr/local/bin:/opt/homebrew/bin"
unset {unset}
{export}
cd /
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
started at the first one and still had their parent's trap. A non-login shell lacks the folders of Claude's installers.
No other user can leave a CLAUDE.md in `/`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Output and exit status of a command. The texts are untrusted: never put them into an error."""

    stdout: str
    stderr: str
    status: int


class Command(ABC):
    """A command that runs inside an `async with`, with `text` on its standard input. Leaving the block ends it.

    :param name: what errors call it.
    """

    stdout: asyncio.StreamReader

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    async def __aenter__(self) -> Self:
        """Start it."""
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        await self._end()

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def _end(self) -> None: ...

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether it exited; a child process of it may still hold its output."""

    @abstractmethod
    async def outcome(self) -> Outcome:
        """Return the outcome of a command that closed its output, without its standard output."""

    async def whole(self, timeout_s: float) -> Outcome:
        """Run the command to its end.

        :raises LlmRefused, LlmUnavailable: as `__aenter__` and `outcome`; LlmUnavailable if it runs longer.
        :raises LlmAnswerInvalid: it writes more than MAX_OUTPUT_BYTES.
        """
        written = bytearray()
        try:
            async with asyncio.timeout(timeout_s), self:
                while True:
                    try:
                        async with asyncio.timeout(LOOK_S):
                            piece = await self.stdout.read(PIECE_BYTES)
                    except TimeoutError:
                        if self.has_ended:
                            break
                        continue
                    if not piece:
                        break
                    written += piece
                    if len(written) > MAX_OUTPUT_BYTES:
                        raise LlmAnswerInvalid(f"{self._name} wrote more than {MAX_OUTPUT_BYTES:,} bytes and was ended")
                return replace(await self.outcome(), stdout=written.decode("utf-8", "replace"))
        except TimeoutError:
            raise LlmUnavailable(
                f"{self._name} did not end in time and was ended; raise summary_timeout_s if it is slow"
            ) from None

    def _unread(self) -> LlmUnavailable:
        return LlmUnavailable(f"{self._name} did not read the message within {UNREAD_S:.0f} s and was ended; try again")


class LocalCommand(Command):
    """A command on this machine, in an empty folder and a separate process group.

    Entering raises LlmRefused if there is no such command or it may not be run, and LlmUnavailable if it does not read
    the text.
    """

    def __init__(self, command: Sequence[str], text: str, environment: Mapping[str, str]) -> None:
        super().__init__(command[0], text)
        self._command, self._environment = command, environment
        self._stderr = bytearray()

    async def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="anamnesis-")
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._folder.name,
                env=self._environment,
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        except OSError as exc:
            self._folder.cleanup()
            raise LlmRefused(f"cannot run {self._name!r} ({exc.strerror}); set claude_command to its path") from None
        except BaseException:
            self._folder.cleanup()
            raise
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - all three are pipes
        self.stdout = process.stdout
        self._errors = asyncio.ensure_future(self._read_errors(process.stderr))
        try:
            async with asyncio.timeout(UNREAD_S):
                with suppress(ConnectionError, RuntimeError):  # it has ended (as uvloop says it), its outcome says why
                    process.stdin.write(self._text.encode("utf-8", "replace"))
                    await process.stdin.drain()
                    process.stdin.close()
        except BaseException as exc:
            await self._end()
            if isinstance(exc, TimeoutError):
                raise self._unread() from None
            raise

    async def _end(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        with suppress(TimeoutError, ValueError):  # read to the end, so that the pipes close
            async with asyncio.timeout(END_S):
                while await self.stdout.read(PIECE_BYTES):
                    pass
                await self._errors
        self._errors.cancel()
        self._folder.cleanup()

    @property
    @override
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @override
    async def outcome(self) -> Outcome:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._process.wait()
                await asyncio.wait([self._errors])
        status = self._process.returncode
        return Outcome("", self._stderr.decode("utf-8", "replace"), 1 if status is None else status)

    async def _read_errors(self, stderr: asyncio.StreamReader) -> None:
        while piece := await stderr.read(PIECE_BYTES):
            self._stderr += piece[: MAX_STDERR_BYTES - len(self._stderr)]


class _Left(Exception):  # noqa: N818 - no error: the reader stopped reading
    """Ends the program."""


class RemoteCommand(Command):
    """A command on the host `place`, over SSH.

    `outcome` raises LlmRefused if the host key is unknown or has changed, or login failed; LlmUnavailable if there is
    no connection, or it breaks off.

    :param environment: variables added there.
    :param without: variables removed there.
    :param seconds: after which the remote side ends the command; None: `MAX_S`.
    """

    def __init__(
        self,
        place: str,
        command: Sequence[str],
        text: str,
        *,
        environment: Mapping[str, str],
        without: Sequence[str],
        seconds: int | None = None,
    ) -> None:
        super().__init__(f"the command on {place}", text)
        self._place, self._data = place, text.encode("utf-8", "replace")
        # a `~` at the start of the program is the remote user's home
        first = command[0]
        program = f'"$HOME"/{shlex.quote(first[2:])}' if first.startswith("~/") else shlex.quote(first)
        self._script = _SCRIPT.format(
            unset=" ".join(without),
            export="\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            command=" ".join([program, *map(shlex.quote, command[1:])]),
            size=len(self._data),
            seconds=MAX_S if seconds is None else seconds,
        )
        self._left = threading.Event()

    async def _start(self) -> None:
        ours, self._out = socket.socketpair()
        self.stdout, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        self._work = asyncio.ensure_future(anyio.to_thread.run_sync(self._run, abandon_on_cancel=True))

    async def _end(self) -> None:
        self._left.set()
        self._writer.close()
        await asyncio.wait([self._work], timeout=END_S)
        if not self._work.cancel() and not self._work.cancelled():
            self._work.exception()  # already reported through `outcome` if requested

    @property
    @override
    def has_ended(self) -> bool:
        return self._work.done()

    @override
    async def outcome(self) -> Outcome:
        return await asyncio.shield(self._work)

    def _run(self) -> Outcome:
        """Run until the program ends or the reader stops reading; in a thread."""
        from anamnesis_pipeline.sources.ssh.connection import CONNECT_TIMEOUT_S, connected, translated

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
        channel.exec_command(f"exec sh -c {shlex.quote(self._script)}")
        data, deadline = memoryview(self._data), time.monotonic() + UNREAD_S
        while data:
            self._look()
            if time.monotonic() > deadline:
                raise self._unread()
            with suppress(TimeoutError):  # the program reads nothing for a moment
                data = data[channel.send(data[:PIECE_BYTES]) :]
        stderr, piece = bytearray(), b" "
        while piece:
            self._look()
            try:
                piece = channel.recv(PIECE_BYTES)
                self._forward(piece)
            except TimeoutError:
                piece = b" "  # nothing for a moment
            while channel.recv_stderr_ready():
                stderr += channel.recv_stderr(PIECE_BYTES)[: MAX_STDERR_BYTES - len(stderr)]
        channel.status_event.wait(LAST_WORDS_S)
        status = channel.exit_status
        if status < 0:  # ended by a signal, or the connection broke
            raise LlmUnavailable(f"{self._name} was ended, or the connection broke off; try again")
        return Outcome("", stderr.decode("utf-8", "replace"), status)

    def _forward(self, piece: bytes) -> None:
        try:
            self._out.sendall(piece)
        except OSError:
            raise _Left from None

    def _look(self) -> None:
        """:raises _Left: the reader stopped reading."""
        if self._left.is_set():
            raise _Left

"""A local program whose output is streamed; all its processes are killed when the reader stops."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from anamnesis_pipeline.errors import LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.chat.base import STALL_S
from anamnesis_pipeline.llm.chat.http import MOST_LINE_BYTES
from anamnesis_pipeline.llm.local_command import Outcome

MOST_STDERR = 20_000
LAST_WORDS_S = 2.0
"""Seconds for a program to exit after it closed its output."""


@dataclass(frozen=True, slots=True)
class Running:
    """A program's output stream, and its outcome once it has ended, without the standard output."""

    stdout: asyncio.StreamReader
    outcome: Callable[[], Awaitable[Outcome]]


@asynccontextmanager
async def running_here(command: Sequence[str], text: str, environment: Mapping[str, str]) -> AsyncIterator[Running]:
    """Run `command` in an empty folder and a separate process group, with `text` on its standard input.

    :raises LlmRefused: there is no such command, or it may not be run.
    :raises LlmUnavailable: it does not read the text.
    """
    with tempfile.TemporaryDirectory(prefix="anamnesis-") as folder:
        process = await _start(command, environment, folder)
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - all three are pipes
        errors = asyncio.ensure_future(process.stderr.read(MOST_STDERR))
        try:
            await _tell(process.stdin, text, command[0])
            yield Running(process.stdout, lambda: _outcome(process, errors))
        finally:
            errors.cancel()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _start(command: Sequence[str], environment: Mapping[str, str], folder: str) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=environment,
            start_new_session=True,
            limit=MOST_LINE_BYTES,
        )
    except OSError as exc:
        raise LlmRefused(f"cannot run {command[0]!r} ({exc.strerror}); set claude_command to its path") from None


async def _tell(stdin: asyncio.StreamWriter, text: str, name: str) -> None:
    try:
        async with asyncio.timeout(STALL_S):
            with suppress(ConnectionError):  # the program has ended, and its outcome says why
                stdin.write(text.encode("utf-8", "replace"))
                await stdin.drain()
                stdin.close()
    except TimeoutError:
        raise LlmUnavailable(unread(name)) from None


def unread(name: str) -> str:
    """Return the error text for a command that does not read its input."""
    return f"{name} did not read the message within {STALL_S:.0f} s and was ended; try again"


async def _outcome(process: asyncio.subprocess.Process, errors: "asyncio.Future[bytes]") -> Outcome:
    """Return the outcome of a program that closed its output, even if its children still run."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_S):
            await process.wait()
            await asyncio.wait([errors])
    stderr = errors.result().decode("utf-8", "replace") if errors.done() else ""
    return Outcome("", stderr, 1 if process.returncode is None else process.returncode)

"""Chat with Claude's command line on this machine, paid by the subscription it is logged in with.

It writes what it says as it comes (https://code.claude.com/docs/en/headless, `stream-json`), without tools, settings
and a transcript. It runs in a process group of its own, of which nothing is left when nobody listens any more.
"""

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anamnesis_pipeline.chat.base import MOST_OUTPUT_TOKENS, STALL_S, Delta, Said, most_tokens
from anamnesis_pipeline.chat.http import MOST_LINE_BYTES, read
from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmRefused, LlmUnavailable
from anamnesis_pipeline.summaries.claude_cli import BARE, OWN_TOKENS, QUIET, ClaudeCliBackend, Result, environment_here
from anamnesis_pipeline.summaries.local_command import Outcome
from anamnesis_pipeline.summaries.prices import Model
from anamnesis_pipeline.summary_model import LlmUse

MOST_STDERR = 20_000
LAST_WORDS_S = 2.0
"""From a program that has no more to say until it has ended."""


class ClaudeCliChat:
    """See `ChatBackend`."""

    name = "claude_cli"
    is_paid = False
    is_local = False
    has_tools = False

    def __init__(self, model: Model, command: str) -> None:
        self.model = model.name
        self._command = shlex.split(command)
        self._errors = ClaudeCliBackend(model, command, "", STALL_S)

    def expected(self, system: str, said: Sequence[Said]) -> LlmUse:
        """See `ChatBackend.expected`; the subscription pays, so no dollars."""
        return LlmUse(1, most_tokens(system, said) + OWN_TOKENS, MOST_OUTPUT_TOKENS)

    async def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """See `ChatBackend.stream`."""
        del tools
        with tempfile.TemporaryDirectory(prefix="anamnesis-") as folder:
            process = await self._start(system, folder)
            try:
                async for delta in self._deltas(process, _prompt(said)):
                    yield delta
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def close(self) -> None:
        """Nothing stays open between answers."""

    async def _start(self, system: str, folder: str) -> asyncio.subprocess.Process:
        program = str(Path(self._command[0]).expanduser())
        limits = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(MOST_OUTPUT_TOKENS)}
        try:
            return await asyncio.create_subprocess_exec(
                program, *self._command[1:], "--print", "--output-format", "stream-json", "--verbose",
                "--include-partial-messages", "--model", self.model, "--system-prompt", system, *BARE,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                cwd=folder, env=environment_here() | QUIET | limits, start_new_session=True, limit=MOST_LINE_BYTES,
            )  # fmt: skip
        except OSError as exc:
            raise LlmRefused(f"cannot run {program!r} ({exc.strerror}); set claude_command to its path") from None

    async def _deltas(self, process: asyncio.subprocess.Process, prompt: str) -> AsyncIterator[Delta]:
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - all three are pipes
        errors = asyncio.ensure_future(process.stderr.read(MOST_STDERR))
        await self._ask(process.stdin, prompt)
        result: Result | None = None
        try:
            while line := await self._line(process.stdout):
                event = read(line, self._command[0])
                if event.get("type") == "result":
                    result = _result(event)
                elif text := _text(event):
                    yield Delta(text)
            if result is None:
                raise self._errors.failed(await _outcome(process, errors))
            if result.is_error or not result.subtype.startswith("success"):
                raise self._errors.refused(result)
        finally:
            errors.cancel()
        usage = result.usage
        tokens_in = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        yield Delta(used=LlmUse(1, tokens_in, usage.output_tokens))

    async def _ask(self, stdin: asyncio.StreamWriter, prompt: str) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                with suppress(ConnectionError):  # it has ended already, and says why
                    stdin.write(prompt.encode("utf-8", "replace"))
                    await stdin.drain()
                    stdin.close()
        except TimeoutError:
            said = f"{self._command[0]} did not read the message within {STALL_S:.0f} s and was ended; try again"
            raise LlmUnavailable(said) from None

    async def _line(self, stdout: asyncio.StreamReader) -> str:
        """The next line that is not blank; empty at the end."""
        try:
            async with asyncio.timeout(STALL_S):
                while raw := await stdout.readline():
                    if line := raw.decode("utf-8", "replace").strip():
                        return line
        except TimeoutError:
            said = f"{self._command[0]} said nothing for {STALL_S:.0f} s and was ended; try again"
            raise LlmUnavailable(said) from None
        except ValueError:
            raise LlmAnswerInvalid(f"{self._command[0]} wrote a line of more than {MOST_LINE_BYTES:,} bytes") from None
        return ""


async def _outcome(process: asyncio.subprocess.Process, errors: "asyncio.Future[bytes]") -> Outcome:
    """How a program ended that closed its output, whether or not something it started goes on."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS_S):
            await process.wait()
            await asyncio.wait([errors])
    stderr = errors.result().decode("utf-8", "replace") if errors.done() else ""
    return Outcome("", stderr, 1 if process.returncode is None else process.returncode)


def _prompt(said: Sequence[Said]) -> str:
    """The conversation as one prompt: the command keeps no session."""
    if len(said) == 1:
        return said[0].text
    earlier = "\n\n".join(f"{each.role.capitalize()}: {each.text}" for each in said[:-1])
    return f"The conversation so far:\n\n{earlier}\n\nAnswer this:\n\n{said[-1].text}"


def _text(event: dict[str, Any]) -> str:
    inner = event.get("event") or {}
    delta = inner.get("delta") or {}
    return str(delta.get("text", "")) if delta.get("type") == "text_delta" else ""


def _result(event: dict[str, Any]) -> Result | None:
    try:
        return Result.model_validate(event)
    except ValidationError:
        return None

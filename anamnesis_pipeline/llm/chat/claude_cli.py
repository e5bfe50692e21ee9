"""Chat with Claude's command line, on this machine or over SSH, paid by its subscription.

It streams its output (https://code.claude.com/docs/en/headless, `stream-json`), without tools, settings and a
transcript. No process is left when the client disconnects.
"""

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.llm.chat.base import MOST_OUTPUT_TOKENS, STALL_S, Delta, Said, most_tokens
from anamnesis_pipeline.llm.chat.command import Running, running_here
from anamnesis_pipeline.llm.chat.http import MOST_LINE_BYTES, read
from anamnesis_pipeline.llm.prices import Model
from anamnesis_pipeline.llm.summaries.claude_cli import (
    BARE,
    OWN_TOKENS,
    QUIET,
    WITHOUT,
    ClaudeCliBackend,
    Result,
    environment_here,
)
from anamnesis_pipeline.model import LlmUse

_LIMITS = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(MOST_OUTPUT_TOKENS)}


class ClaudeCliChat:
    """Chat with one model of Claude Code.

    :param command: the program and its leading arguments.
    :param host: where it runs, as in `ssh`; empty: this machine.
    """

    name = "claude_cli"
    is_paid = False
    is_local = False
    has_tools = False

    def __init__(self, model: Model, command: str, host: str) -> None:
        self.model = model.name
        self._command, self._host = shlex.split(command), host
        self._who = f"{self._command[0]} on {host}" if host else self._command[0]
        self._errors = ClaudeCliBackend(model, command, host, STALL_S)

    def expected(self, system: str, said: Sequence[Said]) -> LlmUse:
        """Return an upper bound of an answer's use; the subscription pays, so no dollars."""
        return LlmUse(1, most_tokens(system, said) + OWN_TOKENS, MOST_OUTPUT_TOKENS)

    async def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer from the command; tools are not supported."""
        del tools
        result: Result | None = None
        async with self._running(system, _prompt(said)) as running:
            while line := await self._line(running.stdout):
                event = read(line, self._who)
                if event.get("type") == "result":
                    result = _result(event)
                elif text := _text(event):
                    yield Delta(text)
            if result is None:
                raise self._errors.failed(await running.outcome())
        if result.is_error or not result.subtype.startswith("success"):
            raise self._errors.refused(result)
        usage = result.usage
        tokens_in = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        yield Delta(used=LlmUse(1, tokens_in, usage.output_tokens, result.total_cost_usd or 0.0))

    async def close(self) -> None:
        """Do nothing: no connection stays open between answers."""

    def _running(self, system: str, prompt: str) -> AbstractAsyncContextManager[Running]:
        arguments = [
            "--print",
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-partial-messages",
            "--model",
            self.model,
            "--system-prompt",
            system,
            *BARE,
        ]
        if self._host:
            from anamnesis_pipeline.llm.chat.ssh_command import running_there

            command = [*self._command, *arguments]
            return running_there(self._host, command, prompt, environment=_LIMITS | QUIET, without=WITHOUT)
        command = [str(Path(self._command[0]).expanduser()), *self._command[1:], *arguments]
        return running_here(command, prompt, environment_here() | QUIET | _LIMITS)

    async def _line(self, stdout: asyncio.StreamReader) -> str:
        """Return the next line that is not blank; empty at the end."""
        try:
            async with asyncio.timeout(STALL_S):
                while raw := await stdout.readline():
                    if line := raw.decode("utf-8", "replace").strip():
                        return line
        except TimeoutError:
            raise LlmUnavailable(f"{self._who} said nothing for {STALL_S:.0f} s and was ended; try again") from None
        except ValueError:
            raise LlmAnswerInvalid(f"{self._who} wrote a line of more than {MOST_LINE_BYTES:,} bytes") from None
        return ""


def _prompt(said: Sequence[Said]) -> str:
    """Return the conversation as one prompt, since the command keeps no session."""
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

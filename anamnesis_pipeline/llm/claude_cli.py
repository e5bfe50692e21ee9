"""Claude's command line, on this machine or over SSH, paid by its subscription.

It runs as https://code.claude.com/docs/en/headless describes: one prompt over standard input, JSON out, and without the
extras of a session: tools, MCP servers, hooks, skills, settings, CLAUDE.md, a transcript. A chat answer is streamed
(`stream-json`), and no process is left when the client disconnects.
"""

import asyncio
import json
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from anamnesis_pipeline.errors import (
    AnamnesisError,
    BadSetting,
    LlmAnswerInvalid,
    LlmBusy,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm import provider
from anamnesis_pipeline.llm.commands import GRACE_S, MAX_LINE_BYTES, Command, LocalCommand, Outcome, RemoteCommand
from anamnesis_pipeline.llm.prices import MODELS, Model, most_input_tokens
from anamnesis_pipeline.llm.prompts import SCHEMA, Request
from anamnesis_pipeline.llm.provider import MAX_ANSWER_TOKENS, PROBE_S, ChatTurn, Delta, LlmOptions, Provider, Reply
from anamnesis_pipeline.llm.refusals import LONGEST_WAIT_S, error_of_status
from anamnesis_pipeline.model import LlmUse
from anamnesis_pipeline.sources.specs import parse_place

WITHOUT = (
    # API keys and clouds, paid by the token, would override the subscription.
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    # Inside another session Claude refuses to start, or joins that one.
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
)
"""Variables removed from the command's environment, as are ours, which may hold keys."""
OWN_PREFIX = "ANAMNESIS_"
QUIET = {
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}
BARE = (
    "--tools",
    "",
    "--strict-mcp-config",
    "--setting-sources",
    "",
    "--disable-slash-commands",
    "--no-session-persistence",
)
"""Options that disable the extras of a session."""
ROUNDS = 2
"""Rounds per call: the structured answer is a tool call, which repeats the prompt."""
OWN_TOKENS = 8_000
"""Input tokens that Claude Code adds in each round."""

_LIMIT = re.compile(r"(?:usage|session|weekly|opus|sonnet|5-hour) limit|limit reached|hit your (?:\w+ )?limit", re.I)
_LIMIT_UNTIL = re.compile(r"\|\s*(\d{10})\b")
_STATUS = re.compile(r"(?:API Error:?|Request rejected)\D{0,20}\b([45]\d\d)\b")
_OLD = re.compile(r"unknown option|unrecognized (?:option|argument)", re.I)
_SAID: tuple[tuple[str, type[AnamnesisError], str], ...] = (
    (
        r"/login|not logged in|invalid api key|oauth token|authentication_error",
        LlmRefused,
        "is not logged in; run `claude` there once and log in",
    ),
    (r"credit balance", LlmRefused, "has no credit left; log in there with a subscription"),
    (r"has (?:been )?disabled", LlmRefused, "may not be used: its organization has disabled it"),
    (r"selected model", LlmRefused, "does not know the model, or may not use it; set summary_model"),
    (r"temporarily limiting|overloaded", LlmBusy, "is asked to wait by the service"),
    (r"prompt is too long", LlmAnswerInvalid, "finds the prompt too long for its model"),
)
"""Claude's error texts and their meaning: https://code.claude.com/docs/en/errors."""


class _Usage(BaseModel):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Result(BaseModel):
    """The last object that both output formats print."""

    subtype: str = "success"
    is_error: bool = False
    result: str | None = None
    structured_output: dict[str, Any] | None = None
    api_error_status: int | None = None
    usage: _Usage = _Usage()
    total_cost_usd: float | None = None
    """Price of the call by the token; a subscription pays it."""

    @property
    def used(self) -> LlmUse:
        """The use of the call, without dollars."""
        usage = self.usage
        tokens_in = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        return LlmUse(1, tokens_in, usage.output_tokens)


class ClaudeCli(Provider):
    """Claude Code with one model.

    :param command: the program and its leading arguments.
    :param host: where it runs, as in `ssh`; empty: this machine.
    :param timeout_s: of a whole summary.
    """

    name = "claude_cli"
    has_tools = False
    concurrency = 2

    def __init__(self, known: Model, command: str, host: str, timeout_s: float) -> None:
        self._command, self._host, self._timeout_s = shlex.split(command), host, timeout_s
        super().__init__(known, f"{self._command[0]} on {host}" if host else self._command[0])

    @classmethod
    def opened(cls, options: LlmOptions) -> Self:
        """Check command, host and model."""
        try:
            words = shlex.split(options.claude_command)
        except ValueError:
            words = []
        if not words:
            raise BadSetting(f"claude_command must be a command line, not {options.claude_command!r}")
        try:
            parse_place(options.claude_host or "here")
        except BadSetting as problem:
            raise BadSetting(f"claude_host: {problem}") from None
        known = options.model_of(cls.name, is_paid=False)
        return cls(known, options.claude_command, options.claude_host, options.timeout_s)

    @classmethod
    async def models(cls, options: LlmOptions) -> tuple[str, ...]:
        """Return the known models if the command runs."""
        await cls.opened(options)._check_version(PROBE_S)
        return tuple(model.name for model in MODELS if model.backend == cls.name)

    @classmethod
    def cost(cls, options: LlmOptions) -> str:
        """Return `subscription`."""
        del options
        return "subscription"

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of the use of `ask`; the subscription pays, so no dollars."""
        tokens_in = ROUNDS * (most_input_tokens(request) + OWN_TOKENS)
        return LlmUse(1, tokens_in, ROUNDS * request.max_output_tokens)

    def expected_answer(self, system: str, turns: Sequence[ChatTurn]) -> LlmUse:
        """Return an upper bound of the use of `stream`; the subscription pays, so no dollars."""
        return LlmUse(1, provider.max_tokens(system, turns) + OWN_TOKENS, MAX_ANSWER_TOKENS)

    def ask(self, request: Request) -> Reply:
        """Run Claude once."""
        arguments = ["--print", "--output-format", "json", "--json-schema", json.dumps(SCHEMA)]
        arguments += ["--model", self.model, "--system-prompt", request.system, *BARE]
        limits = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(request.max_output_tokens), "MAX_THINKING_TOKENS": "0"}
        outcome = asyncio.run(self._whole(arguments, request.text, self._timeout_s, limits))
        result = _result(outcome.stdout)
        if result is None:
            raise self._failed(outcome)
        self._check(result)
        text = result.result if result.structured_output is None else json.dumps(result.structured_output)
        return Reply(text or "", result.used)

    def probe(self, timeout_s: float) -> None:
        """Check that the command exists and runs."""
        asyncio.run(self._check_version(timeout_s))

    async def stream(self, system: str, turns: Sequence[ChatTurn], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer from the command; it has no tools."""
        del tools
        prompt = turns[-1].text
        if len(turns) > 1:  # the command keeps no session
            earlier = "\n\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in turns[:-1])
            prompt = f"The conversation so far:\n\n{earlier}\n\nAnswer this:\n\n{prompt}"
        arguments = ["--print", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
        arguments += ["--model", self.model, "--system-prompt", system, *BARE]
        limits = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(MAX_ANSWER_TOKENS)}
        result: _Result | None = None
        async with self._running(arguments, prompt, limits) as running:
            while line := await self._line(running.stdout):
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    event = None
                if not isinstance(event, dict):
                    raise LlmAnswerInvalid(f"{self._who} sent something else than a chat answer; is it Claude Code?")
                if event.get("type") == "result":
                    result = _validated(event)
                    continue
                delta = (event.get("event") or {}).get("delta") or {}
                if delta.get("type") == "text_delta" and (text := str(delta.get("text", ""))):
                    yield Delta(text)
            if result is None:
                raise self._failed(await running.outcome())
        self._check(result)
        yield Delta(used=replace(result.used, dollars=result.total_cost_usd or 0.0))

    def close(self) -> None:
        """Do nothing: no connection stays open between calls."""

    async def close_chat(self) -> None:
        """Do nothing: no connection stays open between answers."""

    def _running(
        self, arguments: Sequence[str], text: str, limits: Mapping[str, str], seconds: int | None = None
    ) -> Command:
        added = {**limits, **QUIET}
        command = [*self._command, *arguments]
        if self._host:
            return RemoteCommand(self._host, command, text, environment=added, without=WITHOUT, seconds=seconds)
        command[0] = str(Path(command[0]).expanduser())
        environment = {k: v for k, v in os.environ.items() if k not in WITHOUT and not k.startswith(OWN_PREFIX)}
        return LocalCommand(command, text, environment | added)

    async def _whole(self, arguments: Sequence[str], text: str, timeout_s: float, limits: Mapping[str, str]) -> Outcome:
        running = self._running(arguments, text, limits, int(timeout_s) + 1)
        return await running.whole(timeout_s + GRACE_S if self._host else timeout_s)

    async def _check_version(self, timeout_s: float) -> None:
        outcome = await self._whole(["--version"], "", timeout_s, {})
        if outcome.status:
            raise self._failed(outcome)

    async def _line(self, stdout: asyncio.StreamReader) -> str:
        """Return the next line that is not blank; empty at the end."""
        try:
            async with asyncio.timeout(provider.STALL_S):
                while raw := await stdout.readline():
                    if line := raw.decode("utf-8", "replace").strip():
                        return line
        except TimeoutError:
            raise LlmUnavailable(
                f"{self._who} said nothing for {provider.STALL_S:.0f} s and was ended; try again"
            ) from None
        except ValueError:
            raise LlmAnswerInvalid(f"{self._who} wrote a line of more than {MAX_LINE_BYTES:,} bytes") from None
        return ""

    def _check(self, result: _Result) -> None:
        """Raise the error that Claude reports."""
        if result.is_error or not result.subtype.startswith("success"):
            raise self._refused(result)

    def _failed(self, outcome: Outcome) -> AnamnesisError:
        """Return the error for a missing result. The command's output may quote the prompt, so it is not repeated."""
        if outcome.status in (126, 127):
            return LlmRefused(f"cannot run {self._who}; set claude_command to its path")
        if _OLD.search(outcome.stderr):
            return LlmRefused(f"{self._who} is too old for the options it gets; run `claude update` there")
        if outcome.status == 0:
            return LlmAnswerInvalid(f"{self._who} printed no JSON result; is it Claude Code?")
        return self._refused(_Result(is_error=True, result=outcome.stdout + outcome.stderr), outcome.status)

    def _refused(self, result: _Result, status: int = 0) -> AnamnesisError:
        """Return our error for one that Claude reports."""
        said = result.result or ""
        if _LIMIT.search(said):
            problem = f"the subscription of {self._who} has reached its limit"
            until = _LIMIT_UNTIL.search(said)
            if until is None:
                return LlmRefused(problem)
            return LlmBusy(problem, min(max(int(until[1]) - time.time(), 0.0), LONGEST_WAIT_S))
        for pattern, kind, meaning in _SAID:
            if re.search(pattern, said, re.I):
                return kind(f"{self._who} {meaning}")
        if result.subtype.startswith(("error_max", "error_structured")):
            return LlmAnswerInvalid(f"{self._who} gave up on a structured answer")
        found = _STATUS.search(said)
        http_status = result.api_error_status or (int(found[1]) if found else 0)
        if http_status:
            return error_of_status(self._who, http_status, message=said[found.end() :].lstrip() if found else said)
        return LlmUnavailable(f"{self._who} failed" + (f" with status {status}" if status else ""))


def _result(stdout: str) -> _Result | None:
    """Return the result object, alone or at the end of a list of messages (with `verbose` set); None: there is none."""
    try:
        found = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    items = found if isinstance(found, list) else [found]
    results = [item for item in items if isinstance(item, dict) and item.get("type") == "result"]
    return _validated(results[-1]) if results else None


def _validated(event: dict[str, Any]) -> _Result | None:
    try:
        return _Result.model_validate(event)
    except ValidationError:
        return None

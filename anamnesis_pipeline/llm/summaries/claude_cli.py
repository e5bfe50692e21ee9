"""Claude's command line, on this machine or over SSH, paid by its subscription.

It runs as https://code.claude.com/docs/en/headless describes: one prompt over standard input, JSON out, and without the
extras of a session: tools, MCP servers, hooks, skills, settings, CLAUDE.md, a transcript.
"""

import json
import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid, LlmBusy, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.local_command import Outcome, run_here
from anamnesis_pipeline.llm.prices import Model, most_input_tokens
from anamnesis_pipeline.llm.refusals import LONGEST_WAIT_S, error_of_status
from anamnesis_pipeline.llm.summaries.base import Reply, Request
from anamnesis_pipeline.llm.summaries.prompt import SCHEMA
from anamnesis_pipeline.model import LlmUse

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


class Result(BaseModel):
    """The last object that `--output-format json` prints."""

    subtype: str = "success"
    is_error: bool = False
    result: str | None = None
    structured_output: dict[str, Any] | None = None
    api_error_status: int | None = None
    usage: _Usage = _Usage()
    total_cost_usd: float | None = None
    """Price of the call by the token; a subscription pays it."""


class ClaudeCliBackend:
    """Claude Code with one model.

    :param command: the program and its leading arguments.
    :param host: where it runs, as in `ssh`; empty: this machine.
    """

    name = "claude_cli"
    is_paid = False
    is_local = False
    concurrency = 2

    def __init__(self, model: Model, command: str, host: str, timeout_s: float) -> None:
        self.model = model.name
        self._command = shlex.split(command)
        self._host = host
        self._timeout_s = timeout_s

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of the use of `ask`; the subscription pays, so no dollars."""
        tokens_in = ROUNDS * (most_input_tokens(request) + OWN_TOKENS)
        return LlmUse(1, tokens_in, ROUNDS * request.max_output_tokens)

    def ask(self, request: Request) -> Reply:
        """Run Claude once. Raises as `SummaryBackend.ask` says."""
        limits = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(request.max_output_tokens), "MAX_THINKING_TOKENS": "0"}
        outcome = self._run(self._arguments(request), request.text, self._timeout_s, limits)
        result = _result(outcome.stdout)
        if result is None:
            raise self.failed(outcome)
        if result.is_error or not result.subtype.startswith("success"):
            raise self.refused(result)
        text = result.result if result.structured_output is None else json.dumps(result.structured_output)
        usage = result.usage
        tokens_in = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        return Reply(text or "", LlmUse(1, tokens_in, usage.output_tokens))

    def probe(self, timeout_s: float) -> None:
        """Check that the command exists and runs. Raises as `SummaryBackend.probe` says."""
        outcome = self._run(["--version"], "", timeout_s, {})
        if outcome.status:
            raise self.failed(outcome)

    def close(self) -> None:
        """Do nothing: no connection stays open between calls."""

    def _run(self, arguments: Sequence[str], text: str, timeout_s: float, limits: Mapping[str, str]) -> Outcome:
        added = {**limits, **QUIET}
        if self._host:
            from anamnesis_pipeline.llm.ssh_command import run_there

            command = [*self._command, *arguments]
            return run_there(self._host, command, text, timeout_s, environment=added, without=WITHOUT)
        program = str(Path(self._command[0]).expanduser())
        command = [program, *self._command[1:], *arguments]
        return run_here(command, text, environment_here() | added, timeout_s)

    def _arguments(self, request: Request) -> list[str]:
        return [
            "--print",
            "--output-format",
            "json",
            "--model",
            self.model,
            "--system-prompt",
            request.system,
            "--json-schema",
            json.dumps(SCHEMA),
            *BARE,
        ]

    @property
    def _where(self) -> str:
        return f"{self._command[0]} on {self._host}" if self._host else self._command[0]

    def failed(self, outcome: Outcome) -> AnamnesisError:
        """Return the error for a missing result. The command's output may quote the prompt, so it is not repeated."""
        if outcome.status in (126, 127):
            return LlmRefused(f"cannot run {self._where}; set claude_command to its path")
        if _OLD.search(outcome.stderr):
            return LlmRefused(f"{self._where} is too old for the options it gets; run `claude update` there")
        if outcome.status == 0:
            return LlmAnswerInvalid(f"{self._where} printed no JSON result; is it Claude Code?")
        return self.refused(Result(is_error=True, result=outcome.stdout + outcome.stderr), outcome.status)

    def refused(self, result: Result, status: int = 0) -> AnamnesisError:
        """Return our error for one that Claude reports."""
        said = result.result or ""
        if _LIMIT.search(said):
            return self._limited(said)
        for pattern, kind, meaning in _SAID:
            if re.search(pattern, said, re.I):
                return kind(f"{self._where} {meaning}")
        if result.subtype.startswith(("error_max", "error_structured")):
            return LlmAnswerInvalid(f"{self._where} gave up on a structured answer")
        found = _STATUS.search(said)
        http_status = result.api_error_status or (int(found[1]) if found else 0)
        if http_status:
            return error_of_status(self._where, http_status, message=said[found.end() :].lstrip() if found else said)
        return LlmUnavailable(f"{self._where} failed" + (f" with status {status}" if status else ""))

    def _limited(self, said: str) -> AnamnesisError:
        until = _LIMIT_UNTIL.search(said)
        if until is None:
            return LlmRefused(f"the subscription of {self._where} has reached its limit")
        wait = min(max(int(until[1]) - time.time(), 0.0), LONGEST_WAIT_S)
        return LlmBusy(f"the subscription of {self._where} has reached its limit", wait)


def environment_here() -> dict[str, str]:
    """Return the environment of the command on this machine, without its added variables."""
    return {k: v for k, v in os.environ.items() if k not in WITHOUT and not k.startswith(OWN_PREFIX)}


def _result(stdout: str) -> Result | None:
    """Return the result object, alone or at the end of a list of messages (with `verbose` set); None: there is none."""
    try:
        found = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    items = found if isinstance(found, list) else [found]
    results = [item for item in items if isinstance(item, dict) and item.get("type") == "result"]
    try:
        return Result.model_validate(results[-1]) if results else None
    except ValidationError:
        return None

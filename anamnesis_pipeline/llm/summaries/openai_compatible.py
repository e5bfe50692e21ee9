"""Any service that speaks OpenAI's chat completions: OpenAI, OpenRouter, vLLM, llama.cpp, LM Studio, MLX."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, Field, ValidationError

from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.llm.endpoints import address_of, is_loopback
from anamnesis_pipeline.llm.prices import Model, most_input_tokens, most_use
from anamnesis_pipeline.llm.refusals import error_of_status
from anamnesis_pipeline.llm.summaries.base import Reply, Request
from anamnesis_pipeline.llm.summaries.prompt import SCHEMA
from anamnesis_pipeline.model import LlmUse

CONNECT_TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 1_000_000

_SCHEMA_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "session_summary", "strict": True, "schema": SCHEMA},
}
_OBJECT_FORMAT = {"type": "json_object"}
_FORMAT_REFUSED = frozenset({400, 415, 422, 501})
"""Statuses of servers that do not support the `response_format`."""


_LISTED = frozenset({200, 404, 405, 501})
"""Statuses of reachable servers; some have no list of models."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class OpenAiBackend:
    """A service with one model, at a base URL without `/chat/completions`.

    :param timeout_s: of the whole answer, which comes in one piece.
    """

    name = "openai"
    concurrency = 4

    def __init__(self, model: Model, url: str, timeout_s: float, api_key: str | None, *, is_paid: bool) -> None:
        self.model = model.name
        self.is_paid = is_paid
        self.is_local = is_loopback(url)
        self._known = model
        self._timeout_s = timeout_s
        host = urlsplit(url).hostname or ""
        self._service = f"the service at {address_of(url)}"
        # OpenAI's newer models refuse the name that all other servers use.
        self._limit_name = "max_completion_tokens" if host.endswith("openai.com") else "max_tokens"
        self._format: dict[str, Any] = _SCHEMA_FORMAT
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        self._client = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, trust_env=not self.is_local, follow_redirects=False
        )

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of the use of `ask`."""
        return most_use(self._known, request)

    def ask(self, request: Request) -> Reply:
        """Call once, or twice if the server refuses the schema. Raises as `SummaryBackend.ask` says."""
        status, headers, body = self._post(request, self._format)
        if status in _FORMAT_REFUSED and self._format is _SCHEMA_FORMAT:
            status, headers, body = self._post(request, _OBJECT_FORMAT)
            if status == 200:
                self._format = _OBJECT_FORMAT
        if status != 200:
            raise _refused(self._service, status, body, headers)
        return self._reply(request, body)

    def probe(self, timeout_s: float) -> None:
        """Check that it lists its models for this key. Raises as `SummaryBackend.probe` says."""
        try:
            response = self._client.get("models", timeout=timeout_s)
        except httpx.HTTPError as exc:
            raise _translated(exc, self._service) from None
        if response.status_code not in _LISTED:
            raise _refused(self._service, response.status_code, response.content, response.headers)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, request: Request, response_format: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        message = {
            "model": self.model,
            "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.text}],
            self._limit_name: request.max_output_tokens,
            "response_format": response_format,
        }
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        try:
            with self._client.stream("POST", "chat/completions", json=message) as response:
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MAX_REPLY_BYTES:
                        raise LlmAnswerInvalid(f"{self._service} sent more than {MAX_REPLY_BYTES:,} bytes")
                    if time.monotonic() > deadline:
                        raise _late(self._service)
        except httpx.HTTPError as exc:
            raise _translated(exc, self._service) from None
        return response.status_code, response.headers, bytes(body)

    def _reply(self, request: Request, body: bytes) -> Reply:
        try:
            answer = _Completion.model_validate_json(body)
        except ValidationError:
            raise LlmAnswerInvalid(f"{self._service} sent no chat completion; check that its URL ends in /v1") from None
        choice = answer.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise LlmAnswerInvalid(f"{self._service} refused to answer; the part keeps the summary it has")
        if choice.finish_reason == "length":
            raise LlmAnswerInvalid(f"{self.model} was cut off by the limit of its answer")
        text = choice.message.content or ""
        return Reply(text, self._used(request, text, answer.usage))

    def _used(self, request: Request, text: str, usage: _Usage | None) -> LlmUse:
        """Return the reported use; without a report, an upper bound."""
        tokens_in = usage.prompt_tokens if usage else most_input_tokens(request)
        tokens_out = usage.completion_tokens if usage else len(text.encode("utf-8", "replace"))
        return LlmUse(1, tokens_in, tokens_out, self._known.dollars(tokens_in, 0, 0, tokens_out))


class _Problem(BaseModel):
    type: str | None = None
    code: str | int | None = None
    message: str | None = None


class _ProblemBody(BaseModel):
    error: _Problem


def _refused(service: str, status: int, body: bytes, headers: Mapping[str, str]) -> AnamnesisError:
    problem = _problem_in(body)
    return error_of_status(service, status, (problem.type, problem.code), headers, problem.message or "")


def _problem_in(body: bytes) -> _Problem:
    """Return the error in the body; an empty one if it is not in OpenAI's form."""
    try:
        return _ProblemBody.model_validate_json(body).error
    except ValidationError:
        return _Problem()


def _late(service: str) -> LlmUnavailable:
    return LlmUnavailable(f"{service} took too long; raise summary_timeout_s if it is slow")


def _translated(exc: Exception, service: str) -> AnamnesisError:
    match exc:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return LlmUnavailable(f"{service} cannot be reached; is it running?")
        case httpx.TimeoutException():
            return _late(service)
        case _:
            return LlmUnavailable(f"{service} broke off in mid-answer ({type(exc).__name__}); try again later")

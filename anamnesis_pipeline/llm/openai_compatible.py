"""Any service that speaks OpenAI's chat completions: OpenAI, OpenRouter, vLLM, llama.cpp, LM Studio, MLX.

https://platform.openai.com/docs/api-reference/chat
"""

import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, Field, ValidationError

from anamnesis_pipeline.errors import AnamnesisError, BadSetting, LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.llm import provider
from anamnesis_pipeline.llm.endpoints import address_of, check_key, check_url, is_loopback
from anamnesis_pipeline.llm.prices import Model, most_input_tokens
from anamnesis_pipeline.llm.prompts import SCHEMA, SEARCH_FUNCTION, Request
from anamnesis_pipeline.llm.provider import METERED, PROBE_S, Call, ChatTurn, Delta, LlmOptions, Provider, Reply
from anamnesis_pipeline.llm.refusals import error_of_status

CONNECT_TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 1_000_000
MAX_LINE_CHARS = 1_000_000
MAX_ERROR_BYTES = 20_000

_SCHEMA_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "session_summary", "strict": True, "schema": SCHEMA},
}
_OBJECT_FORMAT = {"type": "json_object"}
_FORMAT_REFUSED = frozenset({400, 415, 422, 501})
"""Statuses of servers that do not support the `response_format`."""
_NO_LIST = frozenset({404, 405, 501})
"""Statuses of reachable servers without a list of models."""
_NO_CHAT = frozenset({"image", "video", "audio", "transcribe", "embedding", "moderation", "rerank"})
"""Model types without chat in the lists of some services (https://docs.together.ai/reference/models-1)."""


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


class OpenAiCompatible(Provider):
    """A service with one model, at a base URL without `/chat/completions`.

    :param timeout_s: of a whole summary, which comes in one piece.
    """

    name = "openai"
    concurrency = 4

    def __init__(self, known: Model, url: str, timeout_s: float, api_key: str | None, *, is_paid: bool) -> None:
        super().__init__(known, _who(url))
        self.is_paid, self.is_local = is_paid, is_loopback(url)
        self._url, self._api_key, self._timeout_s = url, api_key, timeout_s
        # OpenAI's newer models refuse the name that all other servers use.
        is_openai = (urlsplit(url).hostname or "").endswith("openai.com")
        self._limit_name = "max_completion_tokens" if is_openai else "max_tokens"
        self._format: dict[str, Any] = _SCHEMA_FORMAT

    @classmethod
    def opened(cls, options: LlmOptions) -> Self:
        """Check URL, key and model."""
        url, key = _access(options)
        is_paid = not is_loopback(url) or bool(options.input_price or options.output_price)
        known = options.model_of(cls.name, is_paid=is_paid)
        is_paid = is_paid and (known.input_price, known.output_price) != (0.0, 0.0)
        return cls(known, url, options.timeout_s, key, is_paid=is_paid)

    @classmethod
    async def models(cls, options: LlmOptions) -> tuple[str, ...]:
        """Return the listed models that can chat; none if the service has no list."""
        url, key = _access(options)
        who = f"the service at {url}"
        async with httpx.AsyncClient(**_settings(url, key, PROBE_S)) as client:
            with _translated(who, ""):
                reply = await client.get("models")
        if reply.status_code in _NO_LIST:
            return ()
        if reply.status_code != 200:
            raise error_of_status(who, reply.status_code)
        try:
            found = reply.json()
        except ValueError:
            raise LlmUnavailable(f"{who} answers with something else than JSON; check its URL") from None
        rows = (found.get("data") or []) if isinstance(found, dict) else found
        if not isinstance(rows, list):
            raise LlmUnavailable(f"{who} answers with something else than a list; check its URL")
        return tuple(str(row.get("id")) for row in rows if isinstance(row, dict) and row.get("type") not in _NO_CHAT)

    @classmethod
    def cost(cls, options: LlmOptions) -> str:
        """Return `local` for a service on this machine."""
        return "local" if is_loopback(options.openai_url) else METERED

    def ask(self, request: Request) -> Reply:
        """Call once, or twice if the server refuses the schema."""
        status, headers, body = self._post(request, self._format)
        if status in _FORMAT_REFUSED and self._format is _SCHEMA_FORMAT:
            status, headers, body = self._post(request, _OBJECT_FORMAT)
            if status == 200:
                self._format = _OBJECT_FORMAT
        if status != 200:
            raise _refused(self._who, status, body, headers)
        try:
            answer = _Completion.model_validate_json(body)
        except ValidationError:
            raise LlmAnswerInvalid(f"{self._who} sent no chat completion; check that its URL ends in /v1") from None
        choice = answer.choices[0]
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise LlmAnswerInvalid(f"{self._who} refused to answer; the part keeps the summary it has")
        if choice.finish_reason == "length":
            raise LlmAnswerInvalid(f"{self.model} was cut off by the limit of its answer")
        text, usage = choice.message.content or "", answer.usage
        if usage is None:  # not reported: an upper bound
            return Reply(text, self._used(most_input_tokens(request), len(text.encode("utf-8", "replace"))))
        return Reply(text, self._used(usage.prompt_tokens, usage.completion_tokens))

    def probe(self, timeout_s: float) -> None:
        """Check that it lists its models for this key."""
        with _translated(self._who, _LATE):
            response = self._client.get("models", timeout=timeout_s)
        if response.status_code != 200 and response.status_code not in _NO_LIST:
            raise _refused(self._who, response.status_code, response.content, response.headers)

    async def stream(self, system: str, turns: Sequence[ChatTurn], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer as server-sent events."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, *map(_message, turns)],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit_name: provider.MAX_ANSWER_TOKENS,
        }
        if tools:
            body["tools"] = [SEARCH_FUNCTION]
        calls = _Calls()
        reason, used, written = "", None, 0
        silent = f"sent nothing for {provider.STALL_S:.0f} s and was given up; try again"
        with _translated(self._who, silent):
            async with self._chat_client.stream("POST", "chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    raise _refused(self._who, reply.status_code, await _beginning(reply), reply.headers)
                async for event in self._events(reply):
                    if usage := event.get("usage"):
                        used = self._used(int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0)))
                    for choice in event.get("choices") or []:
                        delta = choice.get("delta") or {}
                        calls.take(delta.get("tool_calls") or [])
                        if text := delta.get("content"):
                            written += len(text.encode("utf-8", "replace"))
                            yield Delta(text)
                        reason = str(choice.get("finish_reason") or reason)
        if not reason:
            raise LlmUnavailable(f"{self._who} broke off in mid-answer; try again")
        yield Delta(calls=calls.whole(), used=used or self._used(provider.max_tokens(system, turns), written))
        self._check_whole(reason)

    def close(self) -> None:
        """Close the connections of `ask`."""
        if "_client" in vars(self):
            self._client.close()

    async def close_chat(self) -> None:
        """Close the connections of `stream`."""
        if "_chat_client" in vars(self):
            await self._chat_client.aclose()

    @cached_property
    def _client(self) -> httpx.Client:
        return httpx.Client(**_settings(self._url, self._api_key, self._timeout_s))

    @cached_property
    def _chat_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**_settings(self._url, self._api_key, provider.STALL_S))

    def _post(self, request: Request, response_format: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        message = {
            "model": self.model,
            "messages": [{"role": "system", "content": request.system}, {"role": "user", "content": request.text}],
            self._limit_name: request.max_output_tokens,
            "response_format": response_format,
        }
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        with (
            _translated(self._who, _LATE),
            self._client.stream("POST", "chat/completions", json=message) as response,
        ):
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MAX_REPLY_BYTES:
                    raise LlmAnswerInvalid(f"{self._who} sent more than {MAX_REPLY_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise LlmUnavailable(f"{self._who} {_LATE}")
        return response.status_code, response.headers, bytes(body)

    async def _events(self, reply: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        """Yield the JSON objects of server-sent events, until `[DONE]` or the end.

        :raises AnamnesisError: one is too long, no JSON object, or reports an error, whose message is not repeated.
        """
        async for line in reply.aiter_lines():
            if len(line) > MAX_LINE_CHARS:
                raise LlmAnswerInvalid(f"{self._who} sent a line of more than {MAX_LINE_CHARS:,} characters")
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise LlmAnswerInvalid(f"{self._who} sent something else than a chat answer; check its URL")
            if error := event.get("error"):
                said = error if isinstance(error, dict) else {}
                codes = (said.get("type"), said.get("code"))
                raise error_of_status(self._who, 500, codes, {}, str(said.get("message", error)))
            yield event


class _Calls:
    """Tool calls that arrive in pieces, identified by an index. Some servers give all calls the same index."""

    def __init__(self) -> None:
        self._calls: dict[int, list[dict[str, str]]] = {}

    def take(self, pieces: Sequence[dict[str, Any]]) -> None:
        for piece in pieces:
            call_id = str(piece.get("id") or "")
            calls = self._calls.setdefault(int(piece.get("index") or 0), [])
            if not calls or (call_id and calls[-1]["id"] not in ("", call_id)):
                calls.append({"id": "", "name": "", "arguments": ""})
            call, function = calls[-1], piece.get("function") or {}
            call["id"] = call_id or call["id"]
            call["name"] += str(function.get("name") or "")
            call["arguments"] += str(function.get("arguments") or "")

    def whole(self) -> tuple[Call, ...]:
        return tuple(
            Call(call["id"], call["name"], provider.arguments_of(call["arguments"]))
            for _, calls in sorted(self._calls.items())
            for call in calls
        )


_LATE = "took too long; raise summary_timeout_s if it is slow"


def _who(url: str) -> str:
    return f"the service at {address_of(url)}"


def _access(options: LlmOptions) -> tuple[str, str | None]:
    """Return URL and key of the service; raise BadSetting for an invalid one."""
    if not options.openai_url:
        raise BadSetting("openai_url must be set, e.g. http://127.0.0.1:8080/v1")
    key = check_key("openai_api_key", options.openai_api_key) if options.openai_api_key else None
    return check_url("openai_url", options.openai_url), key


@cache
def _trusted() -> ssl.SSLContext:
    """Return the TLS context, cached: loading certificates takes some 20 ms, and every answer has a separate client."""
    return httpx.create_ssl_context()


def _settings(url: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    """Return the settings of a client that follows no redirects: a prompt goes only to its configured host."""
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
        "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
        "trust_env": not is_loopback(url),
        "follow_redirects": False,
        "verify": _trusted(),
    }


async def _beginning(reply: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in reply.aiter_bytes():
        body += piece
        if len(body) > MAX_ERROR_BYTES:
            break
    return bytes(body)


def _refused(who: str, status: int, body: bytes, headers: Mapping[str, str]) -> AnamnesisError:
    """Return the error for a reply; its body may report it in OpenAI's form."""
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        error = None
    said = error if isinstance(error, dict) else {"message": error or ""}
    codes = (said.get("type"), said.get("code"))
    return error_of_status(who, status, codes, headers, str(said.get("message", "")))


@contextmanager
def _translated(who: str, silent: str) -> Iterator[None]:
    """Translate errors of httpx; `silent` says what a timeout means."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise LlmUnavailable(f"{who} cannot be reached; is it running?") from None
    except httpx.TimeoutException:
        raise LlmUnavailable(f"{who} {silent or 'did not answer in time; try again'}") from None
    except httpx.HTTPError as exc:
        raise LlmUnavailable(f"{who} broke off in mid-answer ({type(exc).__name__}); try again later") from None


def _message(turn: ChatTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for call in turn.calls
        ]
    if turn.role == "tool":
        message["tool_call_id"] = turn.call_id
    return message

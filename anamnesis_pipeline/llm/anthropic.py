"""The Claude API, by the `anthropic` library: summaries singly, or in batches at half the price, and streamed chat.

https://platform.claude.com/docs/en/build-with-claude/streaming. The library takes over a second to load, so it is
imported with the first call.
"""

import logging
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from anyio import to_thread

from anamnesis_pipeline.errors import AnamnesisError, BadSetting, LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.llm import provider
from anamnesis_pipeline.llm.endpoints import check_key, check_url
from anamnesis_pipeline.llm.prices import MODELS, Model, most_output_tokens
from anamnesis_pipeline.llm.prompts import SCHEMA, SEARCH_DESCRIPTION, SEARCH_PARAMETERS, SEARCH_TOOL, Request
from anamnesis_pipeline.llm.provider import (
    MAX_ANSWER_TOKENS,
    PROBE_S,
    BatchProvider,
    Call,
    ChatTurn,
    Delta,
    LlmOptions,
    Reply,
)
from anamnesis_pipeline.llm.refusals import code_words, error_of_status
from anamnesis_pipeline.model import LlmUse

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import Message
    from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

URL = "https://api.anthropic.com"
CONNECT_TIMEOUT_S = 10.0
RECENT_BATCHES = 100
BATCH_LIFETIME = timedelta(hours=25)
"""Batches end within 24 hours; no request of ours waits for an older one."""

_SERVICE = "the Claude API"
_WHOLE = {"message_start", "message_stop"}
_TOOL = {"name": SEARCH_TOOL, "description": SEARCH_DESCRIPTION, "input_schema": SEARCH_PARAMETERS}


class Anthropic(BatchProvider):
    """The Claude API with one model.

    A stream that is silent for the timeout is given up; the service's pings count as activity.
    """

    name = "anthropic"
    is_paid = True
    concurrency = 4

    def __init__(self, known: Model, options: LlmOptions) -> None:
        super().__init__(known, _SERVICE)
        self.batch_factor = known.batch_factor
        self._options = options

    @classmethod
    def opened(cls, options: LlmOptions) -> Self:
        """Check key, URL and model."""
        _access(options)
        return cls(options.model_of(cls.name, is_paid=True), options)

    @classmethod
    async def models(cls, options: LlmOptions) -> tuple[str, ...]:
        """Return the known models that the service lists for this key; all of them if it lists none of them."""
        _access(options)
        known = [model.name for model in MODELS if model.backend == cls.name]
        async with await to_thread.run_sync(_async_client, options, PROBE_S) as client:
            with _translated():
                listed = {each.id for each in (await client.models.list()).data}
        return tuple([name for name in known if name in listed] or known)

    def ask(self, request: Request) -> Reply:
        """Make one streamed call."""
        with _translated(), self._client.messages.stream(**self._params(request)) as stream:
            seen = {event.type for event in stream}
            message = stream.current_message_snapshot if seen >= _WHOLE else None
        if message is None:
            raise LlmUnavailable(f"{_SERVICE} broke off in mid-answer; try again later")
        if problem := _problem(message):
            raise LlmAnswerInvalid(problem)
        return Reply(_text(message), _used(self._known, message, batch=False))

    def probe(self, timeout_s: float) -> None:
        """Check that the service knows the model under this key."""
        with _translated():
            self._client.models.retrieve(self.model, timeout=timeout_s)

    async def stream(self, system: str, turns: Sequence[ChatTurn], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer as server-sent events."""
        params: dict[str, Any] = {
            "model": self.model,
            "max_tokens": MAX_ANSWER_TOKENS,
            "system": system,
            "messages": _messages(turns),
        }
        if tools or any(turn.calls for turn in turns):  # earlier calls require the tool's definition
            params |= {"tools": [_TOOL], "tool_choice": {"type": "auto" if tools else "none"}}
        answer = _Answer()
        client = await to_thread.run_sync(lambda: self._chat_client)
        with _translated(f"sent nothing for {provider.STALL_S:.0f} s and was given up; try again"):
            async with await client.messages.create(**params, stream=True) as events:
                async for event in events:
                    if text := answer.take(event):
                        yield Delta(text)
        if not answer.ended:
            raise LlmUnavailable(f"{_SERVICE} broke off in mid-answer; try again")
        yield Delta(calls=answer.whole_calls(), used=self._used(answer.tokens_in, answer.tokens_out))
        self._check_whole(answer.reason)

    def submit(self, requests: Sequence[Request]) -> str:
        """Submit a batch; return its id."""
        entries: list[Any] = [{"custom_id": r.key, "params": self._params(r)} for r in requests]
        with _translated():
            return self._client.messages.batches.create(requests=entries).id

    def collect(self, batch_id: str, model: str) -> Mapping[str, Reply] | None:
        """Return the answers of a batch by key; None while it is pending."""
        known = self._known
        if model != self.model:
            known = self._options.model_of(self.name, is_paid=True, name=model)
        with _translated(gone=f"there is no batch {batch_id} any more; its parts are asked for again"):
            batch = self._client.messages.batches.retrieve(batch_id)
            if batch.processing_status != "ended":
                return None
            if not batch.results_url:
                raise LlmAnswerInvalid(f"the results of batch {batch_id} are gone; its parts are asked for again")
            results = self._client.messages.batches.results(batch_id)
            return {entry.custom_id: _result(known, entry) for entry in results}

    def find(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """Return a recent batch, none of `known`, that holds these requests.

        The service lists no requests of a pending batch; there an equal count must do.
        """
        with _translated():
            for batch in self._client.messages.batches.list(limit=RECENT_BATCHES).data:
                is_recent = datetime.now(UTC) - batch.created_at <= BATCH_LIFETIME
                if is_recent and batch.id not in known and self._holds(batch, set(keys)):
                    return batch.id
        return None

    def close(self) -> None:
        """Close the connections of `ask` and of batches."""
        if "_client" in vars(self):
            self._client.close()

    async def close_chat(self) -> None:
        """Close the connections of `stream`."""
        if "_chat_client" in vars(self):
            await self._chat_client.close()

    @cached_property
    def _client(self) -> "anthropic.Anthropic":
        import anthropic

        settings = _settings(self._options, self._options.timeout_s)
        http = anthropic.DefaultHttpxClient(timeout=settings["timeout"], follow_redirects=False)
        return anthropic.Anthropic(**settings, http_client=http)

    @cached_property
    def _chat_client(self) -> "anthropic.AsyncAnthropic":
        return _async_client(self._options, provider.STALL_S)

    def _params(self, request: Request) -> dict[str, Any]:
        params: dict[str, Any] = {
            "model": self.model,
            "max_tokens": most_output_tokens(self._known, request),
            "system": [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": request.text}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        }
        if self._known.thinking == "optional":
            params["thinking"] = {"type": "disabled"}
        if self._known.thinking == "always":
            params["output_config"]["effort"] = "low"
        return params

    def _holds(self, batch: "MessageBatch", keys: set[str]) -> bool:
        counts = batch.request_counts
        total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
        if total != len(keys):
            return False
        if batch.processing_status != "ended":
            return True
        if not batch.results_url:
            return False
        results = self._client.messages.batches.results(batch.id)
        try:
            return all(entry.custom_id in keys for entry in results)
        finally:
            results.close()


def _result(model: Model, entry: "MessageBatchIndividualResponse") -> Reply:
    """Return one answer of a batch. Refused and truncated answers have been paid for."""
    result = entry.result
    if result.type == "succeeded":
        used, problem = _used(model, result.message, batch=True), _problem(result.message)
        return Reply("" if problem else _text(result.message), used, problem)
    if result.type == "errored":
        said = ", ".join(code_words([result.error.error.type]))
        return Reply("", LlmUse(), f"the batch failed on it ({said}); it is asked for again")
    return Reply("", LlmUse(), f"the batch left it out ({result.type}); it is asked for again")


def _problem(message: "Message") -> str:
    """Return why a message is no answer; empty: it is one."""
    if message.stop_reason == "refusal":
        return f"{_SERVICE} refused to answer; the part keeps the summary it has"
    if message.stop_reason not in ("end_turn", "stop_sequence"):
        return f"{_SERVICE} stopped early ({message.stop_reason}); the answer is incomplete"
    return ""


def _text(message: "Message") -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _used(model: Model, message: "Message", *, batch: bool) -> LlmUse:
    usage = message.usage
    written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    dollars = model.dollars(usage.input_tokens, written, read, usage.output_tokens, batch=batch)
    return LlmUse(1, usage.input_tokens + written + read, usage.output_tokens, dollars)


@dataclass
class _Answer:
    """The chat answer received so far."""

    tokens_in: int = 0
    tokens_out: int = 0
    calls: dict[int, tuple[str, str, list[str]]] = field(default_factory=dict)
    ended: bool = False
    reason: str = ""

    def take(self, event: Any) -> str:
        """Process an event; return its text. Fields that the service leaves out are missing in the event."""
        match event.type:
            case "message_start":
                usage = event.message.usage
                kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
                self.tokens_in = sum(getattr(usage, kind, None) or 0 for kind in kinds)
            case "content_block_start" if event.content_block.type == "tool_use":
                self.calls[event.index] = (event.content_block.id, event.content_block.name, [])
            case "content_block_delta" if event.delta.type == "input_json_delta" and event.index in self.calls:
                self.calls[event.index][2].append(event.delta.partial_json)
            case "content_block_delta" if event.delta.type == "text_delta":
                return str(event.delta.text)
            case "message_delta":
                self.reason = getattr(getattr(event, "delta", None), "stop_reason", None) or self.reason
                self.tokens_out = event.usage.output_tokens or self.tokens_out
            case "message_stop":
                self.ended = True
        return ""

    def whole_calls(self) -> tuple[Call, ...]:
        found = [each for _, each in sorted(self.calls.items())]
        return tuple(Call(call_id, name, provider.arguments_of("".join(pieces))) for call_id, name, pieces in found)


def _messages(turns: Sequence[ChatTurn]) -> list[dict[str, Any]]:
    """Return the messages with alternating roles; results of several calls share one message."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if turn.role == "tool":
            blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": turn.call_id, "content": turn.text}]
        else:
            blocks = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
            blocks += [
                {"type": "tool_use", "id": call.call_id, "name": call.name, "input": dict(call.arguments)}
                for call in turn.calls
            ]
        role = "assistant" if turn.role == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _access(options: LlmOptions) -> tuple[str, str]:
    """Return key and URL of the service; raise BadSetting for an invalid one."""
    if not options.anthropic_api_key:
        raise BadSetting("anthropic_api_key must be set (ANAMNESIS_ANTHROPIC_API_KEY or ANTHROPIC_API_KEY)")
    key = check_key("anthropic_api_key", options.anthropic_api_key)
    return key, check_url("anthropic_url", options.anthropic_url) if options.anthropic_url else URL


def _settings(options: LlmOptions, timeout_s: float) -> dict[str, Any]:
    import httpx2

    # At level DEBUG the library logs whole requests, prompts included.
    logging.getLogger("anthropic").setLevel(logging.INFO)
    key, url = _access(options)
    timeout = httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
    return {"api_key": key, "base_url": url, "max_retries": 0, "timeout": timeout}


def _async_client(options: LlmOptions, timeout_s: float) -> "anthropic.AsyncAnthropic":
    import anthropic

    settings = _settings(options, timeout_s)
    http = anthropic.DefaultAsyncHttpxClient(timeout=settings["timeout"], follow_redirects=False)
    return anthropic.AsyncAnthropic(**settings, http_client=http)


@contextmanager
def _translated(silent: str = "was silent for too long; try again later", *, gone: str = "") -> Iterator[None]:
    """Translate errors of the library, which quote the service's reply: its own, httpx2's in mid-stream, and others on
    events that are not Claude's.

    :param silent: what a timeout means.
    :param gone: what status 404 means.
    """
    import anthropic
    import httpx2

    try:
        yield
    except (
        anthropic.AnthropicError,
        httpx2.HTTPError,
        RuntimeError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
    ) as exc:
        match exc:
            case anthropic.NotFoundError() if gone:
                problem: AnamnesisError = LlmAnswerInvalid(gone)
            case anthropic.APIStatusError():
                codes = (exc.type, exc.error_code)
                problem = error_of_status(_SERVICE, exc.status_code, codes, exc.response.headers, exc.message)
            case anthropic.APITimeoutError() | httpx2.TimeoutException():
                problem = LlmUnavailable(f"{_SERVICE} {silent}")
            case anthropic.APIConnectionError():
                problem = LlmUnavailable(f"{_SERVICE} cannot be reached; try again later")
            case _:
                problem = LlmUnavailable(f"{_SERVICE} broke off in mid-answer ({type(exc).__name__}); try again later")
        raise problem from None

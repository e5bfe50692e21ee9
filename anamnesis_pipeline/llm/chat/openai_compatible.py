"""Chat with any service with OpenAI's chat completions: https://platform.openai.com/docs/api-reference/chat."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from anamnesis_pipeline.llm.chat.base import (
    MOST_OUTPUT_TOKENS,
    SEARCH_DESCRIPTION,
    SEARCH_PARAMETERS,
    SEARCH_TOOL,
    Call,
    Delta,
    Said,
    arguments_of,
    most_tokens,
)
from anamnesis_pipeline.llm.chat.http import HttpChat
from anamnesis_pipeline.llm.endpoints import address_of, is_loopback
from anamnesis_pipeline.llm.prices import Model

_FUNCTION = {"name": SEARCH_TOOL, "description": SEARCH_DESCRIPTION, "parameters": SEARCH_PARAMETERS}


class OpenAiChat(HttpChat):
    """Chat with one model of a service, at a base URL without `/chat/completions`."""

    name = "openai"
    has_tools = True

    def __init__(self, model: Model, url: str, api_key: str | None, *, is_paid: bool) -> None:
        self.is_paid = is_paid
        self.is_local = is_loopback(url)
        host = urlsplit(url).hostname or ""
        # OpenAI's newer models refuse the name that all other servers use.
        self._limit = "max_completion_tokens" if host.endswith("openai.com") else "max_tokens"
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        super().__init__(model, f"the service at {address_of(url)}", url, headers)

    async def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer as server-sent events."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, *map(_message, said)],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit: MOST_OUTPUT_TOKENS,
        }
        if tools:
            body["tools"] = [{"type": "function", "function": _FUNCTION}]
        calls = _Calls()
        reason, used, written = "", None, 0
        async with self._events("chat/completions", body) as events:
            async for event in events:
                if usage := event.get("usage"):
                    used = self._used(int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0)))
                for choice in event.get("choices") or []:
                    delta = choice.get("delta") or {}
                    calls.take(delta.get("tool_calls") or [])
                    if text := delta.get("content"):
                        written += len(text.encode("utf-8", "replace"))
                        yield Delta(text)
                    reason = str(choice.get("finish_reason") or reason)
        if reason:
            yield Delta(calls=calls.whole(), used=used or self._used(most_tokens(system, said), written))
        self._check_end(reason, ended=bool(reason))


class _Calls:
    """Tool calls that arrive in pieces, identified by an index. Some servers give all calls the same index."""

    def __init__(self) -> None:
        self._calls: dict[int, list[dict[str, str]]] = {}

    def take(self, pieces: Sequence[dict[str, Any]]) -> None:
        for piece in pieces:
            call = self._of(int(piece.get("index") or 0), str(piece.get("id") or ""))
            function = piece.get("function") or {}
            call["name"] += str(function.get("name") or "")
            call["arguments"] += str(function.get("arguments") or "")

    def whole(self) -> tuple[Call, ...]:
        return tuple(
            Call(call["id"], call["name"], arguments_of(call["arguments"]))
            for _, calls in sorted(self._calls.items())
            for call in calls
        )

    def _of(self, index: int, call_id: str) -> dict[str, str]:
        """Return the call of a piece: the last of its index, or a new one if the piece has another id."""
        calls = self._calls.setdefault(index, [])
        if not calls or (call_id and calls[-1]["id"] not in ("", call_id)):
            calls.append({"id": "", "name": "", "arguments": ""})
        calls[-1]["id"] = call_id or calls[-1]["id"]
        return calls[-1]


def _message(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": said.role, "content": said.text}
    if said.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for call in said.calls
        ]
    if said.role == "tool":
        message["tool_call_id"] = said.call_id
    return message

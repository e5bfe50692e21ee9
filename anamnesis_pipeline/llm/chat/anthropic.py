"""Chat with the Claude API: https://platform.claude.com/docs/en/build-with-claude/streaming."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.llm.chat.base import (
    MOST_OUTPUT_TOKENS,
    SEARCH_DESCRIPTION,
    SEARCH_PARAMETERS,
    SEARCH_TOOL,
    Call,
    Delta,
    Said,
    arguments_of,
)
from anamnesis_pipeline.llm.chat.http import HttpChat
from anamnesis_pipeline.llm.prices import Model

URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
_TOOL = {"name": SEARCH_TOOL, "description": SEARCH_DESCRIPTION, "input_schema": SEARCH_PARAMETERS}


@dataclass
class _Message:
    """The answer received so far."""

    tokens_in: int = 0
    tokens_out: int = 0
    calls: dict[int, tuple[str, str, list[str]]] = field(default_factory=dict)
    ended: bool = False
    reason: str = ""

    def take(self, event: dict[str, Any]) -> str:
        """Process an event; return its text."""
        match event.get("type"):
            case "message_start":
                usage = (event.get("message") or {}).get("usage") or {}
                self.tokens_in = sum(int(usage.get(f"{kind}input_tokens") or 0) for kind in _KINDS)
            case "content_block_start":
                block = event.get("content_block") or {}
                if block.get("type") == "tool_use":
                    self.calls[int(event["index"])] = (str(block["id"]), str(block["name"]), [])
            case "content_block_delta":
                delta = event.get("delta") or {}
                if delta.get("type") == "input_json_delta" and event["index"] in self.calls:
                    self.calls[event["index"]][2].append(str(delta.get("partial_json", "")))
                return str(delta.get("text", "")) if delta.get("type") == "text_delta" else ""
            case "message_delta":
                self.reason = str((event.get("delta") or {}).get("stop_reason") or self.reason)
                self.tokens_out = int((event.get("usage") or {}).get("output_tokens") or self.tokens_out)
            case "message_stop":
                self.ended = True
        return ""

    def whole_calls(self) -> tuple[Call, ...]:
        found = [each for _, each in sorted(self.calls.items())]
        return tuple(Call(call_id, name, arguments_of("".join(pieces))) for call_id, name, pieces in found)


_KINDS = ("", "cache_creation_", "cache_read_")


class AnthropicChat(HttpChat):
    """Chat with one model of the Claude API."""

    name = "anthropic"
    is_paid = True
    is_local = False
    has_tools = True

    def __init__(self, model: Model, api_key: str, url: str = "") -> None:
        headers = {"x-api-key": api_key, "anthropic-version": VERSION}
        super().__init__(model, "the Claude API", url or URL, headers)

    async def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer as server-sent events."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": MOST_OUTPUT_TOKENS,
            "system": system,
            "messages": _messages(said),
            "stream": True,
        }
        if tools or any(each.calls for each in said):  # earlier calls require the tool's definition
            body |= {"tools": [_TOOL], "tool_choice": {"type": "auto" if tools else "none"}}
        message = _Message()
        async with self._events("/v1/messages", body) as events:
            async for event in events:
                if text := message.take(event):
                    yield Delta(text)
        if message.ended:
            yield Delta(calls=message.whole_calls(), used=self._used(message.tokens_in, message.tokens_out))
        self._check_end(message.reason, ended=message.ended)


def _messages(said: Sequence[Said]) -> list[dict[str, Any]]:
    """Return the messages with alternating roles; results of several calls share one message."""
    messages: list[dict[str, Any]] = []
    for each in said:
        role = "assistant" if each.role == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += _blocks(each)
        else:
            messages.append({"role": role, "content": _blocks(each)})
    return messages


def _blocks(said: Said) -> list[dict[str, Any]]:
    if said.role == "tool":
        return [{"type": "tool_result", "tool_use_id": said.call_id, "content": said.text}]
    text = [{"type": "text", "text": said.text}] if said.text.strip() else []
    return [*text, *map(_call, said.calls)]


def _call(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": dict(call.arguments)}

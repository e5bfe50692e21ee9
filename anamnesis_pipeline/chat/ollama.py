"""Chat with a model of Ollama: https://docs.ollama.com/api/chat."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from anamnesis_pipeline.chat.base import (
    MOST_OUTPUT_TOKENS,
    SEARCH_DESCRIPTION,
    SEARCH_PARAMETERS,
    SEARCH_TOOL,
    Call,
    Delta,
    Said,
    check_whole,
    most_tokens,
)
from anamnesis_pipeline.chat.http import client, lines_of, read, told
from anamnesis_pipeline.errors import LlmUnavailable
from anamnesis_pipeline.summaries.endpoints import is_loopback
from anamnesis_pipeline.summary_model import LlmUse

_FUNCTION = {"name": SEARCH_TOOL, "description": SEARCH_DESCRIPTION, "parameters": SEARCH_PARAMETERS}
WINDOWS = (16_384, 32_768, 65_536, 131_072)
"""Tokens of context that are asked for, since the server's own default cuts the beginning off. Few sizes, because the
server loads the model anew for each; of one that is more than the model has it takes what the model has.
"""
BYTES_A_TOKEN = 3
"""Of texts in most languages; fewer of code."""


class OllamaChat:
    """See `ChatBackend`."""

    name = "ollama"
    is_paid = False
    has_tools = True

    def __init__(self, model: str, url: str) -> None:
        self.model = model
        # Models of Ollama's cloud are named so; a server on this machine passes their prompts on.
        self.is_local = is_loopback(url) and not model.endswith(("-cloud", ":cloud"))
        self._who = f"ollama at {url}"
        self._client = client(url)

    def expected(self, system: str, said: Sequence[Said]) -> LlmUse:
        """See `ChatBackend.expected`."""
        return LlmUse(1, most_tokens(system, said), MOST_OUTPUT_TOKENS)

    async def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """See `ChatBackend.stream`."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, *map(_message, said)],
            "stream": True,
            "options": {"num_ctx": _window(system, said), "num_predict": MOST_OUTPUT_TOKENS},
        }
        if tools:
            body["tools"] = [{"type": "function", "function": _FUNCTION}]
        done, reason = False, None
        async with lines_of(self._client, "/api/chat", body, self._who) as lines:
            async for line in lines:
                event = read(line, self._who)
                if "error" in event:
                    raise told(self._who, event["error"])
                message = event.get("message") or {}
                text, calls = str(message.get("content") or ""), _calls(message)
                if text or calls:
                    yield Delta(text, calls)
                if event.get("done"):
                    done, reason = True, event.get("done_reason")
                    used = LlmUse(1, int(event.get("prompt_eval_count") or 0), int(event.get("eval_count") or 0))
                    yield Delta(used=used)
        if not done:
            raise LlmUnavailable(f"{self._who} broke off in mid-answer; try again")
        check_whole(self._who, reason)

    async def close(self) -> None:
        """See `ChatBackend.close`."""
        await self._client.aclose()


def _window(system: str, said: Sequence[Said]) -> int:
    """The smallest that holds all this and an answer, else the largest."""
    wanted = most_tokens(system, said) // BYTES_A_TOKEN + MOST_OUTPUT_TOKENS
    return next((size for size in WINDOWS if size >= wanted), WINDOWS[-1])


def _message(said: Said) -> dict[str, Any]:
    message: dict[str, Any] = {"role": said.role, "content": said.text}
    if said.calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": dict(call.arguments)}} for call in said.calls
        ]
    if said.role == "tool":
        message["tool_name"] = SEARCH_TOOL
    return message


def _calls(message: dict[str, Any]) -> tuple[Call, ...]:
    found = message.get("tool_calls") or []
    functions = [each.get("function") or {} for each in found]
    return tuple(
        Call(f"call-{number}", str(each.get("name", "")), each.get("arguments") or {})
        for number, each in enumerate(functions)
    )

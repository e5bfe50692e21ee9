"""Chat with an Ollama model, on the first of several servers that has it: https://docs.ollama.com/api/chat."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from anamnesis_pipeline.errors import AnamnesisError, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.chat.base import (
    MOST_OUTPUT_TOKENS,
    SEARCH_DESCRIPTION,
    SEARCH_PARAMETERS,
    SEARCH_TOOL,
    Call,
    Delta,
    Said,
    most_tokens,
)
from anamnesis_pipeline.llm.chat.http import PROBE_S, HttpChat, client, objects_of, rows_of
from anamnesis_pipeline.llm.endpoints import is_loopback
from anamnesis_pipeline.llm.prices import Model
from anamnesis_pipeline.model import LlmUse

_FUNCTION = {"name": SEARCH_TOOL, "description": SEARCH_DESCRIPTION, "parameters": SEARCH_PARAMETERS}
WINDOWS = (16_384, 32_768, 65_536, 131_072)
"""Requested context sizes in tokens; the server's default would cut off the beginning. Few sizes, since the server
reloads the model for each; it caps a size at the model's maximum."""
PATIENCE_S = 0.25
"""Seconds to wait for a server's list of models before a later one is preferred."""
BYTES_A_TOKEN = 3
"""For texts in most languages; code has fewer."""


class OllamaChat(HttpChat):
    """Chat with one model of Ollama.

    :param urls: the servers, at least one. Of several, the first answer selects one that is up and has the model.
    """

    name = "ollama"
    is_paid = False
    has_tools = True

    def __init__(self, model: Model, urls: Sequence[str]) -> None:
        super().__init__(model, _name(urls[0]), urls[0], reader=objects_of)
        # Suffixes of Ollama's cloud models; a local server forwards their prompts.
        self.is_local = all(map(is_loopback, urls)) and not model.name.endswith(("-cloud", ":cloud"))
        self._urls = tuple(urls)

    async def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer from the selected server."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, *map(_message, said)],
            "stream": True,
            "options": {"num_ctx": _window(system, said), "num_predict": MOST_OUTPUT_TOKENS},
        }
        if tools:
            body["tools"] = [{"type": "function", "function": _FUNCTION}]
        done, reason = False, None
        await self._choose()
        async with self._events("/api/chat", body) as events:
            async for event in events:
                message = event.get("message") or {}
                text, calls = str(message.get("content") or ""), _calls(message)
                if text or calls:
                    yield Delta(text, calls)
                if event.get("done"):
                    done, reason = True, event.get("done_reason")
                    used = LlmUse(1, int(event.get("prompt_eval_count") or 0), int(event.get("eval_count") or 0))
                    yield Delta(used=used)
        self._check_end(reason, ended=done)

    async def _choose(self) -> None:
        """Of several servers, select the first that has the model, for all further answers."""
        if len(self._urls) == 1:
            return
        url = await _server_with(self.model, self._urls)
        await self.close()
        self._urls, self._who, self._client = (url,), _name(url), client(url)


async def models_of(url: str) -> tuple[str, ...]:
    """Return the names of the models that a server has.

    :raises AnamnesisError: see `rows_of`.
    """
    found = await rows_of(url, "/api/tags", {}, _name(url), key="models")
    return tuple(str(each.get("model") or each.get("name")) for each in found)


async def _server_with(model: str, urls: Sequence[str]) -> str:
    """Return the first server that is up and has the model. All are checked concurrently; a slow one is skipped if a
    later one answers.

    :raises LlmUnavailable, LlmRefused: none has it; LlmRefused if all are up.
    """
    looks = [asyncio.create_task(_look(url, model)) for url in urls]
    try:
        for url, look in zip(urls, looks, strict=True):
            await asyncio.wait([look], timeout=PATIENCE_S)
            if look.done() and look.result() is None:
                return url
        pending = set(looks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for url, look in zip(urls, looks, strict=True):
                if look in done and look.result() is None:
                    return url
    finally:
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
    problems = [problem for look in looks if (problem := look.result())]
    kind = LlmRefused if all(isinstance(each, LlmRefused) for each in problems) else LlmUnavailable
    raise kind("; ".join(map(str, problems)))


async def _look(url: str, model: str) -> AnamnesisError | None:
    """Return why a server cannot answer with a model; None: it can."""
    try:
        async with asyncio.timeout(PROBE_S):
            names = await models_of(url)
    except TimeoutError:
        return LlmUnavailable(f"{_name(url)} did not answer within {PROBE_S:.0f} s")
    except AnamnesisError as exc:
        return exc
    if {model, f"{model}:latest"} & {*names}:
        return None
    return LlmRefused(f"{_name(url)} has no model {model!r}; run `ollama pull {model}` there")


def _name(url: str) -> str:
    return f"ollama at {url}"


def _window(system: str, said: Sequence[Said]) -> int:
    """Return the smallest context size that holds the conversation and an answer.

    :raises LlmRefused: none does; the server would cut off the beginning silently.
    """
    wanted = most_tokens(system, said) // BYTES_A_TOKEN + MOST_OUTPUT_TOKENS
    for size in WINDOWS:
        if size >= wanted:
            return size
    raise LlmRefused(
        f"the conversation with its files is some {wanted:,} tokens long, and Ollama is asked for {WINDOWS[-1]:,} at "
        "most; leave files out, or begin a new conversation"
    )


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

"""Services that chat, on loopback, in their own wire formats: each answers with the same words, piece by piece."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anamnesis_tests.support.loopback import Answer, LoopbackServer, Received, json_answer

WORDS = ("The crane ", "was moved ", "on Thursday.")
KINDS = ("ollama", "openai", "anthropic")


class ChatServer(LoopbackServer):
    """Ollama, an OpenAI-compatible service and the Claude API at one address. `script` answers first; what is put into
    `searches` is asked of the tool before the words come.
    """

    searches: tuple[str, ...] = ()
    words: Sequence[str] = WORDS
    after = "end"
    pause_s = 0.0

    def answer(self, request: Received) -> Answer:
        if self.script:
            return self.script.pop(0)
        if request.path == "/api/tags":
            return json_answer({"models": [{"name": "qwen3:4b", "model": "qwen3:4b"}]})
        if request.path == "/v1/models":
            return json_answer({"data": [{"id": "claude-haiku-5-5"}, {"id": "local-model"}]})
        query, self.searches = (self.searches[:1], self.searches[1:])
        made = {"/api/chat": ollama, "/v1/chat/completions": openai, "/v1/messages": anthropic}[request.path]
        pieces = made(() if query else self.words, query, is_whole=self.after == "end")
        return Answer(200, pieces, content_type="text/event-stream", after=self.after, pause_s=self.pause_s)

    @property
    def prompts(self) -> list[dict[str, Any]]:
        """The bodies of the calls that chat."""
        return [each.json for each in self.received if each.method == "POST"]


def ollama(words: Sequence[str], query: Sequence[str], *, is_whole: bool = True) -> tuple[bytes, ...]:
    """https://docs.ollama.com/api/chat"""
    calls = [{"function": {"name": "search_memory", "arguments": {"query": text}}} for text in query]
    events: list[dict[str, Any]] = [
        {"message": {"role": "assistant", "content": word}, "done": False} for word in words
    ]
    events += [{"message": {"role": "assistant", "content": "", "tool_calls": calls}, "done": False}] if calls else []
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "prompt_eval_count": 90, "eval_count": 12}
    return tuple(json.dumps(each).encode() + b"\n" for each in [*events, *([last] if is_whole else [])])


def openai(words: Sequence[str], query: Sequence[str], *, is_whole: bool = True) -> tuple[bytes, ...]:
    """https://platform.openai.com/docs/api-reference/chat-streaming"""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    for number, text in enumerate(query):
        first = {"index": number, "id": f"call_{number}", "type": "function", "function": {"name": "search_memory"}}
        written = json.dumps({"query": text})
        for piece in ({"arguments": written[:5]}, {"arguments": written[5:]}):
            call = {**first, "function": {**first["function"], **piece}}  # type: ignore[dict-item]
            chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
            first = {"index": number, "function": {}}
    ends = [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if query else "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 12}},
    ]
    data = [json.dumps(each) for each in [*chunks, *(ends if is_whole else [])]]
    return tuple(f"data: {each}\n\n".encode() for each in [*data, *(["[DONE]"] if is_whole else [])])


def anthropic(words: Sequence[str], query: Sequence[str], *, is_whole: bool = True) -> tuple[bytes, ...]:
    """https://platform.claude.com/docs/en/build-with-claude/streaming"""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": {"input_tokens": 90}}}]
    events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    deltas = [{"type": "text_delta", "text": word} for word in words]
    events += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    for number, text in enumerate(query, 1):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "search_memory", "input": {}}
        events.append({"type": "content_block_start", "index": number, "content_block": block})
        written = json.dumps({"query": text})
        for piece in (written[:4], written[4:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": number, "delta": delta})
    ends = [{"type": "message_delta", "usage": {"output_tokens": 12}}, {"type": "message_stop"}]
    told = [*events, *(ends if is_whole else [])]
    return tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in told)


_CLAUDE = """\
#!{python}
import json, os, sys, time
from pathlib import Path
if "--version" in sys.argv:
    print("2.1.0 (Claude Code)")
    sys.exit(0)
folder = Path({folder!r})
call = {{"arguments": sys.argv[1:], "stdin": sys.stdin.read(), "pid": os.getpid(), "environment": dict(os.environ)}}
(folder / "call.json").write_text(json.dumps(call))
told = json.loads((folder / "told.json").read_text())
for line in told["lines"]:
    print(line, flush=True)
sys.stderr.write(told["stderr"])
time.sleep(told["sleeps"])
sys.exit(told["status"])
"""


class ClaudeCommand:
    """A program that stands in for `claude --print --output-format stream-json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "claude"
        self.path.write_text(_CLAUDE.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(0o755)
        self.says(WORDS)

    def says(
        self, words: Sequence[str], *, is_error: str = "", stderr: str = "", sleeps: float = 0, ends: bool = True
    ) -> None:
        deltas = [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}} for word in words]
        lines: list[dict[str, Any]] = [{"type": "stream_event", "event": each} for each in deltas]
        used: dict[str, Any] = {"usage": {"input_tokens": 90, "output_tokens": 12}, "total_cost_usd": 0.0125}
        result = {"type": "result", "subtype": "success", "is_error": bool(is_error), "result": is_error} | used
        told = [*lines, *([result] if ends else [])]
        self.tell([json.dumps(each) for each in told], stderr, sleeps, status=int(bool(is_error)))

    def tell(self, lines: Sequence[str], stderr: str = "", sleeps: float = 0, status: int = 0) -> None:
        body = {"lines": list(lines), "stderr": stderr, "sleeps": sleeps, "status": status}
        (self.folder / "told.json").write_text(json.dumps(body))

    @property
    def call(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "call.json").read_text())
        return found

    @property
    def is_running(self) -> bool:
        try:
            os.kill(self.call["pid"], 0)
        except (ProcessLookupError, FileNotFoundError):
            return False
        return True

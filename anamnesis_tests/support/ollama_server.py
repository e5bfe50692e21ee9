"""Ollama's wire format on loopback: `/api/chat` as a stream of JSON lines, and its errors.

https://docs.ollama.com/api/chat and https://docs.ollama.com/api/errors.
"""

import json
from typing import Any

from anamnesis_tests.support.loopback import Answer, LoopbackServer, json_answer

MODEL = "llama3.2"


def _line(content: str, **last: Any) -> bytes:
    body = {
        "model": MODEL,
        "created_at": "2026-11-22T10:00:00.0Z",
        "message": {"role": "assistant", "content": content},
        "done": bool(last),
        **last,
    }
    return json.dumps(body).encode() + b"\n"


def streamed(text: str, done_reason: str = "stop", after: str = "end", pieces: int | None = None) -> Answer:
    """A streamed chat, of which only the first `pieces` lines are sent where that is given."""
    half = len(text) // 2
    end = {"done_reason": done_reason, "prompt_eval_count": 900, "eval_count": 120, "total_duration": 5, "done": True}
    lines = (_line(text[:half]), _line(text[half:]), _line("", **end))
    return Answer(200, lines[:pieces], content_type="application/x-ndjson", after=after)


def error(status: int, text: str = "SECRET-PROMPT quoted") -> Answer:
    """An error reply."""
    return json_answer({"error": text}, status)


def stream_error() -> Answer:
    """A stream that ends with an error after it has begun."""
    first = streamed("The cause", pieces=1).pieces
    return Answer(200, (*first, b'{"error": "SECRET-PROMPT quoted"}\n'), content_type="application/x-ndjson")


class OllamaServer(LoopbackServer):
    """One Ollama server; `respond` sets what its chats get."""

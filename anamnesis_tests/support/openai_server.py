"""The wire format of OpenAI's chat completions on loopback.

https://platform.openai.com/docs/api-reference/chat and /docs/guides/error-codes.
"""

from typing import Any

from anamnesis_tests.support.loopback import Answer, LoopbackServer, json_answer


def completion(text: str | None, finish_reason: str = "stop", *, usage: bool = True, **message: Any) -> Answer:
    """A chat completion."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1795342800,
        "model": "qwen3",
        "choices": [
            {
                "index": 0,
                "logprobs": None,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text, "refusal": None, **message},
            }
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020}
    return json_answer(body)


def error(status: int, kind: str | None, code: str | None = None, **headers: str) -> Answer:
    """An error reply. Its message quotes what was sent, as a service may."""
    problem = {"message": "Incorrect key sk-SECRET-KEY, SECRET-PROMPT", "type": kind, "param": None, "code": code}
    return json_answer({"error": problem}, status, **headers)


class OpenAiServer(LoopbackServer):
    """One service; `respond` sets what its completions get."""

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

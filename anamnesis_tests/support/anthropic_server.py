"""The Claude API's wire format on loopback: streamed messages, errors, and batches with their JSONL results.

https://platform.claude.com/docs/en/build-with-claude/streaming, /api/errors and /build-with-claude/batch-processing.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_tests.support.loopback import Answer, LoopbackServer, Received, json_answer

USAGE = {
    "input_tokens": 40,
    "cache_creation_input_tokens": 600,
    "cache_read_input_tokens": 1000,
    "output_tokens": 1,
    "service_tier": "standard",
}


def message(text: str, stop_reason: str | None = "end_turn", output_tokens: int = 80) -> dict[str, Any]:
    """A whole message object, as a batch's results hold it."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-5-5",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {**USAGE, "output_tokens": output_tokens},
    }


def event(kind: str, **data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def streamed(text: str, stop_reason: str = "end_turn", after: str = "end", pieces: int | None = None) -> Answer:
    """A streamed message, of which only the first `pieces` events are sent where that is given."""
    start = message("", None, 1)
    half = len(text) // 2
    events = (
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": text[:half]}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": text[half:]}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage={"output_tokens": 80}),
        event("message_stop"),
    )
    return Answer(200, events[:pieces], content_type="text/event-stream", after=after)


def calling(tool: str, number: int, **given: Any) -> Answer:
    """A streamed message that calls a tool; each `number` is another call."""
    use = {"type": "tool_use", "id": f"toolu_{number:02}", "name": tool, "input": {}}
    start = {**message("", None, 1), "id": f"msg_call_{number:02}"}
    events = (
        event("message_start", message=start),
        event("content_block_start", index=0, content_block=use),
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": json.dumps(given)}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 80}),
        event("message_stop"),
    )
    return Answer(200, events, content_type="text/event-stream")


def stream_error(kind: str) -> Answer:
    """A stream in which the service reports an error after it has begun."""
    begun = streamed("The cause", pieces=4)
    error = event("error", error={"type": kind, "message": "SECRET-PROMPT quoted"})
    return replace(begun, pieces=(*begun.pieces, error))


QUOTING = "sk-ant-SECRET-KEY and SECRET-PROMPT are quoted here"


def error(
    status: int, kind: str, details: dict[str, Any] | None = None, message: str = QUOTING, **headers: str
) -> Answer:
    """An error reply. Its message quotes what was sent, as a service may."""
    problem = {"type": kind, "message": message}
    body = {"type": "error", "error": problem | ({"details": details} if details else {}), "request_id": "req_01"}
    return json_answer(body, status, **headers)


def succeeded(key: str, text: str, stop_reason: str = "end_turn") -> dict[str, Any]:
    """A line of a batch's results."""
    return {"custom_id": key, "result": {"type": "succeeded", "message": message(text, stop_reason)}}


def errored(key: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """A line of a batch's results."""
    problem = {"type": "error", "error": {"type": kind, "message": "SECRET-PROMPT quoted"}, "request_id": "req_02"}
    return {"custom_id": key, "result": {"type": "errored", "error": problem}}


def left_out(key: str, kind: str = "expired") -> dict[str, Any]:
    """A line of a batch's results: `expired` or `canceled`."""
    return {"custom_id": key, "result": {"type": kind}}


class AnthropicServer(LoopbackServer):
    """Messages come from the script; batches are kept, are `in_progress` until `finish`, and give out their results."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: dict[str, list[dict[str, Any]]] = {}
        self.results: dict[str, list[dict[str, Any]]] = {}
        self.archived: set[str] = set()
        self.refusal: Answer | None = None
        """What every call about batches gets, where it is set."""
        self.holds_back = False
        """Whether a batch that was handed in is not answered with its id."""
        self.tail = b""
        """What the results end with beyond their lines."""
        self.created_at = datetime.now(UTC)

    def finish(self, batch_id: str, *lines: dict[str, Any]) -> None:
        """End a batch with these results."""
        self.results[batch_id] = list(lines)

    def answer(self, request: Received) -> Answer:
        path = request.path.partition("?")[0]
        if not path.startswith("/v1/messages/batches"):
            return super().answer(request)
        if self.refusal:
            return self.refusal
        match path.removeprefix("/v1/messages/batches").strip("/").split("/"):
            case [""] if request.method == "POST":
                batch_id = f"msgbatch_{len(self.batches):02}"
                self.batches[batch_id] = request.json["requests"]
                return Answer(after="stall") if self.holds_back else json_answer(self._batch(batch_id))
            case [""]:
                listed = [self._batch(batch_id) for batch_id in reversed(self.batches)]
                return json_answer({"data": listed, "has_more": False, "first_id": None, "last_id": None})
            case [batch_id, "results"]:
                lines = "".join(json.dumps(line) + "\n" for line in self.results[batch_id]).encode()
                return Answer(200, (lines[:37], lines[37:] + self.tail), content_type="application/x-jsonl")
            case [batch_id] if batch_id in self.batches:
                return json_answer(self._batch(batch_id))
        return error(404, "not_found_error")

    def _batch(self, batch_id: str) -> dict[str, Any]:
        ended, total = batch_id in self.results, len(self.batches[batch_id])
        url = f"{self.url}/v1/messages/batches/{batch_id}/results"
        return {
            "id": batch_id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {
                "processing": 0 if ended else total,
                "succeeded": total if ended else 0,
                "errored": 0,
                "canceled": 0,
                "expired": 0,
            },
            "created_at": self.created_at.isoformat(),
            "ended_at": self.created_at.isoformat() if ended else None,
            "expires_at": (self.created_at + timedelta(days=1)).isoformat(),
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": url if ended and batch_id not in self.archived else None,
        }

"""What is asked of the chat over HTTP, and how its answers are read."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx

from anamnesis_tests.support.chat_services import WORDS

SAID = "".join(WORDS)
NOTE = {"summary": "The harbour crane was moved to Thursday", "instance": "mac", "project": "acme"}
OWN_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def said(
    client: httpx.Client, message: str = "Where is the crane?", *, pause_s: float = 0, **more: Any
) -> list[dict[str, Any]]:
    """All events of an answer, read with a pause of so many seconds behind each."""
    with client.stream("POST", "/api/chat/stream", json={"message": message, **more}) as reply:
        assert reply.status_code == 200, reply.read()
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = []
        for event in events_of(reply):
            time.sleep(pause_s)
            events.append(event)
        return events


def of(events: list[dict[str, Any]], name: str) -> list[Any]:
    return [event[name] for event in events if name in event]


def events_of(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """Events of an answer as they come."""
    return (json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: "))


def kept(client: httpx.Client, session_id: str) -> list[dict[str, Any]]:
    """The messages of a conversation."""
    messages: list[dict[str, Any]] = client.get(f"/api/chat/sessions/{session_id}").json()["messages"]
    return messages

"""The interface of chat backends. Answers are streamed, and end at once when the client disconnects."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from anamnesis_pipeline.errors import LlmAnswerInvalid
from anamnesis_pipeline.model import LlmUse

MOST_OUTPUT_TOKENS = 4_096
STALL_S = 180.0
"""Seconds of silence after which a service is given up. It may have to load a large model and read a long prompt first;
the user sees the wait and can stop it."""
ELSEWHERE = frozenset({"anthropic", "claude_cli"})
"""Backends that never run on this machine."""
SEARCH_TOOL = "search_memory"
SEARCH_DESCRIPTION = (
    "Search the memory of past sessions with Claude, of all machines and projects. Ask in the words that were likely "
    "used then. Returns dated quotes."
)
SEARCH_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for"},
        "top_k": {"type": "integer", "minimum": 1, "maximum": 10, "description": "Most results; 5 by default"},
    },
    "required": ["query"],
}


_CUT = frozenset({"max_tokens", "length", "model_context_window_exceeded"})
_REFUSED = frozenset({"refusal", "content_filter"})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call by the model."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of the conversation. `calls`: of an assistant; `call_id`: which call a `tool`'s text answers."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer: text, complete tool calls, or at the end its cost."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    used: LlmUse | None = None


class ChatBackend(Protocol):
    """One service with one model."""

    name: str
    model: str
    is_paid: bool
    is_local: bool
    """Whether the text stays on this machine."""
    has_tools: bool

    def expected(self, system: str, said: Sequence[Said]) -> LlmUse:
        """Return an upper bound of an answer's use."""

    def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer. Closing the iterator also ends the work at the service.

        :param tools: whether `search_memory` may be called.
        :raises LlmBusy, LlmUnavailable, LlmRefused, LlmPromptRefused, LlmAnswerInvalid: see `SummaryBackend.ask`.
        """

    async def close(self) -> None:
        """Close the connections."""


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call; empty if the model wrote no JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check_whole(who: str, reason: object) -> None:
    """:param reason: the service's reason for ending the answer.
    :raises LlmAnswerInvalid: the answer was cut off or refused.
    """
    if reason in _CUT:
        raise LlmAnswerInvalid(f"{who} stopped after {MOST_OUTPUT_TOKENS:,} tokens; ask it to go on")
    if reason in _REFUSED:
        raise LlmAnswerInvalid(f"{who} declined to answer this; put it another way, or choose another model")


def most_tokens(system: str, said: Sequence[Said]) -> int:
    """Return an upper bound of the input tokens: a token has at least one byte."""
    return sum(len(text.encode("utf-8", "replace")) for text in (system, *(each.text for each in said))) + 500

"""The contract of a model that chats. What it says comes piece by piece, and ends at once when nobody listens."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from anamnesis_pipeline.errors import LlmAnswerInvalid
from anamnesis_pipeline.summary_model import LlmUse

MOST_OUTPUT_TOKENS = 4_096
STALL_S = 180.0
"""A service that sends nothing for so long is given up. It may have to load a large model and to read a long prompt
first, and whoever waits sees that and can stop it.
"""
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
    """A call of a tool that the model asks for."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """One turn as the model is told it. `calls`: of an assistant; `call_id`: which call a `tool`'s text answers."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """What came: a piece of text, calls of tools once they are whole, and in the end what it cost."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    used: LlmUse | None = None


class ChatBackend(Protocol):
    """One service with one model."""

    name: str
    model: str
    is_paid: bool
    is_local: bool
    """Whether what is said stays on this machine."""
    has_tools: bool

    def expected(self, system: str, said: Sequence[Said]) -> LlmUse:
        """What an answer will use at most."""

    def stream(self, system: str, said: Sequence[Said], *, tools: bool) -> AsyncIterator[Delta]:
        """An answer. Whoever closes the iterator ends the work at the service, too.

        :param tools: whether `search_memory` may be called.
        :raises LlmBusy, LlmUnavailable, LlmRefused, LlmPromptRefused, LlmAnswerInvalid: see `SummaryBackend.ask`.
        """

    async def close(self) -> None:
        """Free connections."""


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call; none where a model wrote no JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check_whole(who: str, reason: object) -> None:
    """:param reason: why the service ended the answer, in its own words.
    :raises LlmAnswerInvalid: it did so in the middle, or said nothing on purpose.
    """
    if reason in _CUT:
        raise LlmAnswerInvalid(f"{who} stopped after {MOST_OUTPUT_TOKENS:,} tokens; ask it to go on")
    if reason in _REFUSED:
        raise LlmAnswerInvalid(f"{who} declined to answer this; put it another way, or choose another model")


def most_tokens(system: str, said: Sequence[Said]) -> int:
    """An upper bound of tokens in: a token has one byte at least."""
    return sum(len(text.encode("utf-8", "replace")) for text in (system, *(each.text for each in said))) + 500

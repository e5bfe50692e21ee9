"""View data of a conversation's page. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from markupsafe import Markup

from anamnesis_pipeline.model import FORGOTTEN, ChatMessage
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.sidecar.web.markdown import rendered

MAX_TURNS = 40
MAX_CHARS = 60_000
"""Max size of the messages on a page, in characters; older ones load on request."""
CITATION_CHARS = 450
"""Estimated size of one citation with markup."""
SUMMARY_CHARS = 160
"""Characters shown of each summary."""
UNANSWERED = "Not answered: it failed, or was stopped, before the first word."


@dataclass(frozen=True, slots=True)
class Turn:
    """A message with its view data."""

    message: ChatMessage
    html: Markup | None
    """The rendered answer."""
    facts: tuple[str, ...]
    is_last: bool = False


def latest(messages: Sequence[ChatMessage], before: str = "") -> tuple[Sequence[ChatMessage], str]:
    """Return the messages that fit on a page, and the id of the first if older ones are left out.

    :param before: only messages before this id; if empty or unknown, the newest.
    """
    ends = {message.message_id: number for number, message in enumerate(messages)}
    end = ends.get(before, len(messages))
    start, chars = end, 0
    while start and end - start < MAX_TURNS:
        chars += len(messages[start - 1].text) + CITATION_CHARS * len(messages[start - 1].citations)
        if chars > MAX_CHARS and start < end:
            break
        start -= 1
    return messages[start:end], messages[start].message_id if start else ""


def without(message: ChatMessage, hidden: Set[str]) -> ChatMessage:
    """Return the message as if these episodes were deleted. Pure."""
    cited = tuple(
        replace(each, summary=FORGOTTEN, project="") if each.episode_id in hidden else each
        for each in message.citations
    )
    return replace(message, citations=cited)


def turn_of(message: ChatMessage, *, is_last: bool = False) -> Turn:
    """Return the view of one message."""
    is_answer = message.role == "assistant"
    return Turn(message, rendered(message.text) if is_answer else None, facts_of(message), is_last)


def turns_of(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Return the views of all messages; the last answer's sources are expanded."""
    return [turn_of(message, is_last=message is messages[-1]) for message in messages]


def _cost(message: ChatMessage) -> str:
    if not message.dollars:
        return ""
    paid = " by the token, paid by the subscription" if message.backend == "claude_cli" else ""
    return f"${message.dollars:.4f}{paid}"


def facts_of(message: ChatMessage) -> tuple[str, ...]:
    """Return the model of an answer, and its time and cost."""
    tokens = message.output_tokens
    told = (
        message.backend,
        message.model,
        f"{message.seconds:.1f} s" if message.seconds else "",
        counted(tokens, "token") if tokens else "",
        _cost(message),
        "stopped" if message.stopped else "",
    )
    return tuple(each for each in told if each)

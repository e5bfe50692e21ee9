"""What the page of a conversation is drawn from. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from markupsafe import Markup

from anamnesis_pipeline.chat_model import FORGOTTEN, ChatMessage
from anamnesis_pipeline.sidecar.pages.markdown import rendered
from anamnesis_pipeline.wording import counted

MOST_TURNS = 40
MOST_CHARS = 60_000
"""Of the messages that are shown at once, as they cost in the page; the others come when they are asked for."""
CITATION_CHARS = 450
"""What one costs, with its markup."""
SUMMARY_CHARS = 160
"""Shown of each."""
UNANSWERED = "Not answered: it failed, or was stopped, before the first word."


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as it is shown."""

    message: ChatMessage
    html: Markup | None
    """Of an answer."""
    facts: tuple[str, ...]
    is_last: bool = False


def latest(messages: Sequence[ChatMessage], before: str = "") -> tuple[Sequence[ChatMessage], str]:
    """As many as a page may hold, and the id of the first of them when older ones are left out.

    :param before: only those before the message with this id; empty, or an id that is not there: the newest.
    """
    ends = {message.message_id: number for number, message in enumerate(messages)}
    end = ends.get(before, len(messages))
    start, chars = end, 0
    while start and end - start < MOST_TURNS:
        chars += len(messages[start - 1].text) + CITATION_CHARS * len(messages[start - 1].citations)
        if chars > MOST_CHARS and start < end:
            break
        start -= 1
    return messages[start:end], messages[start].message_id if start else ""


def without(message: ChatMessage, hidden: Set[str]) -> ChatMessage:
    """The message as if these episodes were gone. Pure."""
    cited = tuple(
        replace(each, summary=FORGOTTEN, project="") if each.episode_id in hidden else each
        for each in message.citations
    )
    return replace(message, citations=cited)


def turn_of(message: ChatMessage, *, is_last: bool = False) -> Turn:
    """One message as it is shown."""
    is_answer = message.role == "assistant"
    return Turn(message, rendered(message.text) if is_answer else None, facts_of(message), is_last)


def turns_of(messages: Sequence[ChatMessage]) -> list[Turn]:
    """All as they are shown; what the last answer leans on is unfolded."""
    return [turn_of(message, is_last=message is messages[-1]) for message in messages]


def _cost(message: ChatMessage) -> str:
    if not message.dollars:
        return ""
    paid = " by the token, paid by the subscription" if message.backend == "claude_cli" else ""
    return f"${message.dollars:.4f}{paid}"


def facts_of(message: ChatMessage) -> tuple[str, ...]:
    """What answered, and what it took."""
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

"""Assign messages to exchanges: a prompt and everything up to the next one."""

from dataclasses import dataclass

from anamnesis_pipeline.model import Message, SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs.identity import is_rewritten

PROMPT_HEAD = 300
"""Characters of the prompt that every chunk of its exchange carries."""

_BEGINS = frozenset({SegmentKind.PROMPT, SegmentKind.CHANNEL, SegmentKind.PLAN})
_NO_PROMPTS = frozenset(
    {
        SegmentKind.COMPACT_SUMMARY,
        SegmentKind.RECAP,
        SegmentKind.NOTIFICATION,
        SegmentKind.PEER,
        SegmentKind.MACHINE_PROMPT,
        SegmentKind.SKILL,
    }
)
"""An exchange may begin with one of these, but its text is no prompt."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Its ID hashes the text and time of its first message, so it is the same in every copy of the log."""

    exchange_id: str
    prompt: str


def exchange_of(message: Message, current: Exchange | None, *, in_subagent: bool) -> Exchange:
    """Return the exchange of `message`, given the one before it (None at the beginning of a file).

    Messages before the first prompt form an exchange as well, named after its first message.
    """
    if current is None or _begins_exchange(message.kind, in_subagent):
        head = "" if message.kind in _NO_PROMPTS else message.text[:PROMPT_HEAD]
        name = next(filter(is_rewritten, message.aliases), message.key)  # copies with another uuid share the alias
        return Exchange(content_id("exchange", name), head)
    return current


def _begins_exchange(kind: SegmentKind, in_subagent: bool) -> bool:
    return kind in _BEGINS or (in_subagent and kind is SegmentKind.AGENT_PROMPT)

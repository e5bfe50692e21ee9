"""Summaries of parts, and what the LLMs that write them may use."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class RecordType(StrEnum):
    """What a typed record states."""

    DECISION = "decision"
    LESSON = "lesson"
    PREFERENCE = "preference"
    FACT = "fact"
    ERROR = "error"
    """What went wrong, its root cause and its fix."""


MAX_RECORDS = 3
"""Typed records of one part; more are cut off."""


@dataclass(frozen=True, slots=True)
class TypedRecord:
    """One thing worth knowing later, in 1 to 3 sentences, with a one-line why.

    `message_ids` are uuids of the records it was drawn from, in order, at most 12.
    """

    type: RecordType
    text: str
    why: str = ""
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a summarizer made of one version of a part.

    `skip`: the summarizer found nothing worth remembering; the part stays searchable by its text. `problem` says why
    an LLM's summary is missing and an extractive one stands in; it is tried again at `retry_at`, and `attempts` calls
    for it have failed so far.
    """

    part_id: str
    content_hash: str
    text: str
    model: str
    tags: tuple[str, ...] = ()
    records: tuple[TypedRecord, ...] = ()
    skip: bool = False
    problem: str = ""
    retry_at: datetime | None = None
    attempts: int = 0
    reply_key: str = field(default="", compare=False)
    """What the reply that it was read from is cached under; empty for an extractive one."""


_ROUNDING = 1e-9
"""Dollars that sums of fractions may be off."""


@dataclass(frozen=True, slots=True)
class LlmUse:
    """What LLM calls used, or are held to have used: tokens in and out, and US dollars."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: "LlmUse") -> "LlmUse":
        """What both used together."""
        return LlmUse(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
        )


@dataclass(frozen=True, slots=True)
class LlmBudget:
    """Most that one day may use; None: no limit."""

    tokens: int | None = None
    dollars: float | None = None

    def holds(self, use: LlmUse) -> bool:
        """Whether a day that uses this much stays within it."""
        tokens = use.input_tokens + use.output_tokens
        return (self.tokens is None or tokens <= self.tokens) and (
            self.dollars is None or use.dollars <= self.dollars + _ROUNDING
        )

"""Summaries of chunks, and the usage and budget of the LLMs that write them."""

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
"""Max typed records of one chunk; the rest is dropped."""


@dataclass(frozen=True, slots=True)
class TypedRecord:
    """A fact worth knowing later, in 1 to 3 sentences, with a one-line reason.

    `message_ids` are uuids of the records it was drawn from, in order, at most 12.
    """

    type: RecordType
    text: str
    why: str = ""
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one version of a chunk.

    `skip`: nothing is worth remembering; the chunk stays searchable by its text. `problem`: why an LLM's summary is
    missing and an extractive one stands in. It is retried at `retry_at`, after `attempts` failed calls.
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
    """Cache key of the reply; empty for an extractive summary."""


_ROUNDING = 1e-9
"""Rounding error allowed in sums of dollars."""


@dataclass(frozen=True, slots=True)
class LlmUse:
    """Actual or booked use of LLM calls: tokens in and out, and US dollars."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: "LlmUse") -> "LlmUse":
        """Return the sum."""
        return LlmUse(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.dollars + other.dollars,
        )


@dataclass(frozen=True, slots=True)
class LlmBudget:
    """Max use per day; None: no limit."""

    tokens: int | None = None
    dollars: float | None = None

    def holds(self, use: LlmUse) -> bool:
        """Return whether this use of a day is within the budget."""
        tokens = use.input_tokens + use.output_tokens
        return (self.tokens is None or tokens <= self.tokens) and (
            self.dollars is None or use.dollars <= self.dollars + _ROUNDING
        )

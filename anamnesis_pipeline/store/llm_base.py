"""The contract of what a store keeps of LLM calls: replies, what they cost, and batches under way."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from anamnesis_pipeline.model import LlmBudget, LlmUse, Part


class LlmRecords(Protocol):
    """Replies of LLMs by what was asked, and what the calls cost. A day is a UTC date, e.g. `2026-11-22`."""

    def replies(self, keys: Sequence[str]) -> dict[str, str]:
        """Key -> reply, for those that are cached."""

    def note_asked(self, asked: Mapping[str, Part]) -> set[str]:
        """Key -> part, before an LLM is asked about the part under this key. Returns the keys that may be asked: not
        those of a part that was forgotten meanwhile, or is stored with another text or context by now.
        """

    def put_reply(self, key: str, reply: str, backend: str, model: str) -> bool:
        """Cache a reply; the first one stays. False, having written nothing, when what it is about was forgotten since
        it was asked for (`ForgetRecords.remove_parts`, `replace_parts`).
        """

    def forget_replies(self, keys: Sequence[str]) -> int:
        """Remove cached replies; returns how many there were."""

    def reserve(self, call_id: str, day: str, backend: str, model: str, expected: LlmUse, budget: LlmBudget) -> bool:
        """Book what a call may use, before it is made, in one immediate transaction.

        False, having written nothing, when the day's use, open calls counted as booked, would exceed the budget.
        """

    def settle(self, call_id: str, used: LlmUse) -> None:
        """Replace what was booked by what was used (nothing, for a call never made). A second call does nothing."""

    def used(self, day: str) -> LlmUse:
        """All of a day, open calls as booked."""

    def take_turn(self, backend: str, now: datetime, per_minute: int) -> float:
        """Book the next free moment of a call, of all processes together; the seconds to wait until then.

        Moments lie 60 / `per_minute` seconds apart.
        """

    def put_batch(self, batch_id: str, backend: str, call_id: str, keys: Sequence[str]) -> None:
        """Note a batch that was handed in, with the cache keys it will answer."""

    def open_batches(self, backend: str) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Batch id -> (call id, cache keys) of those not yet collected."""

    def close_batch(self, batch_id: str) -> None:
        """It was collected, or is lost."""

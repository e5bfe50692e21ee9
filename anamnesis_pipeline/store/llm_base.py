"""The contract of what a store keeps of LLM calls: replies, what they cost, and batches under way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.summary_model import LlmBudget, LlmUse

LONGEST_QUEUE_S = 3600.0
"""A turn further ahead than this was taken before the clock was set back."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Request keys that nobody else asks for from `since` until the call is settled, or `until` where it never is."""

    keys: tuple[str, ...]
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that was handed in and not yet collected: what it is booked as, its model, the keys it will answer."""

    call_id: str
    model: str
    keys: tuple[str, ...]


class LlmRecords(Protocol):
    """Replies of LLMs by what was asked, and what the calls cost. A day is a UTC date, e.g. `2026-11-22`."""

    def replies(self, keys: Sequence[str]) -> dict[str, str]:
        """Key -> reply, for those that are cached."""

    def note_asked(self, asked: Mapping[str, Part]) -> set[str]:
        """Key -> part, before an LLM is asked about the part under this key. Returns the keys that may be asked: not
        those of a part that was forgotten meanwhile, or is stored with another text or context by now.
        """

    def put_reply(self, key: str, reply: str, backend: str, model: str) -> bool:
        """Cache a reply; the first one stays, and what `put_failures` noted of the key goes. False, having written
        nothing, when what it is about was forgotten since it was asked for (`ForgetRecords.remove_parts`,
        `replace_parts`).
        """

    def rewrite_reply(self, key: str, before: str, after: str) -> bool:
        """Write another text for a cached reply, in one transaction. False, having written nothing, when there is none,
        or another than `before`.
        """

    def put_failures(self, problems: Mapping[str, str]) -> None:
        """Note why a batch brought no answer to these keys."""

    def failures(self, keys: Sequence[str]) -> dict[str, str]:
        """Key -> why a batch brought no answer to it, for those that have none since."""

    def reserve(
        self,
        call_id: str,
        day: str,
        backend: str,
        model: str,
        expected: LlmUse,
        budget: LlmBudget,
        lease: Lease | None = None,
    ) -> bool:
        """Book what a call may use, before it is made, and take its lease, in one immediate transaction.

        False, having written nothing, when the day's use, open calls counted as booked, would exceed the budget.

        :raises LlmCallTaken: an open call has a lease of one of the keys; nothing is written.
        """

    def renew(self, call_id: str, until: datetime) -> None:
        """Let the lease of an open call, if it has one, end at `until`."""

    def leased(self, keys: Sequence[str], now: datetime) -> set[str]:
        """Those of `keys` that an open call has a lease of."""

    def settle(self, call_id: str, used: LlmUse | None) -> None:
        """Replace what was booked by what was used (nothing, for a call never made; None: it stays as booked), and end
        its lease. A second call does nothing.
        """

    def used(self, day: str) -> LlmUse:
        """All of a day, open calls as booked."""

    def take_turn(self, backend: str, now: datetime, per_minute: int) -> float:
        """Book the next free moment of a call, of all processes together; the seconds to wait until then.

        Moments lie 60 / `per_minute` seconds apart.
        """

    def put_batch(self, batch_id: str, backend: str, batch: OpenBatch) -> None:
        """Note a batch that was handed in."""

    def open_batches(self, backend: str) -> dict[str, OpenBatch]:
        """Batch id -> those not yet collected, in the order in which they were handed in."""

    def close_batch(self, batch_id: str) -> None:
        """It was collected, or is lost."""

"""Many LLM calls handed in at once, for less money: submitted, noted, and collected into the cache by a later run.

A note that a batch is about to be handed in is written first, so that one whose id was lost in a crash can be found.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from anamnesis_pipeline.errors import (
    LlmAnswerInvalid,
    LlmBusy,
    LlmCallTaken,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.steps.llm_calls import LlmCaller, OnHold
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.llm import OpenBatch
from anamnesis_pipeline.summaries.base import BatchBackend, Reply, Request, SummaryBackend
from anamnesis_pipeline.summary_model import LlmUse

LOOK_AGAIN = timedelta(minutes=10)
"""Between two looks at a batch under way; also how long a note without an id is taken for a batch being handed in."""
BOOKINGS = 3
"""Tries to book a batch while others book what it asks for."""
_NOTE = "handing-in:"
_LEFT_OUT = Reply("", LlmUse(), "the batch holds no result of it; it is asked for again")


def takes_batches(backend: SummaryBackend) -> TypeGuard[BatchBackend]:
    """Whether it can be handed many requests at once."""
    return callable(getattr(backend, "submit", None))


class BatchDesk:
    """Hands in and collects the batches of one backend."""

    def __init__(
        self,
        store: Store,
        backend: BatchBackend,
        caller: LlmCaller,
        check: Callable[[str], object],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """:param check: raises LlmAnswerInvalid for a reply that cannot be read; such a one is not cached."""
        self._store = store
        self._backend = backend
        self._caller = caller
        self._check = check
        self._clock = clock

    def collect(self) -> None:
        """Put what is done into the cache.

        :raises OnHold: the service cannot be asked now.
        """
        batches = self._store.llm.open_batches(self._backend.name)
        for batch_id, batch in batches.items():
            self._collect(batch_id, batch, batches)

    def waiting(self) -> frozenset[str]:
        """The keys that batches under way are to answer, those of other runs included."""
        batches = self._store.llm.open_batches(self._backend.name).values()
        return frozenset(key for batch in batches for key in batch.keys)

    def submit(self, requests: Sequence[Request], at_least: int = 1) -> frozenset[str]:
        """Hand in those that nobody has asked for, as many as the day's budget holds. Returns their keys; none, and
        nothing is handed in, where these are fewer than `at_least` or the service takes no batch of them: asked for
        singly, they show whose fault that is.

        :raises OnHold: the service cannot be asked now, and what it was given may or may not have arrived.
        """
        booked = self._book(requests, at_least)
        if booked is None:
            return frozenset()
        call_id, chosen = booked
        batch = OpenBatch(call_id, self._backend.model, tuple(request.key for request in chosen))
        with self._caller.lease_kept(call_id):
            self._caller.wait_for_turn(call_id)
            is_taken = self._hand_in(batch, chosen)
        return frozenset(batch.keys) if is_taken else frozenset()

    def _book(self, requests: Sequence[Request], at_least: int) -> tuple[str, list[Request]] | None:
        """The call that a batch is booked as, and what it asks for."""
        for _ in range(BOOKINGS):
            chosen = self._unasked(requests)
            expected = [self._expected(request) for request in chosen]
            most = self._caller.affordable(expected)
            if most < at_least:
                return None
            chosen = chosen[:most]
            keys = [request.key for request in chosen]
            try:
                call_id = self._caller.book(sum(expected[:most], LlmUse()), keys)
            except LlmCallTaken:
                continue
            if call_id is not None and not self._store.llm.replies(keys):
                return call_id, chosen
            if call_id is not None:  # another run was faster
                self._store.llm.settle(call_id, LlmUse())
        return None

    def _unasked(self, requests: Sequence[Request]) -> list[Request]:
        """Those without a reply that no other run is asking for."""
        keys = [request.key for request in requests]
        asked = self._store.llm.leased(keys, self._clock()) | self._store.llm.replies(keys).keys()
        return [request for request in requests if request.key not in asked]

    def _expected(self, request: Request) -> LlmUse:
        single = self._backend.expected(request)
        return replace(single, dollars=single.dollars * self._backend.batch_factor)

    def _hand_in(self, batch: OpenBatch, requests: Sequence[Request]) -> bool:
        """Whether the service takes it."""
        call_id = batch.call_id
        note = f"{_NOTE}{self._clock().timestamp():.0f}:{call_id}"
        self._store.llm.put_batch(note, self._backend.name, batch)
        try:
            batch_id = self._backend.submit(requests)
        except (LlmRefused, LlmPromptRefused, LlmBusy, LlmAnswerInvalid) as exc:
            self._caller.failed(call_id, exc)
            self._store.llm.close_batch(note)
            if isinstance(exc, LlmPromptRefused):
                return False
            raise self._on_hold(exc) from exc
        except LlmUnavailable as exc:  # it may have arrived: the note stays until somebody has looked
            self._caller.breaker.found_nobody(str(exc))
            raise self._on_hold(exc) from exc
        self._caller.breaker.went_well()
        self._store.llm.put_batch(batch_id, self._backend.name, batch)
        self._store.llm.close_batch(note)
        return True

    def _collect(self, batch_id: str, batch: OpenBatch, known: Mapping[str, OpenBatch]) -> None:
        if batch_id.startswith(_NOTE) and self._is_being_handed_in(batch_id):
            return
        try:
            results = self._results(batch_id, batch, known)
        except LlmAnswerInvalid as exc:  # it is gone; what it cost stays booked
            self._caller.tell_breaker(exc)
            if sum(each.call_id == batch.call_id for each in known.values()) == 1:
                self._store.llm.settle(batch.call_id, None)
            self._store.llm.close_batch(batch_id)
            return
        except (LlmRefused, LlmPromptRefused, LlmBusy, LlmUnavailable) as exc:
            self._caller.tell_breaker(exc)
            raise self._on_hold(exc) from exc
        if results is None:
            return
        problems = {key: self._keep(key, results.get(key, _LEFT_OUT), batch.model) for key in batch.keys}
        self._store.llm.put_failures({key: problem for key, problem in problems.items() if problem})
        self._store.llm.settle(batch.call_id, sum((result.used for result in results.values()), LlmUse()))
        self._store.llm.close_batch(batch_id)

    def _results(self, batch_id: str, batch: OpenBatch, known: Collection[str]) -> Mapping[str, Reply] | None:
        """What became of a batch, or of the one that a note without an id is of; None while it is being worked on.

        :raises LlmAnswerInvalid: it is gone, or there is none.
        """
        self._caller.look_at_breaker()
        self._caller.wait_for_turn()
        found = self._backend.find(batch.keys, known) if batch_id.startswith(_NOTE) else batch_id
        if found is None:
            raise LlmAnswerInvalid(f"no batch holds what {batch_id} noted")
        results = self._backend.collect(found, batch.model)
        self._caller.breaker.went_well()
        # one that ended meanwhile as somebody else's is passed over by the next look
        return results if results is None or results.keys() <= set(batch.keys) else None

    def _is_being_handed_in(self, note: str) -> bool:
        since = float(note.removeprefix(_NOTE).partition(":")[0])
        return self._clock().timestamp() - since < LOOK_AGAIN.total_seconds()

    def _keep(self, key: str, reply: Reply, model: str) -> str:
        """Cache a reply that can be read; else why there is none."""
        if reply.problem:
            return reply.problem
        text = self._caller.masked(reply.text)
        try:
            self._check(text)
        except LlmAnswerInvalid as exc:
            return str(exc)
        self._store.llm.put_reply(key, text, self._backend.name, model)
        return ""

    def _on_hold(self, exc: Exception) -> OnHold:
        until = self._caller.breaker.state().until
        return OnHold(str(exc), until or self._clock() + LOOK_AGAIN)

"""LLM batches at a lower price: submitted, noted, and collected into the cache by a later run.

A note is written before a batch is submitted, so that a batch whose id was lost in a crash can be found.
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
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.llm.provider import BatchProvider, Provider, Reply
from anamnesis_pipeline.model import LlmUse
from anamnesis_pipeline.pipeline.llm_calls import LlmCaller, OnHold
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.llm import OpenBatch

LOOK_AGAIN = timedelta(minutes=10)
"""Interval between polls of a pending batch; also how long a note without an id counts as being submitted."""
BOOKINGS = 3
"""Attempts to book a batch while other runs book the same requests."""
_NOTE = "handing-in:"
_LEFT_OUT = Reply("", LlmUse(), "the batch holds no result of it; it is asked for again")


def takes_batches(backend: Provider) -> TypeGuard[BatchProvider]:
    """Return whether the backend takes batches."""
    return callable(getattr(backend, "submit", None))


class BatchDesk:
    """Submit and collect the batches of one backend."""

    def __init__(
        self,
        store: Store,
        backend: BatchProvider,
        caller: LlmCaller,
        check: Callable[[str], object],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """:param check: raises LlmAnswerInvalid for an unreadable reply, which is not cached."""
        self._store = store
        self._backend = backend
        self._caller = caller
        self._check = check
        self._clock = clock

    def collect(self) -> None:
        """Put the results of finished batches into the cache.

        :raises OnHold: the service cannot be called now.
        """
        batches = self._store.llm.open_batches(self._backend.name)
        for batch_id, batch in batches.items():
            self._collect(batch_id, batch, batches)

    def waiting(self) -> frozenset[str]:
        """Return the keys of all pending batches, other runs' included."""
        batches = self._store.llm.open_batches(self._backend.name).values()
        return frozenset(key for batch in batches for key in batch.keys)

    def submit(self, requests: Sequence[Request], at_least: int = 1) -> frozenset[str]:
        """Submit the requests that no run has made yet, as many as the day's budget holds, and return their keys.
        Submit nothing if these are fewer than `at_least`, or if the service refuses the batch: single calls then show
        which request is at fault.

        :raises OnHold: the service cannot be called now; the batch may or may not have arrived.
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
        """Return the id under which a batch is booked, and its requests."""
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
        """Return requests without a reply that no other run is making."""
        keys = [request.key for request in requests]
        asked = self._store.llm.leased(keys, self._clock()) | self._store.llm.replies(keys).keys()
        return [request for request in requests if request.key not in asked]

    def _expected(self, request: Request) -> LlmUse:
        single = self._backend.expected(request)
        return replace(single, dollars=single.dollars * self._backend.batch_factor)

    def _hand_in(self, batch: OpenBatch, requests: Sequence[Request]) -> bool:
        """Submit a batch; return whether the service accepted it."""
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
        except LlmUnavailable as exc:  # it may have arrived: keep the note until a later poll
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
        except LlmAnswerInvalid as exc:  # the batch is gone; its cost stays booked
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
        """Return the results of a batch, or of the batch behind a note without an id; None while pending.

        :raises LlmAnswerInvalid: the batch does not exist (any more).
        """
        self._caller.look_at_breaker()
        self._caller.wait_for_turn()
        found = self._backend.find(batch.keys, known) if batch_id.startswith(_NOTE) else batch_id
        if found is None:
            raise LlmAnswerInvalid(f"no batch holds what {batch_id} noted")
        results = self._backend.collect(found, batch.model)
        self._caller.breaker.went_well()
        # another run's batch that ended meanwhile: the next poll skips it
        return results if results is None or results.keys() <= set(batch.keys) else None

    def _is_being_handed_in(self, note: str) -> bool:
        since = float(note.removeprefix(_NOTE).partition(":")[0])
        return self._clock().timestamp() - since < LOOK_AGAIN.total_seconds()

    def _keep(self, key: str, reply: Reply, model: str) -> str:
        """Cache a readable reply and return ""; else return why there is none."""
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

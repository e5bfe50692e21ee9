"""Guarded LLM calls for summaries: cache, rate limit and retries of single calls, and batches at a lower price,
which a later run collects into the cache.

A note is written before a batch is submitted, so that a batch whose id was lost in a crash can be found.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmCallTaken,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.llm.provider import BatchProvider, Provider, Reply
from anamnesis_pipeline.model import LlmBudget, LlmUse
from anamnesis_pipeline.pipeline.crawl import Mask
from anamnesis_pipeline.pipeline.llm_guard import CALL_LEASE, Guard, OnHold
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.llm import OpenBatch

ATTEMPTS = 3
LONGEST_WAIT_S = 60.0
"""If a service asks for a longer wait, calls stop until then."""
FORGOTTEN = "what was asked about was forgotten or rewritten meanwhile"
BUSY_PAUSE_S = 60.0
"""Pause for a service that is still busy after all attempts and names no time."""
RENEWED_EVERY_S = 600.0
BEING_MADE = "its summary is being made by another run"
BEING_MADE_PAUSE = timedelta(minutes=1)
LOOK_AGAIN = timedelta(minutes=10)
"""Interval between polls of a pending batch; also how long a note without an id counts as being submitted."""
BOOKINGS = 3
"""Attempts to book a batch while other runs book the same requests."""
_NOTE = "handing-in:"
_LEFT_OUT = Reply("", LlmUse(), "the batch holds no result of it; it is asked for again")


@dataclass(frozen=True, slots=True)
class Answer:
    """A readable reply."""

    text: str
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no reply. `retry_at`: no call is made before then, about any chunk, unless `only_this` one waits;
    None: the failure concerns this chunk alone.
    """

    problem: str
    retry_at: datetime | None = None
    only_this: bool = False
    is_judged: bool = False
    """The LLM was reachable, and failed on this prompt."""

    @property
    def ends_the_run(self) -> bool:
        """Whether asking about other chunks is pointless now."""
        return self.retry_at is not None and not self.only_this


@dataclass(frozen=True, slots=True)
class Pace:
    """Budget, rate limit and attempts."""

    budget: LlmBudget
    requests_per_minute: int
    attempts: int = ATTEMPTS
    """Max calls until one is answered, with pauses in between."""


class Unreadable(LlmAnswerInvalid):
    """A reply that was paid for, but cannot be read."""


class LlmCaller(Guard):
    """Call one provider for summaries. Safe to share between threads.

    :param mask: applied to every reply before it is cached or returned: an LLM can reassemble a secret from pieces in
        its prompt, and a batch may have been masked by older rules.
    """

    def __init__(
        self,
        store: Store,
        provider: Provider,
        pace: Pace,
        mask: Mask,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(store, provider, pace.budget, clock)
        self._pace, self._mask, self._sleep = pace, mask, sleep
        self._backoff = wait_random_exponential(multiplier=1, max=LONGEST_WAIT_S)
        self._spent, self._lock = LlmUse(), threading.Lock()

    @property
    def spent(self) -> LlmUse:
        """Usage booked for single calls, unanswered ones included."""
        return self._spent

    def ask(
        self, request: Request, check: Callable[[str], object], last_check: Callable[[str], object] | None = None
    ) -> Answer | NoAnswer:
        """Return the reply from the cache, else from the service.

        :param check: raises LlmAnswerInvalid for an unreadable reply, which is not cached.
        :param last_check: checks a second reply, requested when the first is unreadable; None: make no second call.
        """
        known = self._store.llm.replies([request.key]).get(request.key)
        if known is not None:
            return Answer(known, is_cached=True)
        try:
            return self._ask(request, check, last_check)
        except OnHold as hold:
            return NoAnswer(str(hold), hold.until)
        except LlmCallTaken:
            return NoAnswer(BEING_MADE, self._clock() + BEING_MADE_PAUSE, only_this=True)
        except (LlmRefused, LlmBusy) as exc:
            if isinstance(exc, LlmBusy):
                self.breaker.was_told_to_wait(str(exc), exc.retry_after_s or BUSY_PAUSE_S)
            return NoAnswer(str(exc), self.breaker.state().until)
        except (LlmUnavailable, LlmPromptRefused, LlmAnswerInvalid) as exc:
            return NoAnswer(str(exc), is_judged=not isinstance(exc, LlmUnavailable))

    @contextmanager
    def lease_kept(self, call_id: str) -> Iterator[None]:
        """Keep the lease on this call's keys until the block ends, however long that takes."""
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(RENEWED_EVERY_S):
                with suppress(AnamnesisError):  # the store is busy: the next renewal is in time
                    self._store.llm.renew(call_id, self._clock() + CALL_LEASE)

        thread = threading.Thread(target=renew, name="llm lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def masked(self, reply: str) -> str:
        """Return the reply without secrets."""
        return self._mask(reply)[0]

    def wait_for_turn(self, call_id: str | None = None) -> None:
        """Wait as the rate limit, shared by all processes, requires.

        :raises OnHold: the breaker opened meanwhile; the call's reservation, if any, is released.
        """
        seconds = self._store.llm.take_turn(self._provider.name, self._clock(), self._pace.requests_per_minute)
        if seconds > 0:
            self._sleep(seconds)
        if (held := self.breaker.hold()) is not None:
            if call_id is not None:
                self._store.llm.settle(call_id, LlmUse())
            self._hold(held)

    def _ask(
        self, request: Request, check: Callable[[str], object], last_check: Callable[[str], object] | None
    ) -> Answer | NoAnswer:
        retrying = Retrying(
            stop=stop_after_attempt(self._pace.attempts),
            wait=self._wait_s,
            retry=retry_if_exception(_may_pass),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(self._attempt, request, check)
        except Unreadable:
            if last_check is None:
                raise
            return retrying(self._attempt, request, last_check)

    def _attempt(self, request: Request, check: Callable[[str], object]) -> Answer | NoAnswer:
        call_id = self.book(self._provider.expected(request), [request.key])
        if call_id is None:
            raise self.budget_ends()
        known = self._store.llm.replies([request.key]).get(request.key)
        if known is not None:  # another run was faster
            self._store.llm.settle(call_id, LlmUse())
            return Answer(known, is_cached=True)
        with self.lease_kept(call_id):
            self.wait_for_turn(call_id)
            try:
                reply = self._provider.ask(request)
            except (LlmRefused, LlmPromptRefused, LlmBusy, LlmUnavailable, LlmAnswerInvalid) as exc:
                if self.failed(call_id, exc, request.key):
                    self._spend(self._provider.expected(request))
                raise
            self.breaker.went_well()
            text = self.masked(reply.text)
            # cached first: if the process dies afterwards, the reply is kept, and the whole reservation counts as spent
            try:
                check(text)
                is_kept = self._store.llm.put_reply(request.key, text, self._provider.name, self._provider.model)
            except LlmAnswerInvalid as exc:
                raise Unreadable(str(exc)) from exc
            finally:
                self._store.llm.settle(call_id, reply.used)
                self._spend(reply.used)
        return Answer(text) if is_kept else NoAnswer(FORGOTTEN)

    def _spend(self, used: LlmUse) -> None:
        with self._lock:
            self._spent += used

    def _wait_s(self, state: RetryCallState) -> float:
        exc = state.outcome.exception() if state.outcome else None
        asked_for = (exc.retry_after_s or 0.0) if isinstance(exc, LlmBusy) else 0.0
        return max(asked_for, self._backoff(state))


def _may_pass(exc: BaseException) -> bool:
    """Return whether waiting a little may help."""
    if isinstance(exc, LlmBusy):
        return (exc.retry_after_s or 0.0) <= LONGEST_WAIT_S
    return isinstance(exc, LlmUnavailable)


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
        self._store, self._backend, self._caller = store, backend, caller
        self._check, self._clock = check, clock

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
            # without a reply, and not being made by another run
            keys = [request.key for request in requests]
            asked = self._store.llm.leased(keys, self._clock()) | self._store.llm.replies(keys).keys()
            chosen = [request for request in requests if request.key not in asked]
            single = [self._backend.expected(request) for request in chosen]
            expected = [replace(each, dollars=each.dollars * self._backend.batch_factor) for each in single]
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
        if batch_id.startswith(_NOTE):
            since = float(batch_id.removeprefix(_NOTE).partition(":")[0])
            if self._clock().timestamp() - since < LOOK_AGAIN.total_seconds():
                return  # it is being submitted
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

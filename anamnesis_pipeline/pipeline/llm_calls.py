"""A guarded LLM call: cache, breaker, rate limit, budget, retries. Its cost is booked before it is made."""

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NoReturn

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmCallTaken,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
    RetryLater,
)
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.llm.provider import Provider, Reply
from anamnesis_pipeline.model import LlmBudget, LlmUse
from anamnesis_pipeline.pipeline.crawl import Mask
from anamnesis_pipeline.pipeline.llm_breaker import Breaker
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.llm import Lease

ATTEMPTS = 3
LONGEST_WAIT_S = 60.0
"""If a service asks for a longer wait, calls stop until then."""
FORGOTTEN = "what was asked about was forgotten or rewritten meanwhile"
BUSY_PAUSE_S = 60.0
"""Pause for a service that is still busy after all attempts and names no time."""
CALL_LEASE = timedelta(hours=1)
"""How long other processes skip the same request if the caller is killed; a live caller renews the lease."""
RENEWED_EVERY_S = 600.0
BUDGET_USED_UP = "the LLM budget of this day (UTC) is used up; see llm_daily_tokens, llm_daily_dollars"
BEING_MADE = "its summary is being made by another run"
BEING_MADE_PAUSE = timedelta(minutes=1)


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


class OnHold(RetryLater):
    """No process may call before `until`."""

    def __init__(self, problem: str, until: datetime) -> None:
        super().__init__(problem)
        self.until = until


class Unreadable(LlmAnswerInvalid):
    """A reply that was paid for, but cannot be read."""


class LlmCaller:
    """Call one backend. Safe to share between threads.

    :param mask: applied to every reply before it is cached or returned: an LLM can reassemble a secret from pieces in
        its prompt, and a batch may have been masked by older rules.
    """

    def __init__(
        self,
        store: Store,
        backend: Provider,
        pace: Pace,
        mask: Mask,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._backend = backend
        self._pace = pace
        self._mask = mask
        self._clock = clock
        self._sleep = sleep
        self.breaker = Breaker(store.settings, backend.name, clock)
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

    def book(self, expected: LlmUse, keys: Sequence[str]) -> str | None:
        """Reserve the expected cost of a call about these keys. Return its id; None when the day's budget is exceeded.

        :raises OnHold: the breaker is open.
        :raises LlmCallTaken: another process asks about one of the keys.
        """
        self.look_at_breaker()
        now, call_id = self._clock(), uuid.uuid4().hex
        booked = self._store.llm.reserve(
            call_id,
            self._today(),
            self._backend.name,
            self._backend.model,
            expected,
            self._pace.budget,
            Lease(tuple(keys), now, now + CALL_LEASE),
        )
        return call_id if booked else None

    def affordable(self, calls: Iterable[LlmUse]) -> int:
        """Return how many of these calls, from the first on, the rest of the day's budget holds."""
        totals = accumulate(calls, initial=self._store.llm.used(self._today()))
        next(totals)  # what is used already
        return sum(map(self._pace.budget.holds, totals))

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

    def look_at_breaker(self) -> None:
        """:raises OnHold: the breaker is open."""
        state = self.breaker.state()
        if state.is_open(self._clock()):
            self._hold(state.reason, state.until)

    def wait_for_turn(self, call_id: str | None = None) -> None:
        """Wait as the rate limit, shared by all processes, requires.

        :raises OnHold: the breaker opened meanwhile; the call's reservation, if any, is released.
        """
        seconds = self._store.llm.take_turn(self._backend.name, self._clock(), self._pace.requests_per_minute)
        if seconds > 0:
            self._sleep(seconds)
        if (held := self.breaker.hold()) is not None:
            if call_id is not None:
                self._store.llm.settle(call_id, LlmUse())
            self._hold(held.reason, held.until)

    def budget_ends(self) -> OnHold:
        """Return the error for an exhausted daily budget."""
        tomorrow = self._clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        return OnHold(BUDGET_USED_UP, tomorrow)

    def failed(self, call_id: str, exc: Exception, key: str = "") -> bool:
        """Record an unanswered call for budget and breaker. Return True if it may have run, and stays booked.

        :param key: of the prompt, for a single call.
        """
        was_worked_on = self._backend.is_paid or isinstance(exc, LlmAnswerInvalid)
        is_free = isinstance(exc, LlmRefused | LlmPromptRefused | LlmBusy) or not was_worked_on
        self._store.llm.settle(call_id, LlmUse() if is_free else None)
        self.tell_breaker(exc, key)
        return not is_free

    def tell_breaker(self, exc: Exception, key: str = "") -> None:
        """Report a failed call to the breaker; `key`: of a single prompt."""
        match exc:
            case LlmRefused():
                self.breaker.was_refused(str(exc))
            case LlmPromptRefused() if key:
                self.breaker.prompt_was_refused(str(exc), key)
            case LlmUnavailable():
                self.breaker.found_nobody(str(exc))
            case LlmAnswerInvalid():
                self.breaker.went_well()  # the service is reachable

    def _ask(
        self, request: Request, check: Callable[[str], object], last_check: Callable[[str], object] | None
    ) -> Answer | NoAnswer:
        retrying = Retrying(
            stop=stop_after_attempt(self._pace.attempts),
            wait=self._wait_s,
            retry=retry_if_exception(_is_worth_waiting),
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
        call_id = self.book(self._backend.expected(request), [request.key])
        if call_id is None:
            raise self.budget_ends()
        known = self._store.llm.replies([request.key]).get(request.key)
        if known is not None:  # another run was faster
            self._store.llm.settle(call_id, LlmUse())
            return Answer(known, is_cached=True)
        with self.lease_kept(call_id):
            self.wait_for_turn(call_id)
            reply = self._call(request, call_id)
            is_kept = self._keep(request, reply, call_id, check)
        return Answer(reply.text) if is_kept else NoAnswer(FORGOTTEN)

    def _call(self, request: Request, call_id: str) -> Reply:
        """Make one call; return the masked reply."""
        try:
            reply = self._backend.ask(request)
        except (LlmRefused, LlmPromptRefused, LlmBusy, LlmUnavailable, LlmAnswerInvalid) as exc:
            if self.failed(call_id, exc, request.key):
                self._spend(self._backend.expected(request))
            raise
        self.breaker.went_well()
        return replace(reply, text=self.masked(reply.text))

    def _keep(self, request: Request, reply: Reply, call_id: str, check: Callable[[str], object]) -> bool:
        """Cache a reply first: if the process dies afterwards, the reply is kept and the whole reservation counts as
        spent. Return False if the reply may not be kept.
        """
        try:
            check(reply.text)
            return self._store.llm.put_reply(request.key, reply.text, self._backend.name, self._backend.model)
        except LlmAnswerInvalid as exc:
            raise Unreadable(str(exc)) from exc
        finally:
            self._store.llm.settle(call_id, reply.used)
            self._spend(reply.used)

    def _spend(self, used: LlmUse) -> None:
        with self._lock:
            self._spent += used

    def _today(self) -> str:
        return f"{self._clock().astimezone(UTC):%Y-%m-%d}"

    def _wait_s(self, state: RetryCallState) -> float:
        exc = state.outcome.exception() if state.outcome else None
        asked_for = (exc.retry_after_s or 0.0) if isinstance(exc, LlmBusy) else 0.0
        return max(asked_for, self._backoff(state))

    def _hold(self, reason: str, until: datetime | None) -> NoReturn:
        raise OnHold(f"{self._backend.name} is left alone for a while: {reason}", until or self._clock())


def _is_worth_waiting(exc: BaseException) -> bool:
    if isinstance(exc, LlmBusy):
        return (exc.retry_after_s or 0.0) <= LONGEST_WAIT_S
    return isinstance(exc, LlmUnavailable)

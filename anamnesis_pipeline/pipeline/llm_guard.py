"""Budget and circuit breaker of LLM calls, shared by summaries and chat. The cost of a call is booked before it. Each
provider has a breaker in the store: while it is open, no process asks for summaries; a chat answer closes it.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, NoReturn

from anamnesis_pipeline.errors import (
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
    RetryLater,
)
from anamnesis_pipeline.llm.provider import Provider
from anamnesis_pipeline.model import LlmBudget, LlmUse
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.llm import Lease
from anamnesis_pipeline.store.records.settings import SettingsRecords

PREFIX = "llm.breaker."
FAILURES_TO_OPEN = 3
"""Consecutive calls without an answer."""
REFUSALS_TO_OPEN = 5
"""Different prompts refused in a row."""
FIRST_PAUSE_S = 60.0
LONGEST_PAUSE_S = 3_600.0
REFUSED_PAUSE_S = 3_600.0
"""Pause after a wrong key or an exhausted quota: only a person can fix it."""
TRIAL_S = 300.0
"""Seconds that other calls wait while one probes the service."""
CALL_LEASE = timedelta(hours=1)
"""How long other processes skip the same request if the caller is killed; a live caller renews the lease."""
BUDGET_USED_UP = "the LLM budget of this day (UTC) is used up; see llm_daily_tokens, llm_daily_dollars"


@dataclass(frozen=True, slots=True)
class BreakerState:
    """`failures` in a row, the last at `since`. Open until `until`; None: too few failures to open.

    `refused`: keys of the prompts refused since the last answer or pause.
    """

    backend: str
    until: datetime | None
    reason: str
    failures: int
    since: datetime
    refused: tuple[str, ...] = ()

    def is_open(self, now: datetime) -> bool:
        """Return whether calls must wait."""
        return self.until is not None and now < self.until


def breakers(settings: SettingsRecords) -> list[BreakerState]:
    """Return every breaker with recorded failures."""
    return [_read(name.removeprefix(PREFIX), value) for name, value in settings.all(PREFIX).items()]


def close_breakers(settings: SettingsRecords, until: datetime | None = None, *, of: str = "") -> None:
    """Forget all failures, after a configuration change or for an immediate retry.

    :param until: keep failures after this time; None: forget all.
    :param of: prefix of the backend names to reset.
    """
    for state in breakers(settings):
        if state.backend.startswith(of) and (until is None or state.since <= until):
            settings.set(PREFIX + state.backend, None)


class Breaker:
    """The breaker of one backend. Concurrent writes by two processes lose one count, which is harmless."""

    def __init__(
        self, settings: SettingsRecords, backend: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._clock = clock
        self._lock = threading.Lock()

    def state(self) -> BreakerState:
        """Return the stored state."""
        return _read(self._backend, self._settings.get(PREFIX + self._backend) or {})

    def hold(self) -> BreakerState | None:
        """Return the state that blocks a call; None: it may proceed, and is the probe if the pause is over."""
        with self._lock:
            state, now = self.state(), self._clock()
            if state.until is None:
                return None
            if now < state.until:
                return state
            self._write(replace(state, until=now + timedelta(seconds=TRIAL_S)))
            return None

    def found_nobody(self, reason: str) -> None:
        """Record an unanswered call: the third in a row opens the breaker, each further one for longer."""
        with self._lock:
            failures = self.state().failures + 1
            over = failures - FAILURES_TO_OPEN
            pause_s = min(FIRST_PAUSE_S * 2**over, LONGEST_PAUSE_S) if over >= 0 else None
            self._open(reason, pause_s, failures)

    def was_refused(self, reason: str) -> None:
        """Record a refusal over key, quota or billing; open at once."""
        with self._lock:
            self._open(reason, REFUSED_PAUSE_S, max(self.state().failures + 1, FAILURES_TO_OPEN))

    def prompt_was_refused(self, reason: str, key: str) -> None:
        """Record a refused prompt. Five different ones in a row are not the prompts' fault, and open the breaker."""
        with self._lock:
            refused = tuple(dict.fromkeys((*self.state().refused, key)))
            if len(refused) >= REFUSALS_TO_OPEN:
                self._open(reason, REFUSED_PAUSE_S, len(refused))
            else:
                self._write(BreakerState(self._backend, None, reason, len(refused), self._clock(), refused))

    def was_told_to_wait(self, reason: str, seconds: float) -> None:
        """Open for the time that the service named, which was too long to wait for."""
        with self._lock:
            self._open(reason, max(seconds, FIRST_PAUSE_S), FAILURES_TO_OPEN)

    def went_well(self) -> None:
        """Record an answer: close the breaker and reset the counts."""
        with self._lock:
            if self._settings.get(PREFIX + self._backend) is not None:
                self._settings.set(PREFIX + self._backend, None)

    def _open(self, reason: str, pause_s: float | None, failures: int) -> None:
        now = self._clock()
        until = now + timedelta(seconds=pause_s) if pause_s is not None else None
        self._write(BreakerState(self._backend, until, reason, failures, now))

    def _write(self, state: BreakerState) -> None:
        until = state.until.isoformat() if state.until else None
        since = state.since.isoformat()
        value = {
            "until": until,
            "reason": state.reason,
            "failures": state.failures,
            "since": since,
            "refused": list(state.refused),
        }
        self._settings.set(PREFIX + self._backend, value)


def _read(backend: str, value: dict[str, Any]) -> BreakerState:
    until, since = value.get("until"), value.get("since")
    return BreakerState(
        backend,
        datetime.fromisoformat(until) if until else None,
        value.get("reason", ""),
        value.get("failures", 0),
        datetime.fromisoformat(since) if since else datetime.min.replace(tzinfo=UTC),
        tuple(value.get("refused", ())),
    )


class OnHold(RetryLater):
    """No process may call before `until`."""

    def __init__(self, problem: str, until: datetime) -> None:
        super().__init__(problem)
        self.until = until


class Guard:
    """Budget and circuit breaker of one provider. Safe to share between threads."""

    def __init__(
        self,
        store: Store,
        provider: Provider,
        budget: LlmBudget,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._provider, self._budget, self._clock = store, provider, budget, clock
        self.breaker = Breaker(store.settings, provider.name, clock)

    def book(self, expected: LlmUse, keys: Sequence[str]) -> str | None:
        """Reserve the expected cost of a call about these keys. Return its id; None when the day's budget is exceeded.

        :raises OnHold: the breaker is open.
        :raises LlmCallTaken: another process asks about one of the keys.
        """
        self.look_at_breaker()
        now = self._clock()
        return self._reserve(expected, Lease(tuple(keys), now, now + CALL_LEASE))

    def book_answer(self, expected: LlmUse) -> str:
        """Reserve the maximum cost of a chat answer. Return its id. An open breaker holds up no one who asks by hand.

        :raises RetryLater: the rest of today's budget is too small.
        """
        if (call_id := self._reserve(expected)) is None:
            raise RetryLater(BUDGET_USED_UP)
        return call_id

    def settle_answer(self, call_id: str, used: LlmUse | None) -> None:
        """Record the actual cost of a chat answer. None: unknown, so the reservation stands where calls cost money.
        Dollars of a call that a subscription pays are shown with the answer, and count in no budget.
        """
        if not self._provider.is_paid:
            used = replace(used or LlmUse(calls=1), dollars=0.0)
        self._store.llm.settle(call_id, used)

    def affordable(self, calls: Iterable[LlmUse]) -> int:
        """Return how many of these calls, from the first on, the rest of the day's budget holds."""
        totals = accumulate(calls, initial=self._store.llm.used(self._today()))
        next(totals)  # what is used already
        return sum(map(self._budget.holds, totals))

    def budget_ends(self) -> OnHold:
        """Return the error for an exhausted daily budget."""
        tomorrow = self._clock().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        return OnHold(BUDGET_USED_UP, tomorrow)

    def look_at_breaker(self) -> None:
        """:raises OnHold: the breaker is open."""
        state = self.breaker.state()
        if state.is_open(self._clock()):
            self._hold(state)

    def failed(self, call_id: str, exc: Exception, key: str = "") -> bool:
        """Record an unanswered call for budget and breaker. Return True if it may have run, and stays booked.

        :param key: of the prompt, for a single call.
        """
        was_worked_on = self._provider.is_paid or isinstance(exc, LlmAnswerInvalid)
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

    def _reserve(self, expected: LlmUse, lease: Lease | None = None) -> str | None:
        call_id, llm = uuid.uuid4().hex, self._provider
        booked = self._store.llm.reserve(call_id, self._today(), llm.name, llm.model, expected, self._budget, lease)
        return call_id if booked else None

    def _today(self) -> str:
        return f"{self._clock().astimezone(UTC):%Y-%m-%d}"

    def _hold(self, state: BreakerState) -> NoReturn:
        reason = f"{self._provider.name} is left alone for a while: {state.reason}"
        raise OnHold(reason, state.until or self._clock())

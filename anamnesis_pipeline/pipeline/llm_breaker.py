"""A circuit breaker per LLM backend, kept in the store: while it is open, no process calls."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

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

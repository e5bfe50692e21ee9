"""One supervised process: its start, readiness and restarts."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anamnesis_pipeline.runtime.log_files import rotate
from anamnesis_pipeline.runtime.process_group import LIFE_VARIABLE

# --- restarts --------------------------------------------------------------------------------------------

# Restart policy for dead children: delay and limit. Pure.


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """At most `limit` restarts in `window_s` seconds, the n-th after `first_delay_s * 2 ** (n - 1)` seconds."""

    limit: int = 5
    window_s: float = 600.0
    first_delay_s: float = 1.0
    longest_delay_s: float = 30.0


def restart_delay(deaths: Sequence[float], now: float, policy: RestartPolicy) -> float | None:
    """Return the seconds until the restart, or None when the child has died too often.

    :param deaths: times of all deaths, the latest included, in seconds on the clock of `now`.
    """
    recent = sum(1 for death in deaths if now - death <= policy.window_s)
    if recent > policy.limit:
        return None
    return min(policy.longest_delay_s, policy.first_delay_s * 2.0 ** max(0, recent - 1))


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running.

    `environment` is complete except for the process group's id. `after` names a child that must be ready first. `ready`
    is polled until true; a child not ready after `ready_timeout_s` seconds is killed and counts as dead. With `once`
    the child is ready when it ends with status 0, and is not restarted.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    after: str | None = None
    ready: Callable[[], bool] = lambda: True
    ready_timeout_s: float = 180.0
    once: bool = False


@dataclass(slots=True)
class Child:
    """The state of one child. Used only by the supervisor's thread."""

    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    ready: bool = False
    started_at: float = 0.0
    due_at: float = 0.0
    deaths: list[float] = field(default_factory=list)

    def start(self, life: str) -> None:
        """Start it, appending its output to its log.

        A new session shields it from a terminal's Ctrl-C and hang-up: only the supervisor decides the order. The
        supervisor handles SIGINT, so the child starts with the default action even if the supervisor inherited another;
        Dagster ignores SIGTERM when started with SIGINT ignored.
        """
        rotate(self.spec.log)
        with self.spec.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.spec.command,
                env={**self.spec.environment, LIFE_VARIABLE: life},
                cwd=self.spec.log.parent,  # has no module that shadows Python's
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ready, self.started_at = False, time.monotonic()

    @property
    def done(self) -> bool:
        """Whether this is a `once` child that has finished."""
        return self.spec.once and self.ready

    def died(self) -> int | None:
        """Return the exit status if the process ended unexpectedly since the last call."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        self.process = None
        self.ready = self.spec.once and status == 0
        return None if self.ready else status

    def check_ready(self) -> None:
        """Update the readiness; kill the process after the timeout."""
        if self.process is None or self.ready:
            return
        self.ready = not self.spec.once and self.spec.ready()
        if not self.ready and time.monotonic() - self.started_at > self.spec.ready_timeout_s:
            self.process.kill()

    def plan_restart(self, policy: RestartPolicy) -> float | None:
        """Record a death; return the seconds until the restart, or None after too many."""
        now = time.monotonic()
        self.deaths.append(now)
        delay = restart_delay(self.deaths, now, policy)
        self.due_at = now + (delay or 0.0)
        return delay


def describe_exit(status: int) -> str:
    """Describe a process's exit status."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"

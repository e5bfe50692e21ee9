"""One supervised process: how it is started, when it counts as ready, when it is due again."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anamnesis_pipeline.supervisor.life import LIFE_VARIABLE
from anamnesis_pipeline.supervisor.log_files import rotate
from anamnesis_pipeline.supervisor.restarts import RestartPolicy, restart_delay


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running.

    `environment` is complete but for the life's id. `after` names a child that has to be ready first. `ready` is
    polled until it is true; a child that is not ready `ready_timeout_s` seconds after its start is ended and counts
    as dead. With `once` the child is ready when it has ended with status 0, and is not started again.
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
    """The state of one child. Owned by the supervisor's only thread."""

    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    ready: bool = False
    started_at: float = 0.0
    due_at: float = 0.0
    deaths: list[float] = field(default_factory=list)

    def start(self, life: str) -> None:
        """Start it with its output appended to its log.

        A new session keeps a terminal's Ctrl-C and hang-up away from it: the supervisor alone decides the order.
        The supervisor handles SIGINT, so the child starts with the default action, whatever the supervisor
        inherited; Dagster ignores SIGTERM when it was started with SIGINT ignored.
        """
        rotate(self.spec.log)
        with self.spec.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.spec.command,
                env={**self.spec.environment, LIFE_VARIABLE: life},
                cwd=self.spec.log.parent,  # holds no module that could shadow one of Python's
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ready, self.started_at = False, time.monotonic()

    @property
    def done(self) -> bool:
        """A `once` child that did its work."""
        return self.spec.once and self.ready

    def died(self) -> int | None:
        """The exit status of a process that ended since the last call, when it should still be running."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        self.process = None
        self.ready = self.spec.once and status == 0
        return None if self.ready else status

    def check_ready(self) -> None:
        """Look whether it is ready; end it when it takes too long."""
        if self.process is None or self.ready:
            return
        self.ready = not self.spec.once and self.spec.ready()
        if not self.ready and time.monotonic() - self.started_at > self.spec.ready_timeout_s:
            self.process.kill()

    def plan_restart(self, policy: RestartPolicy) -> float | None:
        """Note a death; seconds until the next start, or None when there have been too many."""
        now = time.monotonic()
        self.deaths.append(now)
        delay = restart_delay(self.deaths, now, policy)
        self.due_at = now + (delay or 0.0)
        return delay


def describe_exit(status: int) -> str:
    """A process's exit status in words."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"

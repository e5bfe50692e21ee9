"""Keeps a list of children running until stopped, and leaves no process behind."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from anamnesis_pipeline.runtime.process_group import LIFE_VARIABLE, end_life

Say = Callable[[str], None]
"""Prints one line for the user."""

MAX_BYTES = 5_000_000
KEPT = 3
"""Older files kept per log, as `<name>.1` (the newest) to `<name>.3`."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def rotate(path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Rotate a log larger than `max_bytes`; return whether that was due.

    The file is copied and truncated, not renamed: the child keeps appending through its descriptor.
    """
    if not path.exists() or path.stat().st_size <= max_bytes:
        return False
    for number in range(KEPT, 1, -1):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(f"{path.name}.{number - 1}").replace(path.with_name(f"{path.name}.{number}"))
    with contextlib.suppress(OSError):  # on a full disk the old text is lost
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def last_lines(path: Path, count: int = 20, max_bytes: int = 64_000) -> list[str]:
    """Return the last `count` lines without colours, from at most the last `max_bytes` bytes; none without a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - max_bytes))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return _COLOURS.sub("", text).splitlines()[-count:]


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


class Readiness(Protocol):
    """What tells whether a child is ready."""

    def is_ready(self) -> bool:
        """Ask once; returns within about a second."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running.

    `environment` is complete except for the process group's id. `after` names a child that must be ready first. `ready`
    is asked until it is; a child not ready after `ready_timeout_s` seconds is killed and counts as dead. With `once`
    the child is ready when it ends with status 0, and is not restarted.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    after: str | None = None
    ready: Readiness | None = None
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
        self.ready = not self.spec.once and (self.spec.ready is None or self.spec.ready.is_ready())
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


_TICK_S = 0.2
_ROTATE_EVERY_S = 60.0


class StopRequest:
    """Records stop signals. The first ends the children in order, a second Ctrl-C at once.

    A closing terminal may send two hang-ups, so only Ctrl-C counts as impatience.
    """

    # Plain values: locks, as in threading.Event, may deadlock in a signal handler.
    def __init__(self) -> None:
        self.asked = False
        self._interrupts = 0

    def __call__(self, number: int = signal.SIGTERM, _frame: FrameType | None = None) -> None:
        """Request a stop; a signal handler."""
        self.asked = True
        self._interrupts += number == signal.SIGINT

    @property
    def hurry(self) -> bool:
        """Whether Ctrl-C was pressed more than once."""
        return self._interrupts > 1


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Handle SIGINT, SIGTERM and SIGHUP during the block; under `nohup` a hang-up stays ignored."""
    request = StopRequest()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, request) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Supervisor:
    """Runs `specs` as one process group, in the order of `after`; each child's environment gets the group's id.

    :param grace_s: seconds between SIGTERM and SIGKILL at the end.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        life: str,
        say: Say,
        *,
        policy: RestartPolicy | None = None,
        grace_s: float = 10.0,
    ) -> None:
        self._children = {spec.name: Child(spec) for spec in specs}
        self._life = life
        self._say = say
        self._policy = policy or RestartPolicy()
        self._grace_s = grace_s
        self._watcher: subprocess.Popen[bytes] | None = None
        # Children inherit neither end; the watcher gets the read end as standard input.
        self._read_end, self._write_end = os.pipe()
        self._rotated_at = time.monotonic()

    def is_ready(self, *names: str) -> bool:
        """Return whether all of these children are ready."""
        return all(self._children[name].ready for name in names)

    def run(self, stop: StopRequest, on_tick: Callable[[], None] = lambda: None) -> int:
        """Run until `stop` or until a child has died too often; end the whole process group in both cases.

        :param on_tick: called about five times a second.
        :return: 0 after `stop`, 1 when a child could not be kept running.
        """
        try:
            while not stop.asked:
                if self._watcher is None or self._watcher.poll() is not None:
                    environment = {name: value for name, value in os.environ.items() if name != LIFE_VARIABLE}
                    self._watcher = subprocess.Popen(
                        [sys.executable, "-m", "anamnesis_pipeline.runtime.watcher", self._life],
                        stdin=self._read_end,
                        env=environment,
                        start_new_session=True,
                    )
                if not all(self._attend(child) for child in self._children.values()):
                    return 1
                if time.monotonic() - self._rotated_at >= _ROTATE_EVERY_S:
                    self._rotated_at = time.monotonic()
                    for child in self._children.values():
                        rotate(child.spec.log)
                on_tick()
                time.sleep(_TICK_S)
            return 0
        finally:
            self._end(stop)

    def _attend(self, child: Child) -> bool:
        """Check one child; False when it has died too often."""
        spec = child.spec
        if (status := child.died()) is not None:
            delay = child.plan_restart(self._policy)
            if delay is None:
                times = len(child.deaths)
                self._say(f"{spec.name} {describe_exit(status)}, for the {times}. time; giving up. Its last lines:")
                for line in last_lines(spec.log):
                    self._say(f"  {line}")
                self._say(f"The whole log is {spec.log}. `anamnesis doctor` may tell what is wrong.")
                return False
            last = "".join(f" ({line.strip()})" for line in last_lines(spec.log, 1))
            self._say(f"{spec.name} {describe_exit(status)}{last}; starting it again in {delay:.0f} s, log: {spec.log}")
        may_start = spec.after is None or bool(child.deaths) or self.is_ready(spec.after)
        if child.process is None and not child.done and may_start and time.monotonic() >= child.due_at:
            child.start(self._life)
        child.check_ready()
        return True

    def _end(self, stop: StopRequest) -> None:
        left = end_life(self._life, grace_s=self._grace_s, hurry=lambda: stop.hurry, between_scans=self._reap)
        if left:
            self._say(f"These processes would not end: {', '.join(map(str, left))}")
        os.close(self._write_end)
        if self._watcher is not None:
            try:
                self._watcher.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._watcher.kill()
                self._watcher.wait()
        os.close(self._read_end)

    def _reap(self) -> None:
        for child in self._children.values():
            if child.process is not None:
                child.process.poll()

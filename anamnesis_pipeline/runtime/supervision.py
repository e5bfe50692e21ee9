"""Keeps a list of children running until stopped, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from anamnesis_pipeline.runtime.children import Child, ChildSpec, RestartPolicy, describe_exit
from anamnesis_pipeline.runtime.log_files import last_lines, rotate
from anamnesis_pipeline.runtime.process_group import LIFE_VARIABLE, end_life

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

    :param say: prints one line for the user.
    :param grace_s: seconds between SIGTERM and SIGKILL at the end.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        life: str,
        say: Callable[[str], None],
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
                self._keep_watcher()
                if not all(self._attend(child) for child in self._children.values()):
                    return 1
                self._rotate_logs()
                on_tick()
                time.sleep(_TICK_S)
            return 0
        finally:
            self._end(stop)

    def _attend(self, child: Child) -> bool:
        """Check one child; False when it has died too often."""
        status = child.died()
        if status is not None and not self._plan_restart(child, status):
            return False
        if child.process is None and not child.done and self._may_start(child):
            child.start(self._life)
        child.check_ready()
        return True

    def _may_start(self, child: Child) -> bool:
        first = child.spec.after
        return time.monotonic() >= child.due_at and (first is None or bool(child.deaths) or self.is_ready(first))

    def _plan_restart(self, child: Child, status: int) -> bool:
        delay, name = child.plan_restart(self._policy), child.spec.name
        if delay is not None:
            last = "".join(f" ({line.strip()})" for line in last_lines(child.spec.log, 1))
            self._say(
                f"{name} {describe_exit(status)}{last}; starting it again in {delay:.0f} s, log: {child.spec.log}"
            )
            return True
        self._say(f"{name} {describe_exit(status)}, for the {len(child.deaths)}. time; giving up. Its last lines:")
        for line in last_lines(child.spec.log):
            self._say(f"  {line}")
        self._say(f"The whole log is {child.spec.log}. `anamnesis doctor` may tell what is wrong.")
        return False

    def _keep_watcher(self) -> None:
        if self._watcher is not None and self._watcher.poll() is None:
            return
        environment = {name: value for name, value in os.environ.items() if name != LIFE_VARIABLE}
        self._watcher = subprocess.Popen(
            [sys.executable, "-m", "anamnesis_pipeline.runtime.watcher", self._life],
            stdin=self._read_end,
            env=environment,
            start_new_session=True,
        )

    def _rotate_logs(self) -> None:
        if time.monotonic() - self._rotated_at < _ROTATE_EVERY_S:
            return
        self._rotated_at = time.monotonic()
        for child in self._children.values():
            rotate(child.spec.log)

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

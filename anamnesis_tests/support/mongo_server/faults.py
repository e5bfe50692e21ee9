"""What a test makes the server do wrong on the way to its clients, beyond what the search does (`search_behaviour.py`).

A real server has `failCommand` for this. The relay has its own, since it drops a connection also after the command was
executed, holds several faults at once, and counts what they meet.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

UNTOUCHED = frozenset({"", "hello", "ismaster", "ping", "endSessions"})
"""Commands that only a fault which names them meets."""
WRITES = frozenset({"insert", "update", "delete", "findAndModify", "create", "createIndexes"})
DISK_FULL, TOO_LARGE = 14031, 10334


@dataclass
class Fault:
    """What becomes of a command.

    `commands`: names; empty: all but UNTOUCHED. `skip`: so many of them pass first. `times`: how many it meets then;
    None: all. `over_bytes`: only of messages that are longer. `delay_s`: passes before anything else. `does`: is called
    then. `error`: the code answered, with what it `says`, instead of an execution. `drop`: the connection is closed
    without an answer, "before" or "after" the command was executed.
    """

    commands: frozenset[str] = frozenset()
    skip: int = 0
    times: int | None = 1
    over_bytes: int = 0
    delay_s: float = 0.0
    does: Callable[[], object] | None = None
    error: int | None = None
    says: str = "asked for by a fault"
    labels: tuple[str, ...] = ()
    drop: str | None = None
    met: int = field(default=0, init=False)
    """How many commands it has met."""

    def meets(self, name: str, size: int) -> bool:
        """Whether this command of so many bytes is met, which counts it."""
        if (
            self.times == 0
            or size <= self.over_bytes
            or (name in UNTOUCHED if not self.commands else name not in self.commands)
        ):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.met += 1
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults of a server; safe to change at any time."""

    def __init__(self) -> None:
        self.disk_is_full = False
        """Whether every command that writes is answered OutOfDiskSpace."""
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._over = threading.Event()

    def add(self, *commands: str, **given: Any) -> Fault:
        """Make commands fail, as the fields of a `Fault` say."""
        fault = Fault(frozenset(commands), **given)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """All is well again, also for what waits for a late answer."""
        with self._lock:
            self._faults.clear()
            self._over.set()
            self._over = threading.Event()
        self.disk_is_full = False

    def meeting(self, name: str, size: int) -> Fault | None:
        """The first fault that meets a command of so many bytes."""
        if self.disk_is_full and name in WRITES:
            return Fault(error=DISK_FULL)
        with self._lock:
            return next((fault for fault in self._faults if fault.meets(name, size)), None)

    def wait(self, seconds: float) -> None:
        """Until the time or all faults are over."""
        self._over.wait(seconds)

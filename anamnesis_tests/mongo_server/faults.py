"""What a test makes the server do wrong, beyond what its search service does (`search_behaviour.py`).

A fault meets the commands of some names, a number of times. It comes from Python, through `Faults.add`, or from another
process by MongoDB's own `configureFailPoint` (https://github.com/mongodb/mongo/wiki/The-%22failCommand%22-fail-point).
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anamnesis_tests.mongo_server.refusals import Refusal, failed_to_parse, refuse_unknown

UNTOUCHED = frozenset({"hello", "ismaster", "ping", "configureFailPoint", "loopback", "endSessions", "replSetStepDown"})
"""Commands that only a fault which names them meets."""


@dataclass
class Fault:
    """What becomes of a command.

    `commands`: names; empty: all but UNTOUCHED. `skip`: so many of them pass first. `times`: how many it meets then;
    None: all. `delay_s`: passes before anything else. `error`: the code answered instead of an execution. `drop`: the
    connection is closed without an answer, "before" or "after" the command was executed.
    """

    commands: frozenset[str] = frozenset()
    skip: int = 0
    times: int | None = 1
    delay_s: float = 0.0
    error: int | None = None
    labels: tuple[str, ...] = ()
    drop: str | None = None
    met: int = field(default=0, init=False)
    """How many commands it has met."""

    def meets(self, name: str) -> bool:
        """Whether this command is met, which counts it."""
        if self.times == 0 or (name in UNTOUCHED if not self.commands else name not in self.commands):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.met += 1
        if self.times is not None:
            self.times -= 1
        return True

    def strike(self, limit_ms: int | None) -> Refusal | None:
        """Let the delay pass, or as much of it as the command has time; returns the error to answer, if any."""
        if limit_ms and limit_ms / 1000 < self.delay_s:
            time.sleep(limit_ms / 1000)
            return Refusal(50, "operation exceeded time limit")
        time.sleep(self.delay_s)
        return None if self.error is None else Refusal(self.error, "asked for by a fault", labels=self.labels)


class Faults:
    """The faults of a server; safe to change at any time."""

    def __init__(self) -> None:
        self.disk_is_full = False
        """Whether every command that writes is answered OutOfDiskSpace (14031)."""
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._points: dict[str, Fault] = {}

    def add(
        self,
        *commands: str,
        skip: int = 0,
        times: int | None = 1,
        delay_s: float = 0.0,
        error: int | None = None,
        labels: tuple[str, ...] = (),
        drop: str | None = None,
    ) -> Fault:
        """Make commands fail; see `Fault`."""
        if drop not in (None, "before", "after"):
            raise ValueError(f"drop is 'before' or 'after', not {drop!r}")
        fault = Fault(frozenset(commands), skip, times, delay_s, error, labels, drop)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """All is well again."""
        with self._lock:
            self._faults.clear()
            self._points.clear()
        self.disk_is_full = False

    def meeting(self, name: str) -> Fault | None:
        """The first fault that meets a command."""
        with self._lock:
            return next((fault for fault in [*self._faults, *self._points.values()] if fault.meets(name)), None)

    def configure(self, command: Mapping[str, Any]) -> int:
        """`configureFailPoint`: set or remove the fault `failCommand`; returns how many commands the old one met.

        :raises Refusal: another fail point, or an option that is not known.
        """
        if command["configureFailPoint"] != "failCommand":
            raise failed_to_parse(f"the loopback server has no fail point {command['configureFailPoint']!r}")
        with self._lock:
            old = self._points.pop("failCommand", None)
            if command["mode"] != "off":
                self._points["failCommand"] = _fault_of(command["mode"], command.get("data", {}))
        return old.met if old else 0


_DATA = frozenset({"failCommands", "errorCode", "errorLabels", "closeConnection", "blockConnection", "blockTimeMS"})


def _fault_of(mode: Any, data: Mapping[str, Any]) -> Fault:
    refuse_unknown(data, _DATA, "failCommand")
    limits: Mapping[str, Any] = mode if isinstance(mode, Mapping) else {}
    if mode != "alwaysOn" and not (limits and set(limits) <= {"times", "skip"}):
        raise failed_to_parse(f"mode is 'off', 'alwaysOn' or times and skip, not {mode!r}")
    return Fault(
        frozenset(data["failCommands"]),
        skip=limits.get("skip", 0),
        times=limits.get("times"),
        delay_s=data.get("blockTimeMS", 0) / 1000 if data.get("blockConnection") else 0.0,
        error=data.get("errorCode"),
        labels=tuple(data.get("errorLabels", ())),
        drop="before" if data.get("closeConnection") else None,
    )

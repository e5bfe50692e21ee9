"""Values that are kept for some seconds, since making them takes longer than who asks for them would wait."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """By key, the latest `most` of them. Two that ask for the same at once have it made once. What could not be made is
    not kept.
    """

    def __init__(
        self,
        make: Callable[[K], V],
        seconds: float,
        most: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param make: the value of a key, anew.
        :param seconds: how old a value may be.
        """
        self._make, self._seconds, self._most, self._clock = make, seconds, most, clock
        self._values: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._making: dict[K, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: K) -> V:
        """The value, at most so old."""
        with self._lock:
            turn = self._making.setdefault(key, threading.Lock())
        try:
            with turn:
                if (held := self._held(key)) is not None:
                    return held[1]
                made = self._make(key)
                self._keep(key, made)
                return made
        finally:
            with self._lock:
                if key not in self._values:  # it could not be made
                    self._making.pop(key, None)

    def forget(self) -> None:
        """Make everything anew the next time."""
        with self._lock:
            self._values.clear()
            self._making = {key: turn for key, turn in self._making.items() if turn.locked()}

    def drop(self, key: K) -> None:
        """Make this one anew the next time."""
        with self._lock:
            self._values.pop(key, None)
            self._making.pop(key, None)

    def _keep(self, key: K, made: V) -> None:
        """Instead of those that are too old, and of the oldest where there are too many."""
        now = self._clock()
        with self._lock:
            self._values[key] = (now, made)
            self._values.move_to_end(key)
            oldest = next(iter(self._values.values()))[0]
            while len(self._values) > self._most or (oldest <= now - self._seconds and len(self._values) > 1):
                self._making.pop(self._values.popitem(last=False)[0], None)
                oldest = next(iter(self._values.values()))[0]

    def _held(self, key: K) -> tuple[float, V] | None:
        with self._lock:
            held = self._values.get(key)
        return held if held is not None and self._clock() - held[0] < self._seconds else None

"""Cache with a TTL, for values that take longer to compute than a client would wait."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Cache of the latest `most` values by key. Concurrent requests for a key compute it once. Failures are not
    cached.
    """

    def __init__(
        self,
        make: Callable[[K], V],
        seconds: float,
        most: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param make: computes the value of a key.
        :param seconds: the TTL.
        """
        self._make, self._seconds, self._most, self._clock = make, seconds, most, clock
        self._values: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._making: dict[K, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: K) -> V:
        """Return the value, at most `seconds` old."""
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
                if key not in self._values:  # computing it failed
                    self._making.pop(key, None)

    def forget(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self._making = {key: turn for key, turn in self._making.items() if turn.locked()}

    def drop(self, key: K) -> None:
        """Drop one value."""
        with self._lock:
            self._values.pop(key, None)
            self._making.pop(key, None)

    def _keep(self, key: K, made: V) -> None:
        """Store a value; evict expired ones, and the oldest above the limit."""
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

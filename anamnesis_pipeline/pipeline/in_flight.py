"""In-flight requests: calls that may hang, at most one per place, each in a thread that no caller must join."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 16
MOST = 64
"""Maximum number of threads, including those left behind by earlier calls."""


@dataclass(slots=True)
class Flight(Generic[T]):
    """An in-flight call. Once it has `landed`, either `answer` or `error` is set."""

    started: float
    landed: bool = False
    answer: T | None = None
    error: Exception | None = None


class Flights(Generic[T]):
    """Calls by place. A hanging call delays no other, and its place gets no second call until it ends; its result is
    then kept for the next caller.
    """

    def __init__(self) -> None:
        self._flights: dict[str, Flight[T]] = {}
        self._changed = threading.Condition()

    def launch(self, calls: Mapping[str, Callable[[], T]]) -> list[str]:
        """Start these calls, except for places whose last one is in flight or not collected yet; at most AT_ONCE of
        them run at the same time. Return the places refused because of the limit.
        """
        slots, refused = threading.BoundedSemaphore(AT_ONCE), []
        with self._changed:
            for place, call in calls.items():
                if place in self._flights:
                    continue
                if len(self._flights) >= MOST:
                    refused.append(place)
                    continue
                flight = self._flights[place] = Flight(time.monotonic())
                threading.Thread(target=self._fly, args=(flight, call, slots), daemon=True).start()
        return refused

    def landing(self, until: float) -> Iterator[tuple[str, Flight[T]]]:
        """Yield calls as they end, until all have or `time.monotonic` reaches `until`. A caller that stops early gets
        the rest the next time.
        """
        while (landed := self._next(until)) is not None:
            yield landed

    def _next(self, until: float) -> tuple[str, Flight[T]] | None:
        with self._changed:
            while self._flights:
                place = next((place for place, flight in self._flights.items() if flight.landed), None)
                if place is not None:
                    return place, self._flights.pop(place)
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return None

    def under_way(self) -> dict[str, float]:
        """Return place -> seconds since its call began."""
        with self._changed:
            return {place: time.monotonic() - flight.started for place, flight in self._flights.items()}

    def _fly(self, flight: Flight[T], call: Callable[[], T], slots: threading.BoundedSemaphore) -> None:
        try:
            with slots:
                flight.answer = call()
        except Exception as exc:  # any error is passed to the caller that collects
            flight.error = exc
        finally:
            with self._changed:
                flight.landed = True
                self._changed.notify_all()

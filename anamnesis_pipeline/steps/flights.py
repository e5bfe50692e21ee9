"""Calls that may hang, one per place at most, each in a thread of its own that nobody has to wait for."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 16
MOST = 64
"""Threads that may be under way together, those included that an earlier call left behind."""


@dataclass(slots=True)
class Flight(Generic[T]):
    """A call under way. When it `landed`, either `answer` or `error` is there."""

    started: float
    landed: bool = False
    answer: T | None = None
    error: Exception | None = None


class Flights(Generic[T]):
    """Calls by place. One that hangs holds up no other, and its place gets no second one until it has landed; what it
    then brought is still there for whoever asks next.
    """

    def __init__(self) -> None:
        self._flights: dict[str, Flight[T]] = {}
        self._changed = threading.Condition()

    def launch(self, calls: Mapping[str, Callable[[], T]]) -> list[str]:
        """Begin these calls, but for places whose last one is under way or was not collected yet; at most AT_ONCE of
        them work at the same time. Returns the places for which there was no room.
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
        """Those that have landed, each as it lands, until all have or this moment of `time.monotonic` has come. Who
        stops early finds the rest the next time.
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
        """Place -> seconds since its call began."""
        with self._changed:
            return {place: time.monotonic() - flight.started for place, flight in self._flights.items()}

    def _fly(self, flight: Flight[T], call: Callable[[], T], slots: threading.BoundedSemaphore) -> None:
        try:
            with slots:
                flight.answer = call()
        except Exception as exc:  # whatever it is, it is told to whoever collects
            flight.error = exc
        finally:
            with self._changed:
                flight.landed = True
                self._changed.notify_all()

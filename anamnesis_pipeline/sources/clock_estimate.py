"""Estimate how far another machine's clock is ahead, from a few requests for its time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

KEPT = 4
"""Number of measurements that are compared."""
LONG_S = 0.25
"""A longer round trip, in seconds, is imprecise: the machine is asked again until `KEPT` measurements exist."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The clock's lead half way through the round trip, in seconds; the error is at most half of the round trip."""

    ahead_s: float
    round_trip_s: float


def noted(known: Sequence[Measured], new: Measured) -> tuple[Measured, ...]:
    """Return the last measurements with a new one. Drop those that it contradicts: the clock was set."""
    fit = [one for one in known if abs(one.ahead_s - new.ahead_s) <= one.round_trip_s + new.round_trip_s]
    return (*fit, new)[-KEPT:]


def skew_s(known: Sequence[Measured]) -> float | None:
    """Return the lead with the shortest round trip, 0 if it is within that round trip; None: not measured."""
    best = min(known, key=lambda one: one.round_trip_s, default=None)
    if best is None:
        return None
    return best.ahead_s if abs(best.ahead_s) > best.round_trip_s else 0.0


def is_vague(known: Sequence[Measured]) -> bool:
    """Return whether to measure again at the next poll."""
    return len(known) < KEPT and min((one.round_trip_s for one in known), default=0.0) > LONG_S

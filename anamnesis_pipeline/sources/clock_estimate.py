"""How far another machine's clock is ahead, from a few questions for its time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

KEPT = 4
"""Measurements that are compared."""
LONG_S = 0.25
"""A round trip of more seconds says little: the machine is asked again, until `KEPT` are known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One answer: the clock was so far ahead of ours half way, give or take half of the round trip. Seconds."""

    ahead_s: float
    round_trip_s: float


def noted(known: Sequence[Measured], new: Measured) -> tuple[Measured, ...]:
    """The last measurements with a new one. What it contradicts is no more: somebody set the clock."""
    fit = [one for one in known if abs(one.ahead_s - new.ahead_s) <= one.round_trip_s + new.round_trip_s]
    return (*fit, new)[-KEPT:]


def skew_s(known: Sequence[Measured]) -> float | None:
    """The one with the shortest round trip; none where it is less than that. None: nothing was measured."""
    best = min(known, key=lambda one: one.round_trip_s, default=None)
    if best is None:
        return None
    return best.ahead_s if abs(best.ahead_s) > best.round_trip_s else 0.0


def is_vague(known: Sequence[Measured]) -> bool:
    """Whether the next look had better ask again."""
    return len(known) < KEPT and min((one.round_trip_s for one in known), default=0.0) > LONG_S

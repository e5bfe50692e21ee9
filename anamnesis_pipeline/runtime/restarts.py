"""Restart policy for dead children: delay and limit. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


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

"""Which ticks of the ingest's schedule fire. Pure."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

TICK = timedelta(minutes=15)
"""Between two ticks, which lie on whole quarters of an hour: no time zone's hours begin anywhere else."""
TICKS_SET_BACK = 12
"""So many ticks clocks are set back at most: no zone does it by more than three hours."""
INTERVALS = {
    "30min": timedelta(minutes=30),
    "1h": timedelta(hours=1),
    "2h": timedelta(hours=2),
    "6h": timedelta(hours=6),
}
"""Of the presets that fire all day long, counted from midnight UTC."""


def fires(tick: datetime, schedule: str, hour: int, zone: str) -> bool:
    """Whether a tick is one of those that start an ingest.

    :param tick: timezone-aware.
    :param schedule: `disabled`, `nightly`, or one of `INTERVALS`.
    :param hour: of `nightly`, in `zone`.
    """
    if schedule == "nightly":
        return is_the_hour(tick, hour, zone)
    interval = INTERVALS.get(schedule)
    return interval is not None and tick.timestamp() % interval.total_seconds() == 0


def is_the_hour(tick: datetime, hour: int, zone: str) -> bool:
    """Whether a tick is the day's first at or after `hour` in `zone`.

    So a day whose clocks skip the hour still has one, and a day that has the hour twice has no second one.

    :param tick: timezone-aware.
    """
    now = tick.astimezone(ZoneInfo(zone))
    if now.hour < hour:
        return False
    before = ((tick - n * TICK).astimezone(ZoneInfo(zone)) for n in range(1, TICKS_SET_BACK + 1))
    return not any(then.date() == now.date() and then.hour >= hour for then in before)


def next_tick(after: datetime, schedule: str, hour: int, zone: str) -> datetime | None:
    """The next tick, in UTC, that fires; None: none does."""
    if schedule == "disabled":
        return None
    since_one = timedelta(seconds=after.timestamp() % TICK.total_seconds())
    tick = after.astimezone(UTC) - since_one + TICK
    while not fires(tick, schedule, hour, zone):
        tick += TICK
    return tick

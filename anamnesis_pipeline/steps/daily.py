"""Which hourly tick is the one of the day. Pure."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


def is_the_hour(tick: datetime, hour: int, zone: str) -> bool:
    """Whether an hourly tick is the day's first at or after `hour` in `zone`.

    So a day whose clocks skip the hour still has one, and a day that has the hour twice has no second one.

    :param tick: timezone-aware.
    """
    now = tick.astimezone(ZoneInfo(zone))
    before = (tick - timedelta(hours=1)).astimezone(ZoneInfo(zone))
    return now.hour >= hour and (before.date() != now.date() or before.hour < hour)


def next_tick(after: datetime, hour: int, zone: str) -> datetime:
    """The next hourly tick, in UTC, that is the one of its day in `zone`."""
    tick = after.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    while not is_the_hour(tick, hour, zone):
        tick += timedelta(hours=1)
    return tick

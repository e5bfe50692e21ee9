"""Compute when the schedules run: cron strings from the settings, and the next run that pages show. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from anamnesis_pipeline.settings import Settings

TIME_SETTINGS = (
    "timezone",
    "ingest_schedule",
    "ingest_hour",
    "consolidate_schedule",
    "consolidate_hour",
    "crawl_interval_s",
)
"""Settings behind schedules and sensors. Dagster reads them when it loads the code location, not at each tick."""
NIGHTLY, DISABLED = "nightly", "disabled"
INTERVALS = {
    "30min": ("*/30 * * * *", range(24), (0, 30)),
    "1h": ("0 * * * *", range(24), (0,)),
    "2h": ("0 */2 * * *", range(0, 24, 2), (0,)),
    "6h": ("0 */6 * * *", range(0, 24, 6), (0,)),
}
"""Presets that run all day: cron string, hours, minutes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When one schedule runs.

    :param preset: `disabled`, `nightly`, or one of `INTERVALS`.
    :param hour: of `nightly`, in `zone`.
    """

    preset: str
    hour: int
    zone: str

    @property
    def is_enabled(self) -> bool:
        """Return whether it runs at all."""
        return self.preset != DISABLED

    @property
    def cron(self) -> str:
        """Return the cron string. A disabled schedule keeps the nightly one, since Dagster requires a cron string."""
        return INTERVALS[self.preset][0] if self.preset in INTERVALS else f"0 {self.hour} * * *"

    def last_tick(self, now: datetime) -> datetime:
        """Return the latest tick at or before `now`, in UTC."""
        return max(tick for tick in self._ticks_around(now) if tick <= now)

    def next_tick(self, after: datetime) -> datetime | None:
        """Return the first tick later than `after`, in UTC; None if disabled."""
        return min(tick for tick in self._ticks_around(after) if tick > after) if self.is_enabled else None

    def _ticks_around(self, moment: datetime) -> set[datetime]:
        """Return all ticks from two days before to two days after, as Dagster reads the cron string at clock changes: a
        skipped time moves to the end of the gap, a repeated one counts the second time. A cron string for every hour
        has no tick in the gap, and one for each repeated hour.
        """
        zone = ZoneInfo(self.zone)
        _, hours, minutes = INTERVALS.get(self.preset, ("", (self.hour,), (0,)))
        today, ticks = moment.astimezone(zone), set[datetime]()
        for days, hour, minute in product(range(-2, 3), hours, minutes):
            wall = (today.replace(tzinfo=None) + timedelta(days=days)).replace(
                hour=hour, minute=minute, second=0, microsecond=0, fold=0
            )
            readings = [wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
            real = [each for each in readings if each.astimezone(zone).replace(tzinfo=None, fold=0) == wall]
            if len(hours) == 24:
                ticks.update(real)
            else:
                ticks.add(max(real) if real else readings[0])
        return ticks


def timings(settings: Settings) -> dict[str, Timing]:
    """Return the timing of each schedule, by its name in Dagster."""
    zone, late = settings.timezone, settings.consolidate_hour
    return {
        "daily_ingest": Timing(settings.ingest_schedule, settings.ingest_hour, zone),
        "daily_consolidation": Timing(settings.consolidate_schedule, late, zone),
        "daily_map": Timing(NIGHTLY, late, zone),
        "daily_dream": Timing(NIGHTLY, (late + 1) % 24, zone),
    }

"""Decide when a machine is scanned again; store the state of machines and configured sources. Pure except the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.store.records.settings import SettingsRecords

HOST, LOOK, PROBLEMS, READ = "crawl.host.", "crawl.source.", "crawl.problems.", "crawl.read."
"""Setting prefixes: the clock of a host (`local`: this machine), the last scan of a configured source, and per stored
source the problems of its last reading and the time of its last complete one.
"""
MAX_PROBLEMS = 20
"""Maximum problems stored per reading."""
LOCAL = "local"
LONGEST_WAIT_S = 3_600
EARLY = 0.1
"""Share of an interval by which a scan may come early: ticks are inexact, and waiting for the next one costs a whole
interval.
"""


@dataclass(frozen=True, slots=True)
class HostClock:
    """When a host was tried, when it last answered, its failures in a row since, and the time of the next attempt.

    `next_at` is None while it answers: then the intervals of its sources apply. `skew_s`: seconds that its clock is
    ahead of ours.
    """

    tried_at: datetime | None = None
    answered_at: datetime | None = None
    failures: int = 0
    next_at: datetime | None = None
    error: str = ""
    skew_s: float | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether it may be tried; the tick for it may come slightly early."""
        if self.next_at is None:
            return True
        wait = self.next_at - self.tried_at if self.tried_at else timedelta()
        return now >= self.next_at - wait * EARLY


@dataclass(frozen=True, slots=True)
class Look:
    """Result of the last scan of a configured source.

    `state`: the survey after which nothing was pending, for the selection `rules`. `after`: the source at which a tick
    ran out of time. `behind`: since when each source has pending content. `is_missing`: the `error` is that the folder
    does not exist.
    """

    tried_at: datetime | None = None
    seen_at: datetime | None = None
    root: str = ""
    state: str = ""
    rules: str = ""
    after: str = ""
    files: int = 0
    bytes: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    error: str = ""
    behind: Mapping[str, str] = field(default_factory=dict)
    is_missing: bool = False

    def is_due(self, now: datetime, interval_s: int, next_tick_s: float = 0.0) -> bool:
        """Return whether its interval is over, or will be before the next tick, `next_tick_s` seconds from now."""
        early_s = max(interval_s * EARLY, next_tick_s * (1 - EARLY))
        return self.tried_at is None or now >= self.tried_at + timedelta(seconds=interval_s - early_s)


def answered(clock: HostClock, now: datetime, skew_s: float | None) -> HostClock:
    """Return the clock of a host that answered."""
    return HostClock(now, now, skew_s=skew_s if skew_s is not None else clock.skew_s)


def failed(clock: HostClock, now: datetime, error: str, interval_s: int) -> HostClock:
    """Return the clock of a host that did not answer: the next attempt follows after one interval, then two, four, ...
    at most an hour. An early attempt by hand does not lengthen the wait.
    """
    if not clock.is_due(now):
        return replace(clock, tried_at=now, error=error)
    wait_s = max(interval_s, min(LONGEST_WAIT_S, interval_s * 2 ** min(clock.failures, 20)))
    return replace(
        clock, tried_at=now, failures=clock.failures + 1, next_at=now + timedelta(seconds=wait_s), error=error
    )


def clock_name(host: str) -> str:
    """Return the setting of a host's clock; `host` as a source names it."""
    return HOST + (host or LOCAL)


def read_clock(settings: SettingsRecords, host: str) -> HostClock:
    """Return the clock of a host; a new one for a host that was never tried."""
    return HostClock(**_with_times(settings.get(clock_name(host), {}), ("tried_at", "answered_at", "next_at")))


def write_clock(settings: SettingsRecords, host: str, clock: HostClock) -> None:
    """Store the clock of a host."""
    settings.set(clock_name(host), _plain(asdict(clock)))


def read_look(settings: SettingsRecords, name: str) -> Look:
    """Return the last scan of a configured source; an empty one if there was none."""
    kept = _with_times(settings.get(LOOK + name, {}), ("tried_at", "seen_at"))
    return Look(**kept | {"problems": tuple(kept.get("problems", ()))})


def looked_since(settings: SettingsRecords, places: Mapping[str, str], since: datetime) -> bool:
    """Return whether every configured source was scanned since then, except those of hosts that do not answer.

    :param places: the name of each source -> its host.
    """
    present = [name for name, host in places.items() if read_clock(settings, host).next_at is None]
    tried = [read_look(settings, name).tried_at for name in present]
    return all(at is not None and at >= since for at in tried)


def write_look(settings: SettingsRecords, name: str, look: Look | None) -> None:
    """Store a scan; None removes it."""
    settings.set(LOOK + name, None if look is None else _plain(asdict(look)))


def read_problems(settings: SettingsRecords, key: str) -> tuple[str, ...]:
    """Return the problems of the last reading of the stored source `key`."""
    return tuple(settings.get(PROBLEMS + key, ()))


def all_problems(settings: SettingsRecords) -> dict[str, tuple[str, ...]]:
    """Return the problems of every stored source that had any, with one query."""
    return {name.removeprefix(PROBLEMS): tuple(told) for name, told in settings.all(PROBLEMS).items()}


def write_problems(settings: SettingsRecords, key: str, problems: Sequence[str]) -> None:
    """Store the first of them; an empty list removes those stored before."""
    kept = list(problems[:MAX_PROBLEMS])
    if kept != list(read_problems(settings, key)):
        settings.set(PROBLEMS + key, kept or None)


def note_read(settings: SettingsRecords, key: str, at: datetime) -> None:
    """Record that the stored source `key` was read completely by a reading that began at `at`."""
    settings.set(READ + key, at.isoformat())


def read_since(settings: SettingsRecords, keys: Iterable[str], since: datetime) -> bool:
    """Return whether each of these stored sources was read completely since then."""
    read = [settings.get(READ + key) for key in keys]
    return all(at is not None and datetime.fromisoformat(at) >= since for at in read)


def still_behind(settings: SettingsRecords, look: Look) -> dict[str, datetime]:
    """Return key -> since when content is pending, for the scan's sources that were not read since. For a source read
    before the scan, this is at the earliest the time of that reading.
    """
    read = {key: settings.get(READ + key) for key in look.behind}
    times = {key: datetime.fromisoformat(at) for key, at in read.items() if at}
    return {
        key: max(datetime.fromisoformat(since), times.get(key, datetime.min.replace(tzinfo=UTC)))
        for key, since in look.behind.items()
        if key not in times or (look.tried_at is not None and times[key] < look.tried_at)
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value not in (None, "", 0, (), {})
    }


def _with_times(values: Mapping[str, Any], times: tuple[str, ...]) -> dict[str, Any]:
    return {name: datetime.fromisoformat(value) if name in times else value for name, value in values.items()}

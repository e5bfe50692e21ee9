"""Report the crawler's state from what the last scans stored: no host is contacted."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.host_clock import HostClock, Look, all_problems, read_clock, read_look, still_behind
from anamnesis_pipeline.sources.specs import SourceSpec, is_of
from anamnesis_pipeline.store.base import Store

STALE_AFTER = 3
"""Intervals without a successful scan after which a source is no longer fresh."""
MAX_ERRORS = 20
"""Maximum errors shown: unreadable files with their reasons, and other problems of the last reading."""


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A machine; `host` is empty for this one."""

    host: str
    machine: str
    clock: HostClock

    @property
    def state(self) -> str:
        """Return `new` (never tried), `well` or `away` (it did not answer the last time)."""
        if self.clock.failures:
            return "away"
        return "well" if self.clock.answered_at else "new"


@dataclass(frozen=True, slots=True)
class SpecStatus:
    """A configured source. `partitions`: its stored sources. `behind`: how many of them have new content. `lag_s`: the
    longest wait among these, in seconds; for a source that cannot be seen, since its last success; None: never seen.
    `fresh`: seen within three intervals, or too new to have been. `errors`: why its machine is away, unreadable files
    with reasons, and other problems of the last reading.
    """

    spec: SourceSpec
    look: Look
    interval_s: int
    partitions: tuple[str, ...]
    behind: int
    lag_s: float | None
    fresh: bool
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CrawlerStatus:
    """Machines and configured sources, those of this machine first, and sources that are not configured any more."""

    hosts: tuple[HostStatus, ...]
    sources: tuple[SpecStatus, ...]
    retired: tuple[str, ...]


def crawler_status(store: Store, specs: Sequence[SourceSpec], interval_s: int, now: datetime) -> CrawlerStatus:
    """Return the state of each machine and each configured source.

    :param interval_s: for sources without their own interval.
    """
    stored = [source for source in store.files.sources() if source.kind != "reserved"]
    owned = {spec.name: [source for source in stored if is_of(source, spec)] for spec in specs}
    errors: dict[str, list[str]] = defaultdict(list)
    for cursor in store.files.incomplete_files():
        if cursor.unread and len(errors[cursor.source]) < MAX_ERRORS:
            errors[cursor.source].append(f"{cursor.path}: {cursor.unread.removeprefix(f'{cursor.path}: ')}")
    told = all_problems(store.settings)
    machines = {spec.host: spec.machine for spec in specs}
    hosts = (HostStatus(host, machine, read_clock(store.settings, host)) for host, machine in machines.items())
    rows = []
    for spec in specs:
        sources, its_interval_s = owned[spec.name], spec.interval_s or interval_s
        look, clock = read_look(store.settings, spec.name), read_clock(store.settings, spec.host)
        unread = [reason for source in sources for reason in errors.get(source.key, ())]
        others = (problem for source in sources for problem in told.get(source.key, ()))
        unread += [p for p in dict.fromkeys(others) if not any(reason.endswith(p) for reason in unread)]
        if spec.private and unread:
            unread = [f"{counted(len(unread), 'problem')} with its files, named by: anamnesis ingest"]
        if clock.failures and clock.error:
            unread = [clock.error, *unread]
        behind, fresh = still_behind(store.settings, look), is_fresh(look, clock, its_interval_s, now)
        is_seen = fresh and not look.error and not clock.failures
        rows.append(
            SpecStatus(
                spec,
                look,
                its_interval_s,
                tuple(source.key for source in sources),
                len(behind),
                lag_s(behind.values(), look.seen_at, is_seen, now),
                fresh,
                tuple(unread[:MAX_ERRORS]),
            )
        )
    configured = {source.key for sources in owned.values() for source in sources}
    retired = tuple(source.key for source in stored if source.key not in configured)
    return CrawlerStatus(tuple(hosts), tuple(rows), retired)


def lag_s(behind: Collection[datetime], seen_at: datetime | None, is_seen: bool, now: datetime) -> float | None:
    """Return the longest time that a source has had new content, in seconds; for one that cannot be seen now, the time
    that it may have. None: it was never seen. Pure.
    """
    if seen_at is None:
        return None
    since = min([*behind, *([] if is_seen else [seen_at])], default=now)
    return max((now - since).total_seconds(), 0.0)


def is_fresh(look: Look, clock: HostClock, interval_s: int, now: datetime) -> bool:
    """Return whether a source was scanned successfully within three intervals, or never tried. Pure."""
    if look.seen_at is None:
        return not look.error and not clock.failures
    return now - look.seen_at <= timedelta(seconds=STALE_AFTER * interval_s)

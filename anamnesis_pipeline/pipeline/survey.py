"""Poll of all machines: lists sources, and those with something new. Only listings are read."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from anamnesis_pipeline.errors import AnamnesisError, HostRefused, SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import EXCLUDED, Source, content_id
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.crawl_documents import DocumentSelection
from anamnesis_pipeline.pipeline.exclusion import Exclusions, is_due_again
from anamnesis_pipeline.pipeline.host_clock import (
    HostClock,
    Look,
    answered,
    failed,
    read_clock,
    read_look,
    write_clock,
    write_look,
)
from anamnesis_pipeline.pipeline.in_flight import Flight, Flights
from anamnesis_pipeline.pipeline.projects import guesses_of
from anamnesis_pipeline.pipeline.source_specs import spec_of_source
from anamnesis_pipeline.sources.base import SourceHost, Survey
from anamnesis_pipeline.sources.selection import changed_files, with_emptied
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec, document_source, is_of
from anamnesis_pipeline.sources.survey_split import Found, SourceFiles, found_in, wanted_of
from anamnesis_pipeline.store.base import Store

# --- hosts -----------------------------------------------------------------------------------------------

# Find the machine of a source: one connection per place, shared by all of its sources.


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machines of the configured sources. `open_remote` gets (machine, place), returns the same host for the same
    place, and does not connect. With `local_only`, no other machine is contacted.
    """

    specs: Sequence[SourceSpec]
    local: SourceHost
    open_remote: Callable[[str, str], SourceHost]
    local_only: bool = False

    def of_spec(self, spec: SourceSpec) -> SourceHost:
        """Return the machine of a configured source.

        :raises HostRefused: it is another one, and `local_only` is set.
        """
        if not spec.host:
            return self.local
        if self.local_only:
            raise HostRefused(f"local_only refuses to connect with {spec.host}; unset it to crawl other machines")
        return self.open_remote(spec.machine, spec.host)

    def of_source(self, source: Source) -> SourceHost:
        """Return the machine of a stored source.

        :raises SourceUnreadable: it is not configured any more.
        :raises HostRefused: as `of_spec`.
        """
        spec = self.spec_of(source)
        if spec is not None:
            return self.of_spec(spec)
        if not source.spec and source.machine == self.local.machine:
            return self.local  # of a former log root: its remaining files are readable
        raise SourceUnreadable(
            f"{source.key} is not read any more, since the source {source.spec or source.root!r} was removed; what was "
            "read of it stays"
        )

    def spec_of(self, source: Source) -> SourceSpec | None:
        """Return the configuration of a stored source; None: it is not configured now."""
        return spec_of_source(source, self.specs)


log = logging.getLogger(__name__)

TICK_S = 25.0
"""Max seconds of a poll; what it did not finish comes first in the next one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a host, and the sources that were asked about."""

    specs: tuple[SourceSpec, ...]
    surveys: Sequence[Survey | SourceUnreadable]
    skew_s: float | None


@dataclass(frozen=True, slots=True)
class Crawler:
    """Dependencies of a poll. `selection`: which files of a survey are documents; `stamp` changes with it.
    `interval_s`: for sources without their own.
    """

    store: Store
    hosts: Hosts
    selection: DocumentSelection
    flights: Flights[Answer]
    interval_s: int
    exclusions: Exclusions
    skip: tuple[str, ...] = ()
    stamp: str = ""

    @property
    def specs(self) -> Sequence[SourceSpec]:
        """The configured sources."""
        return self.hosts.specs

    def interval_of(self, spec: SourceSpec) -> int:
        """Return the polling interval of a source, in seconds."""
        return spec.interval_s or self.interval_s


@dataclass(frozen=True, slots=True)
class LookReport:
    """Result of a poll. `sources`: of every configured source that answered. `changed`: keys of those with something to
    read. `asked`: number of hosts contacted. `seen`: number of configured sources compared.
    """

    sources: tuple[Source, ...] = ()
    changed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    asked: int = 0
    seen: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Tally:
    sources: dict[str, Source] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seen: int = 0


@dataclass(frozen=True, slots=True)
class _Visit:
    """State shared by all sources of one poll."""

    crawler: Crawler
    stored: Mapping[str, Source]
    now: datetime
    until: float
    tally: _Tally


def look(
    crawler: Crawler, now: datetime, *, everything: bool = False, budget_s: float = TICK_S, next_tick_s: float = 0.0
) -> LookReport:
    """Poll all due hosts concurrently, and compare their listings with what was read.

    An unreachable or hanging host does not delay others: it is reported, and retried at growing intervals. An answer
    that arrives after the end of a poll counts in the next.

    :param everything: include hosts that are not due.
    :param next_tick_s: seconds until the next poll; what becomes due before it is due now.
    """
    started = time.monotonic()
    stored = {source.key: source for source in crawler.store.files.sources()}
    visit = _Visit(crawler, stored, now, started + budget_s, _Tally())
    due = _by_host(crawler, [s for s in crawler.specs if everything or _is_due(crawler, s, now, next_tick_s)])
    crowded = crawler.flights.launch({host: _call(crawler, specs) for host, specs in due.items()})
    for host, flight in crawler.flights.landing(visit.until):
        _take(visit, host, flight)
    for host in crawler.flights.under_way().keys() & due.keys() | set(crowded):
        _note_failure(visit, host, f"no answer yet after {budget_s:.0f} s; it is waited for")
    _name_the_dead(visit, due)
    tally = visit.tally
    return LookReport(
        tuple(tally.sources[key] for key in sorted(tally.sources)),
        tuple(sorted(tally.changed)),
        tuple(tally.problems),
        len(due),
        tally.seen,
        time.monotonic() - started,
    )


def _is_due(crawler: Crawler, spec: SourceSpec, now: datetime, next_tick_s: float) -> bool:
    settings = crawler.store.settings
    is_over = read_look(settings, spec.name).is_due(now, crawler.interval_of(spec), next_tick_s)
    return is_over and read_clock(settings, spec.host).is_due(now)


def _by_host(crawler: Crawler, specs: Sequence[SourceSpec]) -> dict[str, tuple[SourceSpec, ...]]:
    """Return host -> its sources, the longest waiting first."""
    tried = {spec.name: read_look(crawler.store.settings, spec.name).tried_at for spec in specs}
    found: dict[str, tuple[SourceSpec, ...]] = {}
    for spec in sorted(specs, key=lambda spec: tried[spec.name] or datetime.min.replace(tzinfo=UTC)):
        found[spec.host] = (*found.get(spec.host, ()), spec)
    return found


def _call(crawler: Crawler, specs: tuple[SourceSpec, ...]) -> Callable[[], Answer]:
    wanted = []
    for spec in specs:
        before = read_look(crawler.store.settings, spec.name)
        state = before.state if before.rules == _rules_id(crawler, spec) else ""
        wanted.append(wanted_of(spec, crawler.skip, state))

    def ask() -> Answer:
        host = crawler.hosts.of_spec(specs[0])
        return Answer(specs, host.survey(wanted), host.clock_skew_s())

    return ask


def _rules_id(crawler: Crawler, spec: SourceSpec) -> str:
    """Return an id of the rules behind a state: with other rules the same listing may mean something else."""
    return content_id(repr(spec), repr(crawler.skip), crawler.stamp, crawler.exclusions.noted)


def _take(visit: _Visit, host: str, flight: Flight[Answer]) -> None:
    """Process the answer or error of one host."""
    if flight.answer is None:
        is_ours = isinstance(flight.error, AnamnesisError)
        if not is_ours:
            log.error("the survey of %s failed", host or "this machine", exc_info=flight.error)
        _note_failure(visit, host, f"{'' if is_ours else f'{type(flight.error).__name__}: '}{flight.error}")
        return
    settings, answer = visit.crawler.store.settings, flight.answer
    write_clock(settings, host, answered(read_clock(settings, host), visit.now, answer.skew_s))
    configured = set(visit.crawler.specs)
    for spec, survey in zip(answer.specs, answer.surveys, strict=True):
        if spec in configured and time.monotonic() < visit.until:
            _look_at(visit, spec, survey)


def _note_failure(visit: _Visit, host: str, error: str) -> None:
    crawler = visit.crawler
    interval_s = min((crawler.interval_of(spec) for spec in crawler.specs if spec.host == host), default=None)
    if interval_s is not None:
        clock = read_clock(crawler.store.settings, host)
        write_clock(crawler.store.settings, host, failed(clock, visit.now, error, interval_s))


def _name_the_dead(visit: _Visit, asked: Iterable[str]) -> None:
    """Report every host whose last poll failed, even if it was not due."""
    machines = {spec.host: spec.machine for spec in visit.crawler.specs}
    for host, machine in machines.items():
        clock = read_clock(visit.crawler.store.settings, host)
        if clock.failures:
            visit.tally.problems.append(dead_host_text(machine, clock))


def dead_host_text(machine: str, clock: HostClock) -> str:
    """Return the message about an unreachable host."""
    again = f"; tried again from {clock.next_at:%H:%M} UTC on" if clock.next_at else ""
    since = f", last seen {clock.answered_at:%Y-%m-%d %H:%M} UTC" if clock.answered_at else ", never seen"
    return f"{machine}: {clock.error} (failed {counted(clock.failures, 'time')} in a row{since}{again})"


def _look_at(visit: _Visit, spec: SourceSpec, survey: Survey | SourceUnreadable) -> None:
    settings = visit.crawler.store.settings
    before = read_look(settings, spec.name)
    visit.tally.seen += 1
    if isinstance(survey, SourceUnreadable):
        is_missing = isinstance(survey, SourceMissing)
        after = replace(before, tried_at=visit.now, error=str(survey), is_missing=is_missing)
        visit.tally.problems.append(f"{spec.machine}: {survey}")
        write_look(settings, spec.name, after)
        return
    if survey.files is None:
        visit.tally.sources.update({key: source for key, source in visit.stored.items() if is_of(source, spec)})
        after = replace(
            before, tried_at=visit.now, seen_at=visit.now, root=survey.root, error="", behind={}, is_missing=False
        )
    else:
        if spec.kind == DOCUMENTS:  # a folder that became empty is a problem
            cursors = visit.crawler.store.files.cursors(document_source(spec, survey.root).key)
            survey = with_emptied(survey, cursors)
        after = _compared(visit, spec, survey, before)
        visit.tally.problems.extend(f"{spec.machine}: {problem}" for problem in survey.problems)
    _note_guesses(visit, spec)
    write_look(settings, spec.name, after)


def _note_guesses(visit: _Visit, spec: SourceSpec) -> None:
    """Mark one log source of the machine as changed if projects are provisional: its run resolves them all."""
    logs = [key for key, source in visit.stored.items() if spec.kind != DOCUMENTS and is_of(source, spec)]
    if logs and spec.host and guesses_of(visit.crawler.store.settings, spec.machine):
        visit.tally.changed.setdefault(min(logs))


def _compared(visit: _Visit, spec: SourceSpec, survey: Survey, before: Look) -> Look:
    """Find the changed sources of a survey. If there are none, remember its state, so that the next poll is cheap."""
    found = found_in(spec, survey, visit.crawler.selection.rules(spec))
    sources = {key: each.source for key, each in found.sources.items()}
    visit.tally.sources.update(sources)
    visit.crawler.store.files.put_sources([each for key, each in sources.items() if visit.stored.get(key) != each])
    gone = {
        key: SourceFiles(source, ())
        for key, source in visit.stored.items()
        if key not in found.sources and is_of(source, spec)
    }
    visit.tally.sources.update({key: each.source for key, each in gone.items()})
    changed, last = _changed(
        visit, {**found.sources, **gone}, before.after, too_large=found.too_large, complete=not survey.problems
    )
    visit.tally.changed.update(dict.fromkeys(changed))
    files = [file for each in found.sources.values() for file in each.files]
    is_done = not changed and not last
    return Look(
        visit.now,
        visit.now,
        survey.root,
        survey.state if is_done else "",
        _rules_id(visit.crawler, spec) if is_done else "",
        last,
        len(files),
        sum(file.size for file in files),
        {**found.left_out, **_kept_away(visit, found)},
        survey.problems,
        "",
        {key: before.behind.get(key, visit.now.isoformat()) for key in changed},
    )


def _kept_away(visit: _Visit, found: Found) -> dict[str, int]:
    """Return the number of files that exclusion rules drop, by path or content."""
    store, rules = visit.crawler.store, visit.crawler.exclusions.now()
    if not rules.rules:
        return {}
    kept_away = 0
    for key, each in found.sources.items():
        folder, cursors = folder_of(each.source).rstrip("/"), store.files.cursors(key)
        kept_away += sum(
            rules.of_path(each.source.machine, f"{folder}/{file.path}") is not None
            or (file.path in cursors and cursors[file.path].unread.startswith(EXCLUDED))
            for file in each.files
        )
    return {EXCLUDED: kept_away} if kept_away else {}


def _changed(
    visit: _Visit, sources: Mapping[str, SourceFiles], after: str, *, too_large: frozenset[str], complete: bool
) -> tuple[list[str], str]:
    """Return the keys of changed sources, and the last key compared before time ran out; empty: all were."""
    crawler, changed = visit.crawler, list[str]()
    last = ""
    for key in _rotated(sorted(sources), after):
        if time.monotonic() > visit.until:
            return changed, last or after
        last = key
        if has_news(crawler.store, crawler.exclusions, sources[key], too_large, complete=complete):
            changed.append(key)
    return changed, ""


def has_news(
    store: Store, exclusions: Exclusions, found: SourceFiles, too_large: frozenset[str] = frozenset(), *, complete: bool
) -> bool:
    """Return whether a crawl would find something to do. Files that a path rule excludes or that grew too large are
    neither read nor treated as deleted; files excluded by other rules are due again when the rules change.

    :param too_large: paths of too large files.
    :param complete: the listing is complete.
    """
    source, rules, noted = found.source, exclusions.now(), exclusions.noted
    files, cursors = found.files, store.files.cursors(source.key)
    cursors = {path: cursor for path, cursor in cursors.items() if path not in too_large}
    if any(is_due_again(cursor, noted) for cursor in cursors.values() if not cursor.gone):
        return True
    if rules.rules:
        folder = folder_of(source)
        files = tuple(f for f in files if not rules.of_path(source.machine, f"{folder}/{f.path}"))
        cursors = {path: c for path, c in cursors.items() if not rules.of_path(source.machine, f"{folder}/{path}")}
    return changed_files(files, cursors, complete=complete) > 0


def _rotated(keys: list[str], after: str) -> list[str]:
    """Return `keys`, starting after `after`."""
    start = next((n for n, key in enumerate(keys) if key > after), 0) if after else 0
    return keys[start:] + keys[:start]

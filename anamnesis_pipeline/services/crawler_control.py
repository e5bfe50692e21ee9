"""Configured sources and the crawler, as the API and the command line use them."""

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import re2
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import BadSetting, HostRefused, HostUnreachable, ServiceUnreachable, SourceUnreadable
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.exclusion import sentence
from anamnesis_pipeline.pipeline.host_clock import answered, read_clock, read_look, write_clock
from anamnesis_pipeline.pipeline.in_flight import Flights
from anamnesis_pipeline.pipeline.source_specs import MAX_SPECS, Name, SpecModel, put_spec, put_specs, remove_spec
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import built_in, configured_specs, open_crawler
from anamnesis_pipeline.services.crawler_status import CrawlerStatus, HostStatus, SpecStatus, crawler_status
from anamnesis_pipeline.services.dagster.api import Dagster
from anamnesis_pipeline.services.log_folders import log_folders
from anamnesis_pipeline.services.log_ingest import JsonlControl, RunOut
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.setting_changes import settings_after, store_settings
from anamnesis_pipeline.services.source_trial import Trial, try_source
from anamnesis_pipeline.settings import Settings, claude_projects_dir
from anamnesis_pipeline.sources.specs import (
    SourceSpec,
    absolute_roots,
    is_of,
    overlap_text,
    parse_place,
    private_overlaps,
    with_machine,
)
from anamnesis_pipeline.store.base import Store

# --- crawler schemas -------------------------------------------------------------------------------------

# Bodies of the routes on configured sources and on the crawler.

_STRICT = ConfigDict(extra="forbid", strict=True)


# --- requests --------------------------------------------------------------------------------------------


class SourcesIn(BaseModel):
    """All sources that are configured; those of this machine's log roots are there without being named."""

    model_config = _STRICT

    sources: Annotated[list[SpecModel], Field(max_length=MAX_SPECS, description="All configured sources")]


class SourceTestIn(BaseModel):
    """Which source to try: one that is configured, by its name, or one that may become one."""

    model_config = _STRICT

    name: Annotated[Name | None, Field(description="A configured source")] = None
    source: Annotated[SpecModel | None, Field(description="A source that is not configured")] = None


class CrawlIn(BaseModel):
    """Which configured sources to read; without `sources` those with something new."""

    model_config = _STRICT

    sources: Annotated[list[Name], Field(default=[], max_length=MAX_SPECS, description="Read everything of these")]


class PatternIn(BaseModel):
    """A regular expression."""

    model_config = _STRICT

    pattern: Annotated[str, Field(max_length=2_000, description="Regular expression")]


# --- replies ---------------------------------------------------------------------------------------------


class SourceSpecOut(TypedDict):
    """A configured source; a built-in one needs no configuration and cannot be changed."""

    name: str
    kind: Literal["claude_logs", "documents"]
    root: str
    host: str
    machine: str
    include: list[str]
    exclude: list[str]
    project: str
    instance: str
    interval_s: int | None
    private: bool
    max_file_bytes: int
    built_in: bool


class SourcesOut(TypedDict):
    """All sources that are crawled, built-in ones first. `warnings`: sources that are not private and read what a
    private one does.
    """

    sources: list[SourceSpecOut]
    warnings: list[str]


class FirstLookOut(TypedDict):
    """What came of looking at sources at once that are new or were changed. `text` says it for people; `problems` are
    those of their machines. `run_id` as in what a run answers; null when nothing was started.
    """

    started: bool
    text: str
    run_id: str | None
    link: str | None
    problems: list[str]


class PutSourceOut(SourceSpecOut):
    """The stored source; `first_look` is null if nothing changed."""

    first_look: FirstLookOut | None


class PutSourcesOut(SourcesOut):
    """All sources as they are now; `first_look` is of those that are new or were changed, null without any."""

    first_look: FirstLookOut | None


class FormatOut(TypedDict):
    """Files of one format."""

    format: str
    files: int
    bytes: int


class TrialOut(TypedDict):
    """What would be crawled. When it cannot be tried `ok` is false and `problem` says why and what to do."""

    ok: bool
    problem: str | None
    machine: str
    root: str
    clock_skew_s: float | None
    took_ms: float
    partitions: int
    files: int
    bytes: int
    formats: list[FormatOut]
    first: list[str]
    left_out: dict[str, int]
    examples: dict[str, list[str]]
    problems: list[str]


class SourceHostOut(TypedDict):
    """A machine; `host` is empty for this one. `away`: it did not answer the last time, and is tried by the tick at
    `next_try` or the first one after it.
    """

    host: str
    machine: str
    state: Literal["new", "well", "away"]
    last_try: str | None
    last_answer: str | None
    failures: int
    next_try: str | None
    error: str | None
    clock_skew_s: float | None


class CrawledOut(TypedDict):
    """How a configured source is doing. `lag_s`: how long the part of it that waits longest has something new, of one
    that cannot be seen the time since the last success, null without any; `behind`: how many have. `fresh`: it was
    seen within three intervals. `errors`: why its machine is away, files that cannot be read, and what else went wrong
    when it was last read.
    """

    name: str
    kind: str
    machine: str
    root: str
    built_in: bool
    interval_s: int
    last_success: str | None
    fresh: bool
    lag_s: float | None
    behind: int
    partitions: list[str]
    files: int
    bytes: int
    left_out: dict[str, int]
    errors: list[str]
    problems: list[str]


class CrawlerTotalsOut(TypedDict):
    """Counts of everything that was read."""

    sources: int
    partitions: int
    files: int
    files_gone: int
    files_unread: int
    bytes: int
    episodes: int


class CrawlerStatusOut(TypedDict):
    """How the crawler is doing. `running` is null, with the reason in `dagster`, while Dagster is away, and true where
    a run was asked for that has not begun. `retired`: partitions whose source is not configured any more; they keep
    what was read.
    """

    running: bool | None
    current_activity: list[str]
    runs: list[RunOut]
    last_run: RunOut | None
    duration_s: float | None
    interval_s: int
    totals: CrawlerTotalsOut
    hosts: list[SourceHostOut]
    sources: list[CrawledOut]
    retired: list[str]
    dagster: str | None


class CrawlStartedOut(TypedDict):
    """What was asked of Dagster: one run per partition. `run_id` is the id of one of them, or of the backfill of many;
    null when nothing is new.
    """

    run_id: str | None
    link: str | None
    sources: list[str]
    running_already: list[str]
    problems: list[str]


class LogFolderOut(TypedDict):
    """A folder of this machine that may hold logs; `configured`: a source reads it."""

    path: str
    logs: int
    readable: bool
    configured: bool


class LogFoldersOut(TypedDict):
    """Folders that may hold logs, including those without any."""

    folders: list[LogFolderOut]


class PatternOut(TypedDict):
    """Whether a text is a regular expression, and why not."""

    valid: bool
    problem: str | None


TRIAL_S = 30.0
RUN_LOOK_S = 10.0
"""Limit in seconds for scanning the hosts when a run is requested; later answers are read by the next tick."""


class CrawlerControl:
    """Works on the store; changes count from the next scan."""

    def __init__(self, store: Store, settings: Settings, dagster: Dagster | None = None) -> None:
        """:param settings: the effective ones.
        :param dagster: launches runs; None: none are launched.
        """
        self._store, self._settings, self._dagster = store, settings, dagster

    # --- sources -------------------------------------------------------------------------------------------

    @property
    def here(self) -> str:
        """Name of this machine in results."""
        return self._settings.machine

    def specs(self) -> list[SourceSpec]:
        """Return all crawled sources, built-in ones first."""
        return configured_specs(self._settings, self._store)

    def sources(self) -> list[SourceSpecOut]:
        """Return all sources, JSON-ready."""
        return [source_out(spec) for spec in self.specs()]

    def put_all(self, specs: Sequence[SourceSpec]) -> list[str]:
        """Replace all configured sources except the built-in ones; return the names of the new and changed ones.

        :raises BadSetting: a source is invalid, or two contradict each other. Nothing has changed then.
        """
        for spec in specs:
            self._check_host(spec)
        before = set(self.specs())
        put_specs(self._store.settings, specs, built_in(self._settings), self._settings.machine)
        return [spec.name for spec in self.specs() if spec not in before]

    def put(self, spec: SourceSpec) -> bool:
        """Add or change the source of this name; return whether it differs from before.

        :raises BadSetting: it is invalid, or contradicts another. Nothing has changed then.
        """
        self._check_host(spec)
        before = self.find(spec.name)
        put_spec(self._store.settings, spec, built_in(self._settings), self._settings.machine)
        return self.find(spec.name) != before

    def remove(self, name: str) -> SourceSpec:
        """Stop crawling a source; its data stays.

        :raises BadSetting: no removable source has that name.
        """
        return remove_spec(self._store.settings, name)

    def find(self, name: str) -> SourceSpec | None:
        """Return the source of that name."""
        return next((spec for spec in self.specs() if spec.name == name), None)

    def trial(self, spec: SourceSpec) -> Trial:
        """Dry run: list what would be crawled of a source, configured or not. Only a host's recovery is stored.

        :raises HostUnreachable: its host does not answer, or there is too much to list.
        :raises HostRefused: it rejects the login, or its host key is unknown.
        :raises SourceUnreadable: its root cannot be listed.
        """
        spec = with_machine(spec, self._settings.machine)
        crawler, flights = open_crawler(self._settings, self._store, lasting=False), Flights[Trial]()
        rules = crawler.exclusions.now()

        def kept_away(path: str) -> str | None:
            rule = rules.of_path(spec.machine, path) or (rules.of_project(spec.project) if spec.project else None)
            return sentence(rule) if rule else None

        def ask() -> Trial:
            return try_source(crawler.hosts.of_spec(spec), spec, crawler.selection.rules(spec), crawler.skip, kept_away)

        flights.launch({"": ask})
        for _, flight in flights.landing(time.monotonic() + TRIAL_S):
            if flight.answer is not None:
                clock = read_clock(self._store.settings, spec.host)
                if clock.failures:
                    write_clock(
                        self._store.settings, spec.host, answered(clock, datetime.now(UTC), flight.answer.skew_s)
                    )
                return flight.answer
            raise flight.error or AssertionError
        raise HostUnreachable(f"{spec.machine} did not list {spec.root} within {TRIAL_S:.0f} s; name a smaller folder")

    def trial_out(self, spec: SourceSpec) -> TrialOut:
        """Return the dry run, JSON-ready; errors are part of the result."""
        try:
            return trial_out(self.trial(spec))
        except (HostUnreachable, HostRefused, SourceUnreadable) as exc:
            return failed_trial(with_machine(spec, self._settings.machine), str(exc))

    def _check_host(self, spec: SourceSpec) -> None:
        if not spec.host:
            return
        parse_place(spec.host)
        if self._settings.local_only:
            raise BadSetting(f"local_only refuses other machines, so {spec.host} cannot be crawled; unset it first")

    def warnings(self, tried: Sequence[Trial] = ()) -> list[str]:
        """Return warnings: sources that are not private but read files of a private one.

        :param tried: sources of recent dry runs that were not scanned yet.
        """
        specs = self.specs()
        seen = {spec.name: root for spec in specs if (root := read_look(self._store.settings, spec.name).root)}
        seen |= {trial.spec.name: trial.root for trial in tried}
        homes = {trial.spec.host: trial.home for trial in tried}
        roots = absolute_roots(specs, seen, homes | {"": os.path.expanduser("~")})
        return [overlap_text(*names) for names in private_overlaps(specs, lambda spec: roots[spec.name])]

    # --- the crawler ---------------------------------------------------------------------------------------

    def state(self) -> CrawlerStatus:
        """Return the state of each host and source, without contacting any."""
        return crawler_status(self._store, self.specs(), self._settings.crawl_interval_s, datetime.now(UTC))

    def status(self) -> CrawlerStatusOut:
        """Return the state with Dagster's current activity, JSON-ready."""
        counts = self._store.overview.counts()
        jsonl, state = JsonlControl(self._store, self._dagster).status(counts), self.state()
        last = jsonl["last_run"]
        return {
            "running": jsonl["running"],
            "current_activity": (
                [f"{counted(jsonl['requested'], 'request')} about to be run"]
                if jsonl["requested"] and not jsonl["runs"]
                else [f"reading {run['source']} ({run['status'].lower()})" for run in jsonl["runs"]]
            ),
            "runs": jsonl["runs"],
            "last_run": last,
            "duration_s": last["duration_s"] if last else None,
            "interval_s": self._settings.crawl_interval_s,
            "totals": {
                "sources": len(state.sources),
                "partitions": sum(len(row.partitions) for row in state.sources),
                "files": counts.files,
                "files_gone": counts.files_gone,
                "files_unread": counts.files_unread,
                "bytes": counts.bytes,
                "episodes": counts.episodes,
            },
            "hosts": [host_out(host) for host in state.hosts],
            "sources": [crawled_out(row) for row in state.sources],
            "retired": list(state.retired),
            "dagster": jsonl["dagster"],
        }

    def run(self, names: Sequence[str] = ()) -> CrawlStartedOut:
        """Scan the hosts now and launch ingest of what changed: of all sources, or everything of the named ones.

        :raises BadSetting: a source does not exist.
        :raises ServiceUnreachable: Dagster does not answer.
        """
        specs = [spec for spec in self.specs() if not names or spec.name in names]
        if unknown := sorted(set(names) - {spec.name for spec in specs}):
            raise BadSetting(f"there is no source {unknown[0]!r}; anamnesis sources list shows them")
        if self._dagster is None:
            raise ServiceUnreachable("Dagster does not run, so nothing is read; start it with: anamnesis up")
        self._dagster.ingest_runs()
        crawler = open_crawler(self._settings, self._store, lasting=False)
        crawler = replace(crawler, hosts=replace(crawler.hosts, specs=specs))
        found = look(crawler, datetime.now(UTC), everything=True, budget_s=RUN_LOOK_S)
        of_these = [s.key for s in self._store.files.sources() if any(is_of(s, spec) for spec in specs)]
        keys = of_these if names else list(found.changed)
        started = JsonlControl(self._store, self._dagster).launch(keys, "Crawl, asked for by hand")
        return {**started, "problems": list(found.problems)}

    def first_look(self, names: Sequence[str]) -> FirstLookOut | None:
        """Scan new and changed sources and ingest them; return None without any. Problems are part of the result."""
        if not names:
            return None
        if self._dagster is None:
            return first_look_out(None, "read when `anamnesis up` runs, or now with: anamnesis ingest")
        try:
            started = self.run(names)
        except ServiceUnreachable as exc:
            return first_look_out(
                None, f"read by the next look of `anamnesis up`, or now with: anamnesis ingest ({exc})"
            )
        if started["run_id"]:
            return first_look_out(started, f"read now: {started['link']}")
        if started["running_already"]:
            return first_look_out(started, "being read already")
        return first_look_out(started, "looked at again in its interval: there is nothing to read yet")

    def set_interval(self, interval_s: int | None) -> str:
        """Set the default polling interval; None: the value of environment, file or default.

        :return: the outcome of reloading Dagster's definitions; empty if the interval did not change.
        :raises BadSetting: it is invalid, or the environment decides (ANAMNESIS_LOCK_ENV).
        """
        changes = {"crawl_interval_s": interval_s}
        settings_after(self._store, changes)
        return store_settings(self._store, changes, self._dagster)

    def log_folders(self) -> list[LogFolderOut]:
        """Return folders of this machine that may hold logs."""
        roots = {os.path.expanduser(spec.root) for spec in self.specs() if not spec.host}
        found = log_folders(Path(claude_projects_dir()))
        return [cast(LogFolderOut, {**asdict(folder), "configured": folder.path in roots}) for folder in found]


def check_regex(pattern: str) -> PatternOut:
    """Check that a text is a regular expression that runs in linear time."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as exc:
        return {"valid": False, "problem": exc.args[0].decode() if isinstance(exc.args[0], bytes) else str(exc.args[0])}
    return {"valid": True, "problem": None}


def source_out(spec: SourceSpec) -> SourceSpecOut:
    """Return a source, JSON-ready. Pure."""
    lists = {"include": list(spec.include), "exclude": list(spec.exclude)}
    return cast(SourceSpecOut, {**asdict(spec), **lists, "built_in": spec.is_built_in})


def first_look_out(started: CrawlStartedOut | None, text: str) -> FirstLookOut:
    """Return the result of a first scan, JSON-ready. Pure."""
    return {
        "started": bool(started and (started["run_id"] or started["running_already"])),
        "text": text,
        "run_id": started["run_id"] if started else None,
        "link": started["link"] if started else None,
        "problems": started["problems"] if started else [],
    }


def trial_out(trial: Trial) -> TrialOut:
    """Return a dry run, JSON-ready. Pure."""
    return {
        "ok": True,
        "problem": None,
        "machine": trial.spec.machine,
        "root": trial.root,
        "clock_skew_s": trial.skew_s,
        "took_ms": round(trial.seconds * 1e3, 1),
        "partitions": trial.sources,
        "files": trial.files,
        "bytes": trial.bytes,
        "formats": [{"format": name, "files": n, "bytes": size} for name, (n, size) in trial.formats.items()],
        "first": list(trial.first),
        "left_out": dict(trial.left_out),
        "examples": {why: list(paths) for why, paths in trial.examples.items()},
        "problems": list(trial.problems),
    }


def failed_trial(spec: SourceSpec, problem: str) -> TrialOut:
    """Return the result of a failed dry run. Pure."""
    trial = Trial(spec, spec.root, None, 0.0, 0, 0, 0, {}, (), {}, {}, (), "")
    return {**trial_out(trial), "ok": False, "problem": problem}


def host_out(host: HostStatus) -> SourceHostOut:
    """Return a host, JSON-ready. Pure."""
    clock = host.clock
    return {
        "host": host.host,
        "machine": host.machine,
        "state": cast(Any, host.state),
        "last_try": _text(clock.tried_at),
        "last_answer": _text(clock.answered_at),
        "failures": clock.failures,
        "next_try": _text(clock.next_at),
        "error": clock.error or None,
        "clock_skew_s": clock.skew_s,
    }


def crawled_out(row: SpecStatus) -> CrawledOut:
    """Return the state of a source, JSON-ready. Pure."""
    spec, seen = row.spec, row.look
    return {
        "name": spec.name,
        "kind": spec.kind,
        "machine": spec.machine,
        "root": seen.root or spec.root,
        "built_in": spec.is_built_in,
        "interval_s": row.interval_s,
        "last_success": _text(seen.seen_at),
        "fresh": row.fresh,
        "lag_s": None if row.lag_s is None else round(row.lag_s, 1),
        "behind": row.behind,
        "partitions": list(row.partitions),
        "files": seen.files,
        "bytes": seen.bytes,
        "left_out": dict(seen.left_out),
        "errors": list(row.errors),
        "problems": [*([seen.error] if seen.error else []), *seen.problems],
    }


def _text(moment: datetime | None) -> str | None:
    return utc_text(moment) if moment else None

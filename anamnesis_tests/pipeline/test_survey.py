"""One look at several machines; they are in memory, the store is real, the clock is handed in."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.pipeline import survey as survey_module
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.crawl import crawl_source
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.host_clock import read_clock, read_look
from anamnesis_pipeline.pipeline.in_flight import AT_ONCE, MOST, Flights
from anamnesis_pipeline.pipeline.projects import GUESSED
from anamnesis_pipeline.pipeline.survey import Crawler, Hosts, LookReport, look
from anamnesis_pipeline.sources.document_selection import Rules
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.pipeline.hosts_in_memory import HostInMemory
from anamnesis_tests.support.crawled_documents import SameRules

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
SESSION = "11111111-2222-4333-8444-555555555555.jsonl"
LINE = (
    json.dumps({"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "why?"}}) + "\n"
)
RULES = Rules(lambda path: "markdown" if path.endswith(".md") else None)


def logs_of(name: str, **more: object) -> SourceSpec:
    return replace(SourceSpec(f"{name}-logs", LOGS, "~/.claude/projects", name, name), **more)  # type: ignore[arg-type]


def machine(name: str, *folders: str) -> HostInMemory:
    return HostInMemory(name, {f"/home/ann/.claude/projects/{folder}/{SESSION}": LINE for folder in folders})


class Ring:
    """Three machines and this one, each with a source of logs."""

    def __init__(self, store: Store, tmp_path: object) -> None:
        self.store = store
        self.machines = {name: machine(name, "-a", "-b") for name in ("nas", "vps", "laptop")}
        self.local = HostInMemory("mac", {"/home/ann/notes/CLAUDE.md": "# Notes", "/home/ann/notes/a.png": "x"})
        self.specs = [logs_of(name) for name in self.machines]
        self.flights: Flights[survey_module.Answer] = Flights()
        self.archive = Archive(tmp_path)  # type: ignore[arg-type]
        self.stamp = ""
        self.now = NOW

    def crawler(self) -> Crawler:
        hosts = Hosts(self.specs, self.local, lambda name, place: self.machines[place])
        rules = Exclusions(self.store)
        return Crawler(self.store, hosts, SameRules(RULES), self.flights, 300, rules, ("node_modules",), self.stamp)

    def look(self, *, after_s: int = 300, everything: bool = False, budget_s: float = 5.0) -> LookReport:
        self.now += timedelta(seconds=after_s)
        return look(self.crawler(), self.now, everything=everything, budget_s=budget_s)

    def ingest(self, report: LookReport) -> None:
        hosts = self.crawler().hosts
        for source in report.sources:
            if source.key in report.changed:
                crawl_source(self.store, hosts.of_source(source), self.archive, source, lambda line: (line, Counter()))


@pytest.fixture
def ring(store: Store, tmp_path: object) -> Ring:
    return Ring(store, tmp_path)


def folders(report: LookReport) -> list[str]:
    names = {source.key: f"{source.machine}{source.folder}" for source in report.sources}
    return sorted(names[key] for key in report.changed)


def test_every_project_folder_of_every_machine_is_a_source(ring: Ring) -> None:
    report = ring.look()
    assert folders(report) == ["laptop-a", "laptop-b", "nas-a", "nas-b", "vps-a", "vps-b"]
    assert (report.asked, report.seen, report.problems) == (3, 3, ())
    assert {source.key for source in ring.store.files.sources()} >= set(report.changed)


def test_a_machine_that_answers_is_asked_for_guessed_projects(ring: Ring) -> None:
    ring.ingest(ring.look())
    assert folders(ring.look()) == []
    ring.store.settings.set(f"{GUESSED}nas:/srv/shop", "/srv/shop")
    ring.machines["nas"].down = HostUnreachable("nas: no route to host")
    assert folders(ring.look()) == []
    ring.machines["nas"].down = None
    (asked,) = folders(ring.look())
    assert asked in {"nas-a", "nas-b"}
    ring.store.settings.set(f"{GUESSED}nas:/srv/shop", None)
    assert folders(ring.look()) == []


def test_one_of_three_machines_is_down_and_the_other_two_proceed(ring: Ring) -> None:
    ring.machines["vps"].down = HostUnreachable("vps: no route to host")
    report = ring.look()
    assert folders(report) == ["laptop-a", "laptop-b", "nas-a", "nas-b"]
    assert any("vps: no route to host" in problem for problem in report.problems)
    ring.machines["vps"].down = None
    assert "vps-a" in folders(ring.look()), "the next look tries again"


def test_a_dead_machine_is_named_and_asked_ever_more_rarely(ring: Ring) -> None:
    vps = ring.machines["vps"]
    vps.down = HostRefused("the host key of vps is not known")
    reports = [ring.look() for _ in range(8)]
    assert all(any("host key of vps" in problem for problem in report.problems) for report in reports)
    assert len(vps.surveys) == 4, "at once, after one interval, two more, four more"
    assert read_clock(ring.store.settings, "vps").failures == 4
    assert len(ring.machines["nas"].surveys) == 8


def test_a_look_at_everything_asks_also_those_that_are_not_due(ring: Ring) -> None:
    ring.machines["vps"].down = HostUnreachable("away")
    ring.look()
    ring.machines["vps"].down = None
    assert ring.look(after_s=1).asked == 0
    assert "vps-a" in folders(ring.look(after_s=1, everything=True))


def test_a_machine_that_hangs_holds_up_nobody(ring: Ring) -> None:
    ring.machines["vps"].stall = threading.Event()
    report = ring.look(budget_s=3)
    assert folders(report) == ["laptop-a", "laptop-b", "nas-a", "nas-b"]
    assert any("vps: no answer yet" in problem for problem in report.problems)
    assert ring.look(budget_s=3).asked == 3
    assert len(ring.machines["vps"].surveys) == 1, "there is never a second call while one hangs"
    ring.machines["vps"].stall.set()
    assert "vps-a" in folders(ring.look(after_s=30))


def test_a_bug_in_one_host_stops_no_other(ring: Ring, caplog: pytest.LogCaptureFixture) -> None:
    ring.machines["vps"].down = RuntimeError("a bug")
    report = ring.look()
    assert "nas-a" in folders(report)
    assert any("RuntimeError: a bug" in problem for problem in report.problems)


def test_a_host_says_in_one_line_that_nothing_changed(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.ingest(ring.look())
    assert folders(ring.look()) == []
    cursors = ring.store.files.cursors
    monkeypatch.setattr(ring.store.files, "cursors", lambda key: pytest.fail(f"looks at the cursors of {key}"))
    report = ring.look()
    assert [survey.files for host in ring.machines.values() for survey in host.answers] == [None] * 3  # type: ignore[union-attr]
    assert len(report.sources) == 6, "they are still known to be there"
    monkeypatch.setattr(ring.store.files, "cursors", cursors)
    ring.machines["nas"].files[f"/home/ann/.claude/projects/-a/{SESSION}"] += LINE
    assert folders(ring.look()) == ["nas-a"]


def test_a_state_is_not_remembered_while_something_is_left_to_do(ring: Ring) -> None:
    assert folders(ring.look()) == folders(ring.look())
    assert read_look(ring.store.settings, "nas-logs").state == ""


def test_other_rules_make_a_host_list_everything_again(ring: Ring) -> None:
    ring.ingest(ring.look())
    ring.look()
    ring.stamp = "a rule was lifted"
    ring.look()
    assert all(wanted.known == "" for host in ring.machines.values() for wanted in host.surveys[-1])


def test_a_vanished_folder_is_read_once_more(ring: Ring) -> None:
    ring.ingest(ring.look())
    for path in list(ring.machines["nas"].files):
        if "/-a/" in path:
            del ring.machines["nas"].files[path]
    ring.machines["vps"].files.clear()
    report = ring.look()
    assert folders(report) == ["nas-a"]
    assert any("there is no /home/ann/.claude/projects" in problem for problem in report.problems)


def test_the_history_above_the_logs_is_a_source(ring: Ring) -> None:
    ring.machines["nas"].files["/home/ann/.claude/history.jsonl"] = "{}\n"
    kinds = {source.kind for source in ring.look().sources if source.machine == "nas"}
    assert kinds == {"claude_logs", "claude_history"}


def test_documents_are_one_source_with_what_the_selection_takes(ring: Ring) -> None:
    ring.specs = [SourceSpec("notes", DOCUMENTS, "/home/ann/notes", machine="mac")]
    (source,) = ring.look().sources
    assert (source.kind, source.spec, source.root) == (DOCUMENTS, "notes", "/home/ann/notes")
    seen = read_look(ring.store.settings, "notes")
    assert (seen.files, seen.left_out) == (1, {"of no format that is read, or a key, lock or minified file": 1})
    del ring.local.files["/home/ann/notes/CLAUDE.md"]
    ring.specs = [SourceSpec("other", DOCUMENTS, "/home/ann/notes", machine="mac")]
    assert ring.look().sources == (), "nothing is read in it"


def test_a_source_with_an_own_interval_is_looked_at_more_often(ring: Ring) -> None:
    ring.specs = [logs_of("nas", interval_s=30), logs_of("vps")]
    for _ in range(10):
        ring.look(after_s=30)
    assert (len(ring.machines["nas"].surveys), len(ring.machines["vps"].surveys)) == (10, 2)


def test_a_removed_source_is_not_looked_at_and_cannot_be_read(ring: Ring) -> None:
    source = next(source for source in ring.look().sources if source.machine == "vps")
    ring.specs = [spec for spec in ring.specs if spec.machine != "vps"]
    assert {source.machine for source in ring.look().sources} == {"nas", "laptop"}
    with pytest.raises(SourceUnreadable, match="removed"):
        ring.crawler().hosts.of_source(source)
    assert source in ring.store.files.sources()


def test_local_only_asks_no_other_machine(ring: Ring) -> None:
    hosts = Hosts(ring.specs, ring.local, lambda name, place: pytest.fail("connects"), local_only=True)
    report = look(replace(ring.crawler(), hosts=hosts), NOW, budget_s=5)
    assert report.sources == ()
    assert all("local_only" in problem for problem in report.problems)


def test_a_look_that_runs_out_of_time_goes_on_where_it_stopped(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    ring.specs, ring.machines["nas"] = [logs_of("nas")], machine("nas", "-a", "-b", "-c")
    cursors: Callable[..., object] = ring.store.files.cursors
    looked: list[str] = []
    real = survey_module.time.monotonic
    monkeypatch.setattr(ring.store.files, "cursors", lambda key: looked.append(key) or cursors(key))
    monkeypatch.setattr(survey_module.time, "monotonic", lambda: real() + 1e6 * len(looked))
    found = []
    for _ in range(4):
        looked.clear()
        found.append(folders(ring.look()))
    assert found == [["nas-a"], ["nas-b"], ["nas-c"], ["nas-a"]]


def test_since_when_a_source_is_behind_is_kept_until_it_was_read(ring: Ring) -> None:
    first = ring.look()
    since = ring.now
    ring.look()
    behind = read_look(ring.store.settings, "nas-logs").behind
    assert set(behind.values()) == {since.isoformat()}
    ring.ingest(first)
    ring.look()
    assert read_look(ring.store.settings, "nas-logs").behind == {}


# --- calls that hang -----------------------------------------------------------------------------------


def test_a_call_that_hangs_holds_up_no_other() -> None:
    flights, release = Flights[str](), threading.Event()
    flights.launch({"slow": lambda: "late" if release.wait(60) else "never", "quick": lambda: "now"})
    place, flight = next(flights.landing(time.monotonic() + 60))
    assert (place, flight.answer) == ("quick", "now")
    assert dict(flights.landing(time.monotonic() + 0.2)) == {}
    assert list(flights.under_way()) == ["slow"]
    flights.launch({"slow": lambda: "a second one"})
    release.set()
    assert dict(flights.landing(time.monotonic() + 60))["slow"].answer == "late"
    assert flights.under_way() == {}


def test_whatever_goes_wrong_is_told_and_stops_nobody() -> None:
    flights = Flights[int]()
    flights.launch({"bad": lambda: 1 // 0, "good": lambda: 1})
    landed = dict(flights.landing(time.monotonic() + 60))
    assert isinstance(landed["bad"].error, ZeroDivisionError)
    assert landed["good"].answer == 1


def test_only_so_many_calls_work_at_once() -> None:
    flights, release, most, at_work = Flights[None](), threading.Event(), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        release.wait(60)
        with lock:
            at_work[0] -= 1

    refused = flights.launch({str(n): work for n in range(MOST + 2)})
    assert refused == [str(MOST), str(MOST + 1)]
    assert dict(flights.landing(time.monotonic() + 0.05)) == {}
    release.set()
    assert len(dict(flights.landing(time.monotonic() + 60))) == MOST
    assert most[0] <= AT_ONCE

"""Each check finds what it is for."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.cli import doctor
from anamnesis_pipeline.cli.status import gather_status
from anamnesis_pipeline.errors import StoreFull
from anamnesis_pipeline.model import Episode, Passage, Space
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.host_clock import note_read
from anamnesis_pipeline.runtime.advice import log_of
from anamnesis_pipeline.runtime.up_lock import Running, hold_lock
from anamnesis_pipeline.services import machine_checks, store_checks
from anamnesis_pipeline.services.dagster.state import UnfinishedRun, read_state, stuck
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.machine_checks import Finding
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline, open_store, wanted_space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_pipeline.store.mongo import fulltext
from anamnesis_tests.support import loopback
from anamnesis_tests.support.archived_logs import Home, record
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.samples import put


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", log_roots=(tmp_path / "logs",))


def episode_at(when: datetime, episode_id: str = "e1") -> tuple[Episode, list[Passage]]:
    episode = Episode(episode_id, "direct", when, "me", "shop", "note", "summary", "text")
    return episode, [Passage(0, "text")]


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(open_store(settings)) as store:
        yield store


def up(settings: Settings, dagster: str = "", roots: Sequence[str] = ()) -> AbstractContextManager[object]:
    """While an `anamnesis up` of the home runs."""
    settings.home.mkdir(exist_ok=True)
    return hold_lock(settings.home / "up.lock", Running(1, "life", "http://127.0.0.1:1", dagster, [*roots]))


def test_log_roots_are_found_or_named(settings: Settings, tmp_path: Path) -> None:
    finding = machine_checks.log_roots(settings)
    assert not finding.ok
    assert f"absent: {tmp_path / 'logs'}" in finding.detail
    assert "make up LOGS=" in finding.advice
    (tmp_path / "agent-a.jsonl").write_text("{}\n")
    with up(settings, roots=[str(tmp_path)]):
        assert machine_checks.log_roots(settings).ok, "those of a running `up` count"
    assert not machine_checks.log_roots(settings).ok
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "agent-a.jsonl").write_text("{}\n")
    assert machine_checks.log_roots(settings).ok


def test_store_that_takes_nothing_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("the disk has no room to write")

    assert store_checks.writable(store).ok
    monkeypatch.setattr(type(store.settings), "set", full)
    finding = store_checks.writable(store)
    assert (finding.ok, "no room" in finding.detail) == (False, True)


def test_what_runs_in_containers_is_started_as_containers_are(settings: Settings) -> None:
    for elsewhere, start, log in (
        ("", "anamnesis up", f"{settings.logs_dir}/daemon.log"),
        ("http://127.0.0.1:1", "./start.sh", "docker compose logs daemon"),
    ):
        now = settings.model_copy(update={"dagster_url": elsewhere, "dagster_port": 1, "port": 1})
        for finding in (doctor.dagster(now), doctor.sidecar(now)):
            assert not finding.ok
            assert start in finding.advice
        assert log in log_of(now, "daemon")


@pytest.fixture
def other_dagster() -> Iterator[str]:
    """A server that answers as the Dagster of a memory does; its address."""
    healthy = {"daemonHealth": {"allDaemonStatuses": [{"daemonType": "SENSOR", "required": True, "healthy": True}]}}
    answer = {"data": {"instance": healthy, "last": {}, "unfinished": {}}}
    with loopback.LoopbackServer().respond(loopback.json_answer(answer)).running() as server:
        yield server.url


def test_dagster_of_this_home_is_told_of(
    settings: Settings, other_dagster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.home.mkdir()
    finding, told = doctor.dagster(settings), gather_status(settings)["dagster"]
    assert (finding.ok, told["reachable"]) == (False, False)
    assert f"does not run on {settings.home}" in finding.detail
    with up(settings, other_dagster):
        assert doctor.dagster(settings).ok
        assert gather_status(settings)["dagster"]["url"] == other_dagster
        monkeypatch.setenv("ANAMNESIS_DAGSTER_PORT", "1")
        assert not doctor.dagster(settings.model_copy(update={"dagster_port": 1})).ok


def test_only_required_daemons_count() -> None:
    kinds = [("SENSOR", True, True), ("SCHEDULER", True, None), ("ASSET", False, False)]
    daemons = [{"daemonType": kind, "required": required, "healthy": healthy} for kind, required, healthy in kinds]
    run = {"runId": "r", "jobName": "embed", "status": "STARTED", "updateTime": None, "creationTime": 0.0}
    state = read_state(
        {
            "instance": {"daemonHealth": {"allDaemonStatuses": daemons}},
            "last": {"results": []},
            "unfinished": {"results": [run]},
        }
    )
    assert state.daemons == {"SENSOR": True, "SCHEDULER": False}
    assert state.last_ingest is None
    assert state.unfinished == (UnfinishedRun("r", "embed", "STARTED", datetime(1970, 1, 1, tzinfo=UTC)),)


def test_run_is_stuck_when_its_silence_is_not_explained() -> None:
    now = datetime.now(UTC)
    starting = UnfinishedRun("a", "ingest", "STARTING", now - timedelta(minutes=20))
    working = UnfinishedRun("b", "embed", "STARTED", now - timedelta(hours=2))
    assert stuck((starting, working), now) == [starting]


def test_absent_home_is_judged_by_the_folder_around_it(settings: Settings) -> None:
    assert machine_checks.home_writable(settings).ok
    assert machine_checks.free_space(settings).detail.endswith(str(settings.home))


def test_unknown_model_is_reported(settings: Settings) -> None:
    assert machine_checks.model_files(settings).ok
    unknown = machine_checks.model_files(settings.model_copy(update={"model": "nobody/no-such-model"}))
    assert not unknown.ok
    assert "nobody/no-such-model" in unknown.detail


def test_short_retention_is_a_note(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 30}))
    finding = machine_checks.retention(settings)
    assert finding.ok
    assert '"cleanupPeriodDays": 3650' in finding.note
    (tmp_path / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 3650}))
    assert machine_checks.retention(settings).note == ""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "nowhere"))
    assert machine_checks.retention(settings).note == ""


def test_clock_and_coverage_are_judged_by_what_is_stored(store: Store) -> None:
    assert store_checks.coverage(store).ok
    store.episodes.put([episode_at(datetime.now(UTC))])
    assert not store_checks.coverage(store).ok
    assert store_checks.store_integrity(store).ok
    assert store_checks.clock(store).ok
    store.episodes.put([episode_at(datetime.now(UTC) + timedelta(days=1), "e2")])
    assert not store_checks.clock(store).ok, "an episode of the future accuses the clock"


def test_index_lost_or_bad_is_told(settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_checks.vector_index(store).ok
    wanted_space(settings, store)
    assert store_checks.vector_index(store).detail == "no index file: every vector is compared"
    monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(is_lost=True))
    lost = store_checks.vector_index(store)
    assert (lost.ok, "damaged or gone" in lost.detail, "anamnesis ingest" in lost.advice) == (False, True, True)
    monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(recall=0.5, is_exact=True))
    exact = store_checks.vector_index(store)
    assert (exact.ok, "finds 50%" in exact.detail) == (True, True)
    assert exact.note == "answers are complete, and take longer"


def test_archive_with_lost_lines_or_another_writer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    monkeypatch.setenv("ANAMNESIS_HOME", str(home.settings.home))
    assert store_checks.archived(home.store).detail == "the ends of 0 archived files are there"
    home.write([record("user", "Where is the crane?", 1)])
    home.ingest()
    assert store_checks.archived(home.store).detail == "the ends of 1 archived file are there"
    (file,) = home.settings.archive_dir.rglob("*.zst")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert "1 lost lines, e.g. " in store_checks.archived(home.store).detail
    file.unlink()
    assert not store_checks.archived(home.store).ok
    file.write_bytes(whole)
    home.archive.hand_over()
    with Archive(home.settings.archive_dir, "MongoDB anamnesis").writing("s"):
        told = store_checks.archived(home.store)
        assert "another memory writes it, MongoDB anamnesis" in told.detail
        assert "remove " + str(home.settings.archive_dir / "written-by") in told.advice
    home.close()


def test_what_was_just_read_is_being_embedded(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(settings.home))
    now = datetime.now(UTC)
    store.spaces.put(Space("hashing", "hashing-128", 128))
    store.spaces.activate("hashing")
    store.episodes.put([episode_at(now)])
    note_read(store.settings, "direct", now - timedelta(minutes=1))
    assert not store_checks.coverage(store).ok, "nobody embeds it"
    with up(settings):
        found = store_checks.coverage(store)
        assert (found.ok, "being embedded" in found.note) == (True, True)
        note_read(store.settings, "direct", now - timedelta(hours=1))
        assert not store_checks.coverage(store).ok, "it takes too long"


def test_a_damaged_database_is_reported_not_raised(settings: Settings) -> None:
    settings.home.mkdir()
    settings.database.write_bytes(b"this is no database" * 1000)
    finding = doctor.examine(settings)[-1]
    assert (finding.ok, finding.name) == (False, "store")


def test_findings_read_well() -> None:
    text = doctor.render([Finding(True, "disk", "9 GB"), Finding(False, "logs", "none", "add some")])
    assert text == "ok    disk: 9 GB\nWRONG logs: none\n      -> add some\n\n1 of 2 checks found something"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "logs" / "-code-shop" / "agent-a.jsonl"
    log.parent.mkdir(parents=True)
    return log


def ingest_logs(settings: Settings, store: Store) -> None:
    ingest_all(open_pipeline(settings, store), discover_sources(settings).sources)


@pytest.mark.parametrize("torn", ['{"type":"user","mess', '{"type":"user","mess\n'])
def test_torn_line_at_the_end_is_a_note_after_a_day(settings: Settings, store: Store, log: Path, torn: str) -> None:
    log.write_text(f'{{"type":"progress"}}\n{torn}')
    is_whole_line = torn.endswith("\n")
    check = store_checks.dead_letters if is_whole_line else store_checks.unread_logs
    ingest_logs(settings, store)
    assert (check(store).ok, check(store).note) == (not is_whole_line, "")
    log.write_text(f'{{"type":"progress"}}\n{torn}')
    os.utime(log, (0, (datetime.now(UTC) - timedelta(days=2)).timestamp()))
    ingest_logs(settings, store)
    assert check(store).ok
    assert "torn line" in check(store).note or "inside a line" in check(store).note


def test_unreadable_line_with_others_behind_it_stays_wrong(settings: Settings, store: Store, log: Path) -> None:
    log.write_text('{"type":"user","mess\n{"type":"progress"}\n')
    os.utime(log, (0, 0))
    ingest_logs(settings, store)
    assert not store_checks.dead_letters(store).ok
    advice = "let the user who runs Anamnesis read them; the next ingest does"
    assert store_checks.unread_logs(store) == Finding(True, "reading", "every file could be read", advice)


# --- a store in MongoDB


@pytest.fixture
def of_mongo(server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    values = {"HOME": str(tmp_path), "LOG_ROOTS": str(tmp_path), "STORE": "mongo", "MONGO_URI": server.uri}
    for name, value in values.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    found = Settings()
    open_store(found).close()
    return found


def test_mongo_without_room_is_wrong_until_it_takes_a_write(of_mongo: Settings, server: LoopbackServer) -> None:
    server.faults.disk_is_full = True
    told = doctor.render(doctor.examine(of_mongo))
    assert "WRONG writing: MongoDB 127.0.0.1" in told
    assert "has no room to write" in told
    server.faults.disk_is_full = False
    assert "ok    writing: the store takes what is written" in doctor.render(doctor.examine(of_mongo))


def test_mongo_away_is_to_be_started_and_a_wrong_user_is_not(
    of_mongo: Settings, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults.add("ping", error=18, times=9)
    told = doctor.render(doctor.examine(of_mongo))
    assert "refuses the user" in told
    assert "start MongoDB" not in told
    server.vanish()
    monkeypatch.setattr("anamnesis_pipeline.store.mongo.opening.ASKED_FOR_S", 1.5)
    told = doctor.render(doctor.examine(of_mongo))
    assert "does not answer (nothing listens there)" in told
    assert "-> start MongoDB" in told


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ({"reachable": False}, "WRONG store: search index passages_text"),
        ({"frozen": True}, "ok    store: search index passages_text"),
    ],
)
def test_search_index_down_or_behind_is_no_reason_to_restore(
    of_mongo: Settings, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, bool], told: str
) -> None:
    monkeypatch.setattr(fulltext, "CHECKED_FOR_S", 0.1)
    for name, value in behaviour.items():
        setattr(server.catalog.behaviour, name, value)
    with closing(open_store(of_mongo)) as store:
        put(store, "new", "Written while the search service reads nothing")
    found = doctor.render(doctor.examine(of_mongo))
    assert told in found
    assert "nothing is damaged" in found
    assert "backup" not in found

"""Each check finds what it is for."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from anamnesis_pipeline.commands import doctor
from anamnesis_pipeline.commands.status import gather_status
from anamnesis_pipeline.errors import StoreFull
from anamnesis_pipeline.model import Episode, Passage, Space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar import machine_checks, store_checks
from anamnesis_pipeline.sidecar.machine_checks import Finding
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.steps.host_clock import note_read
from anamnesis_pipeline.steps.pipeline import ingest_all
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_pipeline.supervisor.advice import log_of
from anamnesis_pipeline.supervisor.up_lock import Running, hold_lock
from anamnesis_pipeline.wiring import discover_sources, open_pipeline, open_store, wanted_space
from anamnesis_tests.steps.archived_logs import Home, record


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", log_roots=(tmp_path / "logs",))


def episode_at(when: datetime) -> tuple[Episode, list[Passage]]:
    episode = Episode("e1", "direct", when, "me", "shop", "note", "summary", "text")
    return episode, [Passage(0, "text")]


def test_an_absent_log_root_is_named(settings: Settings, tmp_path: Path) -> None:
    finding = machine_checks.log_roots(settings)
    assert not finding.ok
    assert f"absent: {tmp_path / 'logs'}" in finding.detail
    assert "make up LOGS=" in finding.advice


def test_a_store_that_takes_nothing_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_store(settings)) as store:
        assert store_checks.writable(store).ok
        monkeypatch.setattr(type(store.settings), "set", full)
        finding = store_checks.writable(store)
    assert not finding.ok
    assert "no room" in finding.detail


def full(*_: object) -> None:
    raise StoreFull("the disk has no room to write")


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


def test_logs_that_are_there_are_counted(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "agent-a.jsonl").write_text("{}\n")
    assert machine_checks.log_roots(settings).ok


@pytest.fixture
def other_dagster() -> Iterator[str]:
    """A server that answers as the Dagster of a memory does; its address."""
    healthy = {"daemonHealth": {"allDaemonStatuses": [{"daemonType": "SENSOR", "required": True, "healthy": True}]}}
    answer = {"data": {"instance": healthy, "last": {}, "unfinished": {}}}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_only_dagster_of_this_home_is_told_of(
    settings: Settings, other_dagster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.home.mkdir()
    finding, told = doctor.dagster(settings), gather_status(settings)["dagster"]
    assert (finding.ok, told["reachable"]) == (False, False)
    assert f"does not run on {settings.home}" in finding.detail
    with hold_lock(settings.home / "up.lock", Running(1, "life", "http://127.0.0.1:1", other_dagster, [])):
        assert doctor.dagster(settings).ok
        assert gather_status(settings)["dagster"]["url"] == other_dagster
        monkeypatch.setenv("ANAMNESIS_DAGSTER_PORT", "1")
        assert not doctor.dagster(settings.model_copy(update={"dagster_port": 1})).ok


def test_the_log_roots_of_a_running_up_count(settings: Settings, tmp_path: Path) -> None:
    settings.home.mkdir()
    (tmp_path / "agent-a.jsonl").write_text("{}\n")
    with hold_lock(settings.home / "up.lock", Running(1, "life", "", "", [str(tmp_path)])):
        assert machine_checks.log_roots(settings).ok
    assert not machine_checks.log_roots(settings).ok


def test_a_home_that_does_not_exist_yet_is_judged_by_the_folder_it_would_be_made_in(settings: Settings) -> None:
    assert machine_checks.home_writable(settings).ok
    assert machine_checks.free_space(settings).detail.endswith(str(settings.home))


def test_the_default_model_is_there_and_an_unknown_one_is_reported(settings: Settings) -> None:
    assert machine_checks.model_files(settings).ok
    unknown = machine_checks.model_files(settings.model_copy(update={"model": "nobody/no-such-model"}))
    assert not unknown.ok
    assert "nobody/no-such-model" in unknown.detail


def test_short_retention_is_a_note_with_the_line_that_mends_it_where_claude_code_is(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 30}))
    finding = machine_checks.retention(settings)
    assert finding.ok
    assert '"cleanupPeriodDays": 3650' in finding.note
    (tmp_path / "settings.json").write_text(json.dumps({"cleanupPeriodDays": 3650}))
    assert machine_checks.retention(settings).note == ""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "nowhere"))
    assert machine_checks.retention(settings).note == ""


def test_an_episode_without_vectors_lowers_the_coverage_and_a_sound_store_is_sound(settings: Settings) -> None:
    with closing(open_store(settings)) as store:
        assert store_checks.coverage(store).ok
        store.episodes.put([episode_at(datetime.now(UTC))])
        assert not store_checks.coverage(store).ok
        assert store_checks.store_integrity(store).ok
        assert store_checks.clock(store).ok


def test_vector_index_that_is_lost_or_finds_too_little_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store(settings)) as store:
        assert store_checks.vector_index(store).ok
        wanted_space(settings, store)
        assert store_checks.vector_index(store).detail == "no index file: every vector is compared"
        monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(is_lost=True))
        lost = store_checks.vector_index(store)
        assert (lost.ok, "damaged or gone" in lost.detail, "anamnesis ingest" in lost.advice) == (False, True, True)
        monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(recall=0.5, is_exact=True))
        exact = store_checks.vector_index(store)
        assert (exact.ok, "finds 50%" in exact.detail, exact.note) == (
            True,
            True,
            "answers are complete, and take longer",
        )


def test_an_archive_that_lost_lines_or_that_another_memory_writes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_was_read_minutes_ago_is_being_embedded_while_up_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(settings.home))
    now = datetime.now(UTC)
    with closing(open_store(settings)) as store:
        store.spaces.put(Space("hashing", "hashing-128", 128))
        store.spaces.activate(store.spaces.all()[0].key)
        store.episodes.put([episode_at(now)])
        note_read(store.settings, "direct", now - timedelta(minutes=1))
        assert not store_checks.coverage(store).ok, "nobody embeds it"
        with hold_lock(settings.home / "up.lock", Running(1, "life", "", "", [])):
            found = store_checks.coverage(store)
            assert (found.ok, "being embedded" in found.note) == (True, True)
            note_read(store.settings, "direct", now - timedelta(hours=1))
            assert not store_checks.coverage(store).ok, "it takes too long"


def test_an_episode_of_the_future_accuses_the_clock(settings: Settings) -> None:
    with closing(open_store(settings)) as store:
        store.episodes.put([episode_at(datetime.now(UTC) + timedelta(days=1))])
        assert not store_checks.clock(store).ok


def test_a_damaged_database_is_reported_not_raised(settings: Settings) -> None:
    settings.home.mkdir()
    settings.database.write_bytes(b"this is no database" * 1000)
    finding = doctor.examine(settings)[-1]
    assert (finding.ok, finding.name) == (False, "store")


def test_findings_read_well() -> None:
    text = doctor.render([Finding(True, "disk", "9 GB"), Finding(False, "logs", "none", "add some")])
    assert text == "ok    disk: 9 GB\nWRONG logs: none\n      -> add some\n\n1 of 2 checks found something"


@pytest.mark.parametrize("torn", ['{"type":"user","mess', '{"type":"user","mess\n'])
def test_a_log_that_ends_in_a_torn_line_is_a_note_once_it_is_a_day_old(
    settings: Settings, tmp_path: Path, torn: str
) -> None:
    log = tmp_path / "logs" / "-code-shop" / "agent-a.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(f'{{"type":"progress"}}\n{torn}')
    with closing(open_store(settings)) as store:
        is_whole_line = torn.endswith("\n")
        check = store_checks.dead_letters if is_whole_line else store_checks.unread_logs
        ingest_logs(settings, store)
        assert (check(store).ok, check(store).note) == (not is_whole_line, "")
        log.write_text(f'{{"type":"progress"}}\n{torn}')
        os.utime(log, (0, (datetime.now(UTC) - timedelta(days=2)).timestamp()))
        ingest_logs(settings, store)
        assert check(store).ok
        assert "torn line" in check(store).note or "inside a line" in check(store).note


def test_a_line_that_could_not_be_read_and_has_others_behind_it_stays_wrong(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "-code-shop" / "agent-a.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"type":"user","mess\n{"type":"progress"}\n')
    os.utime(log, (0, 0))
    with closing(open_store(settings)) as store:
        ingest_logs(settings, store)
        assert not store_checks.dead_letters(store).ok
        assert store_checks.unread_logs(store) == Finding(
            True,
            "reading",
            "every file could be read",
            "let the user who runs Anamnesis read them; the next ingest does",
        )


def ingest_logs(settings: Settings, store: Store) -> None:
    ingest_all(open_pipeline(settings, store), discover_sources(settings).sources)

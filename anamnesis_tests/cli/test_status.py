"""What `anamnesis status` and `anamnesis doctor` say of machines and sources: folders, a real sshd, a dead host."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import paramiko
import pytest
from pydantic import SecretStr

from anamnesis_pipeline.cli import status as status_module
from anamnesis_pipeline.cli.status import gather_status, render
from anamnesis_pipeline.defs.checks import freshness
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.pipeline.source_specs import put_spec
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import built_in, open_crawler
from anamnesis_pipeline.services import store_checks
from anamnesis_pipeline.services.blocklist import add_rule
from anamnesis_pipeline.services.crawler_status import lag_s
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.wiring import effective_settings, open_pipeline, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.sources.specs import CLAUDE_DOCUMENTS, DOCUMENTS, SourceSpec
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.ssh_servers import SSHD, home_with_key, openssh_server

DEAD = SourceSpec("far", DOCUMENTS, "/srv/notes", "me@127.0.0.1:1")
"""On a port on which nobody listens."""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Ports\n\nThe sidecar listens on port 3010 of this machine.\n")
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(tmp_path / "logs"))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "mac")
    return Settings()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(open_store(settings)) as store:
        yield store


def tick(settings: Settings, store: Store, *specs: SourceSpec) -> None:
    """Configure these, look at them, and read what is new."""
    for spec in specs:
        put_spec(store.settings, spec, built_in(settings), settings.machine)
    report = look(open_crawler(settings, store, lasting=False), datetime.now(UTC), everything=True, budget_s=10)
    sources = [source for source in report.sources if source.key in report.changed]
    ingest_all(open_pipeline(effective_settings(store), store), sources)


def said(settings: Settings) -> str:
    return render(gather_status(settings), UTC)


@pytest.fixture
def notes(settings: Settings) -> SourceSpec:
    return SourceSpec("notes", DOCUMENTS, str(settings.home.parent / "notes"))


def test_server_that_is_away_hides_nothing_else(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []

    def away(asked: Settings) -> Store:
        waited.append(asked.mongo_wait_s)
        raise StoreBusy("MongoDB gone:27017/anamnesis is not reached")

    monkeypatch.setattr(status_module, "open_to_read", away)
    uri = SecretStr("mongodb://gone:27017/")
    shown = said(settings.model_copy(update={"store": "mongo", "mongo_uri": uri}))
    assert waited == [status_module.DIAGNOSED_WITHIN_S]
    assert "Store     MongoDB gone:27017/anamnesis\nProblem   MongoDB gone:27017/anamnesis is not reached" in shown
    assert "Sidecar   " in shown
    assert "Dagster   " in shown


def test_source_has_a_line_with_its_files_and_what_is_new(settings: Settings, store: Store, notes: SourceSpec) -> None:
    put_spec(store.settings, notes, built_in(settings), settings.machine)
    assert "Source    notes on mac: not seen yet" in said(settings)
    crawler = open_crawler(settings, store, lasting=False)
    report = look(crawler, datetime.now(UTC), everything=True, budget_s=10)
    assert "1 part with something new" in said(settings)
    ingest_all(open_pipeline(effective_settings(store), store), report.sources)
    text = said(settings)
    assert "something new" not in text
    assert "Source    notes on mac: 1 file, 0.0 MB, seen 20" in text
    assert "Away" not in text
    assert "Logs      0 files (0 gone), 0 exchanges, 0 lines waiting, in 0 folders" in text
    assert "Documents 1 file (0 gone), 1 section with former ones, in 1 source" in text
    finding = store_checks.crawler(store)
    assert (finding.ok, "on 1 machine" in finding.detail) == (True, True)
    (Path(notes.root) / "b.md").write_text("# More\n\nOf what there is to say of ports.\n")
    look(crawler, datetime.now(UTC), everything=True, budget_s=10)
    assert "1 part with something new" in said(settings)


def test_status_tells_what_waits(settings: Settings, store: Store, notes: SourceSpec) -> None:
    tick(settings, store, notes)
    assert "Knowledge 0 proposals wait; detectors never ran" in said(settings)


def test_dead_host_has_its_reason_and_hides_no_other(settings: Settings, store: Store, notes: SourceSpec) -> None:
    tick(settings, store, DEAD, notes)
    rows = {row["name"]: row for row in gather_status(settings)["memory"]["crawler"]["sources"]}
    (reason,) = rows["far"]["errors"]
    assert "nothing answers at its port" in reason
    assert (rows["far"]["last_success"], rows["far"]["lag_s"], rows["far"]["fresh"]) == (None, None, False)
    assert (rows["notes"]["errors"], rows["notes"]["lag_s"]) == ([], 0.0)
    text = said(settings)
    assert f"Source    far on 127.0.0.1-1: not seen yet: STALE\n          {reason}" in text
    assert "Source    notes on mac: 1 file" in text
    (away,) = [line for line in text.splitlines() if line.startswith("Away")]
    assert "Away      127.0.0.1-1: " in away
    assert "last seen never, tried again from 20" in away
    finding = store_checks.crawler(store)
    assert (finding.ok, "127.0.0.1-1: " in finding.detail) == (False, True)
    assert "anamnesis sources test" in finding.advice
    table = str(freshness(MemoryResource()).metadata["sources"].value)
    assert re.search(r"far *\| *127.0.0.1-1 *\| *never *\| *unknown *\|.*nothing answers", table)


def test_lag_of_what_cannot_be_seen_is_since_the_last_success() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    seen, behind = now - timedelta(hours=1), now - timedelta(minutes=1)
    assert lag_s([], seen, True, now) == 0.0
    assert lag_s([behind], seen, True, now) == 60.0
    assert lag_s([behind], seen, False, now) == 3_600.0
    assert lag_s([now - timedelta(hours=2)], seen, False, now) == 7_200.0
    assert lag_s([], None, False, now) is None


@pytest.mark.skipif(not SSHD, reason="no sshd here")
def test_host_with_an_unknown_key_is_named_with_what_adds_it(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_with_key(tmp_path / "user", monkeypatch)
    with openssh_server(tmp_path / "sshd", paramiko.ECDSAKey.generate()) as server:
        tick(settings, store, SourceSpec("strange", DOCUMENTS, "/srv/notes", server.place, "strange"))
    for text in (said(settings), store_checks.crawler(store).detail):
        assert "is not known" in text
        assert f"ssh-keyscan -p {server.port}" in text


def test_source_without_anything_to_read_is_found(settings: Settings, store: Store, notes: SourceSpec) -> None:
    (Path(notes.root) / "a.md").unlink()
    tick(settings, store, notes)
    finding = store_checks.crawler(store)
    assert (finding.ok, finding.detail) == (False, "notes holds nothing that is read")
    tick(settings, store, SourceSpec("gone", DOCUMENTS, str(settings.home.parent / "nowhere")))
    assert "nowhere" in store_checks.crawler(store).detail


def test_machine_without_a_memory_for_claude_is_no_problem(settings: Settings, store: Store) -> None:
    tick(settings, store, SourceSpec("claude", DOCUMENTS, str(settings.log_roots[0]), include=CLAUDE_DOCUMENTS))
    assert store_checks.crawler(store).ok


def test_logs_that_are_missing_or_cannot_be_read_are_found(settings: Settings, store: Store) -> None:
    (logs,) = settings.log_roots
    logs.rmdir()
    tick(settings, store)
    missing = store_checks.crawler(store)
    logs.write_text("no folder")
    tick(settings, store)
    for finding in (missing, store_checks.crawler(store)):
        assert not finding.ok
        assert f"local-logs: cannot read the folder {logs}" in finding.detail


def test_document_kept_away_is_no_unreadable_file(settings: Settings, store: Store, notes: SourceSpec) -> None:
    add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "sidecar"))
    tick(settings, store, notes)
    assert store_checks.unread_logs(store).ok
    assert store_checks.crawler(store).ok


@pytest.mark.skipif(SSHD is None, reason="sshd is not installed")
def test_what_went_wrong_when_a_source_was_read_is_said_of_it(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = home_with_key(tmp_path / "user", monkeypatch) / ".ssh"
    key = paramiko.ECDSAKey.from_private_key_file(os.fspath(ssh / "id_ecdsa"))
    (tmp_path / "tools").mkdir()
    for tool in ("sh", "find", "date", "readlink", "grep", "stat"):
        (tmp_path / "tools" / tool).symlink_to(shutil.which(tool) or "")
    with openssh_server(tmp_path / "sshd", key, {"PATH": os.fspath(tmp_path / "tools")}, sftp="") as server:
        (ssh / "known_hosts").write_text(server.known_host)
        tick(settings, store, SourceSpec("far", DOCUMENTS, os.fspath(tmp_path / "notes"), server.place))
    status = gather_status(settings)
    (row,) = [row for row in status["memory"]["crawler"]["sources"] if row["name"] == "far"]
    assert "has no SFTP, and its shell needs stat, tail and head" in row["errors"][0]
    assert f"          {row['errors'][0]}" in render(status, UTC)
    assert store.overview.counts().episodes == 0

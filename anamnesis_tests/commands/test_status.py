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

from anamnesis_pipeline.commands import status as status_module
from anamnesis_pipeline.commands.status import gather_status, render
from anamnesis_pipeline.crawler_wiring import built_in, open_crawler
from anamnesis_pipeline.defs.checks import freshness
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar import store_checks
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.sources.specs import CLAUDE_DOCUMENTS, DOCUMENTS, SourceSpec
from anamnesis_pipeline.steps.blocklist import add_rule
from anamnesis_pipeline.steps.crawler_status import lag_s
from anamnesis_pipeline.steps.pipeline import ingest_all
from anamnesis_pipeline.steps.source_specs import put_spec
from anamnesis_pipeline.steps.survey import look
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import effective_settings, open_pipeline, open_store
from anamnesis_tests.ssh_servers import SSHD, openssh_server

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


def notes(settings: Settings) -> SourceSpec:
    return SourceSpec("notes", DOCUMENTS, str(settings.home.parent / "notes"))


def test_a_server_that_is_away_is_told_of_at_once_with_all_that_can_be_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_source_has_a_line_with_its_files_and_when_it_was_seen(settings: Settings, store: Store) -> None:
    put_spec(store.settings, notes(settings), built_in(settings), settings.machine)
    assert "Source    notes on mac: not seen yet" in said(settings)
    tick(settings, store)
    assert "Source    notes on mac: 1 file, 0.0 MB, seen 20" in said(settings)
    assert "Away" not in said(settings)
    finding = store_checks.crawler(store)
    assert (finding.ok, "on 1 machine" in finding.detail) == (True, True)


def test_what_is_new_is_shown_until_it_was_read_and_no_longer(settings: Settings, store: Store) -> None:
    put_spec(store.settings, notes(settings), built_in(settings), settings.machine)
    crawler = open_crawler(settings, store, lasting=False)
    report = look(crawler, datetime.now(UTC), everything=True, budget_s=10)
    assert "1 part with something new" in said(settings)
    ingest_all(open_pipeline(effective_settings(store), store), report.sources)
    assert "something new" not in said(settings)
    (settings.home.parent / "notes" / "b.md").write_text("# More\n\nOf what there is to say of ports.\n")
    look(crawler, datetime.now(UTC), everything=True, budget_s=10)
    assert "1 part with something new" in said(settings)


def test_a_source_on_a_dead_host_has_its_reason_and_no_lag_that_says_all_is_well(
    settings: Settings, store: Store
) -> None:
    tick(settings, store, DEAD, SourceSpec("well", DOCUMENTS, notes(settings).root))
    rows = {row["name"]: row for row in gather_status(settings)["memory"]["crawler"]["sources"]}
    assert "nothing answers at its port" in rows["far"]["errors"][0]
    assert (rows["far"]["last_success"], rows["far"]["lag_s"], rows["far"]["fresh"]) == (None, None, False)
    assert (rows["well"]["errors"], rows["well"]["lag_s"]) == ([], 0.0)
    text = said(settings)
    assert f"Source    far on 127.0.0.1-1: not seen yet: STALE\n          {rows['far']['errors'][0]}" in text
    table = str(freshness(MemoryResource()).metadata["sources"].value)
    assert re.search(r"far *\| *127.0.0.1-1 *\| *never *\| *unknown *\|.*nothing answers", table)


def test_the_lag_of_what_cannot_be_seen_any_more_is_since_the_last_success() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    seen, behind = now - timedelta(hours=1), now - timedelta(minutes=1)
    assert lag_s([], seen, True, now) == 0.0
    assert lag_s([behind], seen, True, now) == 60.0
    assert lag_s([behind], seen, False, now) == 3_600.0
    assert lag_s([now - timedelta(hours=2)], seen, False, now) == 7_200.0
    assert lag_s([], None, False, now) is None


def test_a_dead_host_is_named_with_its_reason_and_the_next_try_and_hides_no_other(
    settings: Settings, store: Store
) -> None:
    tick(settings, store, notes(settings), DEAD)
    text = said(settings)
    (away,) = [line for line in text.splitlines() if line.startswith("Away")]
    assert "Away      127.0.0.1-1: " in away
    assert "last seen never, tried again from 20" in away
    assert "Source    far on 127.0.0.1-1: not seen yet" in text
    assert "Source    notes on mac: 1 file" in text
    finding = store_checks.crawler(store)
    assert not finding.ok
    assert "127.0.0.1-1: " in finding.detail
    assert "anamnesis sources test" in finding.advice


@pytest.mark.skipif(not SSHD, reason="no sshd here")
def test_a_host_whose_key_is_not_known_is_named_with_the_command_that_adds_it(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "user"))
    with openssh_server(tmp_path / "sshd", paramiko.ECDSAKey.generate()) as server:
        tick(settings, store, SourceSpec("strange", DOCUMENTS, "/srv/notes", server.place, "strange"))
    for text in (said(settings), store_checks.crawler(store).detail):
        assert "is not known" in text
        assert f"ssh-keyscan -p {server.port}" in text


def test_a_source_without_anything_that_is_read_is_found(settings: Settings, store: Store) -> None:
    (settings.home.parent / "notes" / "a.md").unlink()
    tick(settings, store, notes(settings))
    finding = store_checks.crawler(store)
    assert (finding.ok, finding.detail) == (False, "notes holds nothing that is read")


def test_that_nobody_wrote_a_memory_for_claude_on_a_machine_is_no_problem(settings: Settings, store: Store) -> None:
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


def test_logs_and_documents_are_counted_apart(settings: Settings, store: Store) -> None:
    tick(settings, store, notes(settings))
    text = said(settings)
    assert "Logs      0 files (0 gone), 0 exchanges, 0 lines waiting, in 0 folders" in text
    assert "Documents 1 file (0 gone), 1 section with former ones, in 1 source" in text


def test_a_root_that_is_missing_is_found(settings: Settings, store: Store) -> None:
    tick(settings, store, SourceSpec("gone", DOCUMENTS, str(settings.home.parent / "nowhere")))
    finding = store_checks.crawler(store)
    assert not finding.ok
    assert "nowhere" in finding.detail


def test_a_document_that_a_rule_keeps_away_is_no_file_that_cannot_be_read(settings: Settings, store: Store) -> None:
    add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "sidecar"))
    tick(settings, store, notes(settings))
    assert store_checks.unread_logs(store).ok
    assert store_checks.crawler(store).ok


@pytest.mark.skipif(SSHD is None, reason="sshd is not installed")
def test_what_went_wrong_when_a_source_was_read_is_said_of_it(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = paramiko.ECDSAKey.generate()
    (tmp_path / "user" / ".ssh").mkdir(parents=True)
    key.write_private_key_file(os.fspath(tmp_path / "user" / ".ssh" / "id_ecdsa"))
    monkeypatch.setenv("HOME", os.fspath(tmp_path / "user"))
    (tmp_path / "tools").mkdir()
    for tool in ("sh", "find", "date", "readlink", "grep", "stat"):
        (tmp_path / "tools" / tool).symlink_to(shutil.which(tool) or "")
    with openssh_server(tmp_path / "sshd", key, {"PATH": os.fspath(tmp_path / "tools")}, sftp="") as server:
        (tmp_path / "user" / ".ssh" / "known_hosts").write_text(server.known_host)
        tick(settings, store, SourceSpec("far", DOCUMENTS, os.fspath(tmp_path / "notes"), server.place))
    status = gather_status(settings)
    (row,) = [row for row in status["memory"]["crawler"]["sources"] if row["name"] == "far"]
    assert "has no SFTP, and its shell needs stat, tail and head" in row["errors"][0]
    assert f"          {row['errors'][0]}" in render(status, UTC)
    assert store.overview.counts().episodes == 0

"""Sessions of Cowork, the desktop app's local agent mode: through crawl, parse and publish on a real store."""

import json
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.services import log_folders
from anamnesis_pipeline.services.log_folders import cowork_folders
from anamnesis_pipeline.services.source_trial import guessed_kind
from anamnesis_pipeline.sources.base import is_archived, record_above
from anamnesis_pipeline.sources.discovery import COWORK
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import LOGS
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import SESSION, Log

ACCOUNT = "22222222-2222-4222-8222-222222222222"
PLACE = f"{ACCOUNT}/local_33333333-3333-4333-8333-333333333333"
ORGANISATION = "11111111-1111-4111-8111-111111111111"
INSIDE = "/sessions/calm-amber-fox"


def put_session(home: Ingested, **record: Any) -> None:
    log = Log(cwd=INSIDE).talk("sort the invoices by month", "Sorted into 12 folders.")
    home.write(log.lines, f"{PLACE}/.claude/projects/-sessions-calm-amber-fox/{SESSION}.jsonl", ORGANISATION)
    home.write([json.dumps({"type": "user", "message": {"content": "sort"}})], f"{PLACE}/audit.jsonl", ORGANISATION)
    put_record(home, **record)


def put_record(home: Ingested, **record: Any) -> None:
    given = {"sessionId": "local_3", "cwd": INSIDE, "title": "Invoices", **record}
    home.write(json.dumps(given, indent=2).encode(), f"{PLACE}.json", ORGANISATION)


def test_cowork_session_has_the_project_of_its_chosen_folder(home: Ingested) -> None:
    put_session(home, userSelectedFolders=["/home/mira/invoices", "/home/mira/other"])
    home.ingest()
    (episode,) = home.episodes()
    assert (episode.project, episode.session_id) == ("/home/mira/invoices", SESSION)
    assert home.texts().count("sort the invoices by month") == 1, "the audit log repeats the session"
    assert home.ingest().messages == 0


def test_cowork_session_moves_when_its_folder_is_chosen_later(home: Ingested) -> None:
    put_session(home)
    home.ingest()
    assert [episode.project for episode in home.episodes()] == [INSIDE]
    for folder in ("/home/mira/invoices", "/home/mira/taxes"):
        put_record(home, userSelectedFolders=[folder])
        home.ingest()
        assert [episode.project for episode in home.episodes()] == [folder]


@pytest.mark.parametrize("folders", [None, [], "x", [None], {"a": 1}])
def test_cowork_record_without_folders_leaves_the_directory(home: Ingested, folders: Any) -> None:
    put_session(home, userSelectedFolders=folders)
    home.ingest()
    assert [episode.project for episode in home.episodes()] == [INSIDE]


@pytest.mark.parametrize("inner", ["/.claude", "/.claude/projects", "/.claude/projects/-sessions-calm-amber-fox"])
def test_cowork_record_is_found_above_the_log_root(home: Ingested, inner: str) -> None:
    put_session(home)
    record = home.path(f"{PLACE}.json", ORGANISATION)
    home.projects = home.projects / ORGANISATION / f"{PLACE}{inner}"
    home.ingest()
    assert [episode.project for episode in home.episodes()] == [INSIDE]
    for folder in ("/home/mira/invoices", "/home/mira/taxes and fees"):
        record.write_text(json.dumps({"userSelectedFolders": [folder]}))
        home.ingest()
        assert [episode.project for episode in home.episodes()] == [folder]
    record.unlink()
    assert home.ingest().gone == 1
    assert home.ingest().gone == 0
    assert [episode.project for episode in home.episodes()] == ["/home/mira/taxes and fees"]


def test_record_above_is_of_the_innermost_session() -> None:
    inner = f"/x/local_{ACCOUNT}/agent/local_ditto_{ORGANISATION}"
    assert record_above(inner) == record_above(f"{inner}/.claude/projects") == f"{inner}.json"
    assert record_above("/home/dev/local_settings/projects") == record_above(f"/x/local_{ACCOUNT}.json") == ""


def test_only_records_of_sessions_are_archived() -> None:
    assert is_archived(f"{PLACE}.json")
    assert is_archived(f"x/agent/local_ditto_{ACCOUNT}.json")
    assert not is_archived("local_settings.json")
    assert not is_archived(f"{PLACE}/audit.jsonl")


def test_folders_with_cowork_sessions_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cowork_folders() == []
    own, other = tmp_path / ".config/Claude" / COWORK, tmp_path / "other" / COWORK
    for folder in (own, other):
        folder.mkdir(parents=True)
    monkeypatch.setattr(log_folders, "COWORK_PLACES", (f"{tmp_path}/*/{COWORK}",))
    assert cowork_folders() == [own, other]
    found = log_folders.log_folders(tmp_path / ".claude/projects")
    assert [folder.path for folder in found] == [str(own), str(other)]
    assert guessed_kind(LocalHost("box"), str(own)) == LOGS

"""What is configured of the crawler, over HTTP."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.steps.tag_patterns import stored_patterns
from anamnesis_tests.sidecar.conftest import TestServices

URL = "/api/crawler/config/doc-tag-patterns"
INVOICE = {"match": "invoice", "tag": "money"}
NUMBER = {"match": r"\bACME-\d+", "tag": "acme", "field": "content", "regex": True, "ignorecase": False}


def test_patterns_round_trip_in_their_order(client: TestClient) -> None:
    assert client.get(URL).json() == {"patterns": []}
    whole = [{"field": "filename", "regex": False, "ignorecase": True, **INVOICE}, NUMBER]
    assert client.put(URL, json={"patterns": [INVOICE, NUMBER]}).json() == {"patterns": whole}
    assert client.get(URL).json() == {"patterns": whole}
    assert client.put(URL, json={"patterns": []}).json() == {"patterns": []}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ({"match": "(", "tag": "t", "regex": True}, "no regular expression of RE2"),
        ({"match": "(?=a)", "tag": "t", "regex": True}, "no regular expression of RE2"),
        ({"match": "", "tag": "t"}, "at least 1 character"),
        ({"match": "a", "tag": "two words"}, "pattern"),
        ({"match": "a", "tag": "t", "field": "body"}, "'filename' or 'content'"),
        ({"match": "a" * 1_001, "tag": "t"}, "at most 1000 characters"),
        ({"match": "a", "tag": "t", "flags": "i"}, "is not a known field"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused_and_changes_nothing(
    client: TestClient, services: TestServices, pattern: dict[str, Any], said: str
) -> None:
    client.put(URL, json={"patterns": [INVOICE]})
    refused = client.put(URL, json={"patterns": [NUMBER, pattern]})
    assert refused.status_code == 422
    assert said in refused.text
    assert [found.tag for found in stored_patterns(services.store.settings)] == ["money"]


def test_a_hundred_and_one_patterns_are_too_many(client: TestClient) -> None:
    assert client.put(URL, json={"patterns": [INVOICE] * 100}).status_code == 200
    assert client.put(URL, json={"patterns": [INVOICE] * 101}).status_code == 422


# --- folders as plain lists --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl-roots", "machine-roots"])
def test_roots_are_sources_and_those_that_stay_keep_their_settings(
    client: TestClient, tmp_path_factory: pytest.TempPathFactory, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(tmp_path_factory.mktemp("logs")))
    url = f"/api/crawler/config/{kind}"
    folder = str(tmp_path_factory.mktemp("kept"))
    source = {"kind": "claude_logs" if kind == "jsonl-roots" else "documents", "root": folder, "interval_s": 60}
    assert client.put("/api/sources/mine", json=source).status_code == 200
    other = {"kind": "documents" if kind == "jsonl-roots" else "claude_logs", "root": f"{folder}-other"}
    assert client.put("/api/sources/other", json=other).status_code == 200
    assert client.get(url).json() == {"roots": [{"root": folder, "host": ""}]}
    wish = [{"root": folder + "/", "host": ""}, {"root": f"{folder}-new", "host": ""}]
    reply = client.put(url, json={"roots": [*wish, *wish]})
    assert reply.status_code == 200, reply.text
    assert {root["root"] for root in reply.json()["roots"]} == {folder, f"{folder}-new"}
    found = {spec["name"]: spec for spec in client.get("/api/sources").json()["sources"] if not spec["built_in"]}
    assert found["mine"]["interval_s"] == 60
    assert found["other"]["root"] == f"{folder}-other"
    assert len(found) == 3
    removed = client.put(url, json={"roots": []}).json()
    assert (removed["roots"], len(removed["removed"]), "mine" in removed["removed"]) == ([], 2, True)
    assert "other" in {spec["name"] for spec in client.get("/api/sources").json()["sources"]}


def test_new_roots_leave_what_claude_itself_remembers_and_say_which_sources_are_gone(client: TestClient) -> None:
    url = "/api/crawler/config/machine-roots"
    for name, root in (("nas-memory", "~/.claude"), ("nas-notes", "~/notes")):
        reply = client.put(f"/api/sources/{name}", json={"kind": "documents", "root": root})
        assert reply.status_code == 200, reply.text
    memory = {"root": "~/.claude", "host": ""}
    assert client.put(url, json={"roots": []}).json() == {"roots": [memory], "removed": ["nas-notes"]}
    assert client.put(url, json={"roots": [memory]}).json() == {"roots": [memory], "removed": []}
    assert "nas-memory" in {spec["name"] for spec in client.get("/api/sources").json()["sources"]}


def test_a_root_that_cannot_be_is_refused_and_changes_nothing(client: TestClient, tmp_path: Path) -> None:
    url = "/api/crawler/config/machine-roots"
    refused = client.put(url, json={"roots": [{"root": str(tmp_path / "a")}, {"root": "/"}]})
    assert refused.status_code == 422
    assert "whole machine" in refused.text
    relative = client.put(url, json={"roots": [{"root": "notes"}]})
    assert relative.status_code == 422
    assert "roots.0.root: should be absolute or beginning with ~" in relative.json()["detail"]
    assert client.get(url).json() == {"roots": []}


def test_the_interval_is_stored_and_let_go(client: TestClient, services: TestServices) -> None:
    address = "/api/crawler/config/interval"
    assert client.get(address).json() == {"interval_s": 300, "origin": "default"}
    changed = client.put(address, json={"interval_s": 60}).json()
    assert (changed["interval_s"], changed["origin"]) == (60, "stored")
    assert changed["reload"].startswith("Dagster reloaded its schedules and sensors")
    assert client.put(address, json={"interval_s": 60}).json() == {"interval_s": 60, "origin": "stored"}
    assert services.dagster.reloads == 1
    assert client.get("/api/crawler/status").json()["interval_s"] == 60
    for wrong in (5, 86_401, "60", 60.5):
        assert client.put(address, json={"interval_s": wrong}).status_code == 422
    unset = client.put(address, json={"interval_s": None}).json()
    assert (unset["interval_s"], unset["origin"]) == (300, "default")


def test_an_interval_that_the_environment_decides_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    monkeypatch.setenv("ANAMNESIS_CRAWL_INTERVAL_S", "120")
    refused = client.put("/api/crawler/config/interval", json={"interval_s": 60})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "interval_s")

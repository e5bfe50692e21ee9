"""Sources, the crawler and its configuration over HTTP, on a real store and folders; Dagster stands in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.pipeline.host_clock import HostClock, failed, read_clock, write_clock
from anamnesis_pipeline.pipeline.tag_patterns import stored_patterns
from anamnesis_pipeline.services.dagster.runs import IngestRun, IngestRuns
from anamnesis_tests.sidecar.conftest import TestServices, problem

pytestmark = pytest.mark.usefixtures("roots")


def notes(folder: Path, **more: Any) -> dict[str, Any]:
    return {"name": "notes", "kind": "documents", "root": str(folder / "notes"), **more}


def names(client: TestClient) -> list[str]:
    reply = client.get("/api/sources")
    assert reply.status_code == 200, reply.text
    return [source["name"] for source in reply.json()["sources"]]


def test_source_is_added_changed_and_removed_by_name(client: TestClient, roots: Path) -> None:
    assert names(client) == ["local-logs", "local-memory"], "without configuration"
    fields = {"kind": "documents", "root": str(roots / "notes"), "include": ["*.md"], "interval_s": 60}
    added = client.put("/api/sources/notes", json=fields)
    assert (added.status_code, added.json()["machine"], added.json()["built_in"]) == (200, "mac", False)
    assert client.put("/api/sources/notes", json={**fields, "private": True}).json()["private"] is True
    assert names(client) == ["local-logs", "local-memory", "notes"]
    assert client.delete("/api/sources/notes").status_code == 204
    assert client.delete("/api/sources/notes").status_code == 404
    assert names(client) == ["local-logs", "local-memory"]


def test_list_is_put_whole_or_not_at_all(client: TestClient, roots: Path) -> None:
    far = {"name": "nas", "kind": "claude_logs", "root": "~/.claude/projects", "host": "ann@nas"}
    assert client.put("/api/sources", json={"sources": [notes(roots), far]}).status_code == 200
    assert names(client)[2:] == ["nas", "notes"]
    twice = client.put("/api/sources", json={"sources": [notes(roots), notes(roots)]})
    assert problem(twice)["errors"][0]["path"] == "sources"
    assert names(client)[2:] == ["nas", "notes"]
    assert client.put("/api/sources", json={"sources": []}).status_code == 200
    assert names(client) == ["local-logs", "local-memory"]


def test_what_cannot_be_a_source_is_refused(client: TestClient, roots: Path) -> None:
    for wrong in (
        {"root": "notes"},
        {"kind": "pictures"},
        {"interval_s": 5},
        {"host": "a b"},
        {"include": ["!"]},
        {"what": 1},
        {"root": "C:\\notes"},
        {"root": "/"},
        {"max_file_bytes": 0},
    ):
        fields = notes(roots, **wrong)
        problem(client.put(f"/api/sources/{fields.pop('name')}", json=fields))
    assert names(client) == ["local-logs", "local-memory"]


def test_trial_says_what_would_be_crawled(client: TestClient, services: TestServices, roots: Path) -> None:
    def tried(**asked: Any) -> dict[str, Any]:
        return client.post("/api/sources/test", json=asked).json()

    settings = services.store.settings
    write_clock(settings, "", failed(HostClock(), datetime.now(UTC), "away", 3_600))
    body = tried(source=notes(roots))
    assert (body["ok"], body["files"], body["first"]) == (True, 1, ["a.md"])
    assert body["formats"] == [{"format": "markdown", "files": 1, "bytes": 4}]
    assert read_clock(settings, "").next_at is None, "a machine that answers is away no longer"
    assert tried(name="local-logs")["partitions"] == 1
    assert [source.key for source in services.store.files.sources() if source.kind != "reserved"] == []
    for body in ({"name": "nope"}, {}):
        problem(client.post("/api/sources/test", json=body))
    far = tried(source=notes(roots, host="me@127.0.0.1:1"))
    assert (far["ok"], "127.0.0.1" in far["problem"]) == (False, True)


def test_run_looks_and_asks_for_what_is_new(client: TestClient, services: TestServices, roots: Path) -> None:
    assert client.get("/api/crawler/status").json()["running"] is False
    client.put("/api/sources", json={"sources": [notes(roots)]})
    reply = client.post("/api/crawler/run")
    body = reply.json()
    assert (reply.status_code, body["run_id"]) == (202, "ingest2"), "the first is the look at what is new"
    assert (bool(body["link"]), len(body["sources"])) == (True, 2)
    only = client.post("/api/crawler/run", json={"sources": ["notes"]}).json()
    assert [key.split("--")[1] for key in only["sources"]] == ["notes.documents"]
    problem(client.post("/api/crawler/run", json={"sources": ["nope"]}))
    body = client.get("/api/crawler/status").json()
    assert (body["running"], body["current_activity"]) == (True, ["3 requests about to be run"])


def test_new_source_is_read_at_once(client: TestClient, services: TestServices, roots: Path) -> None:
    fields = {"kind": "documents", "root": str(roots / "notes")}
    added = client.put("/api/sources/notes", json=fields).json()["first_look"]
    assert (added["started"], added["run_id"], "read now" in added["text"]) == (True, "ingest1", True)
    assert client.put("/api/sources/notes", json=fields).json()["first_look"] is None
    both = [notes(roots), notes(roots) | {"name": "far", "host": "me@127.0.0.1:1", "machine": "far"}]
    put = client.put("/api/sources", json={"sources": both}).json()["first_look"]
    assert (put["started"], put["run_id"]) == (False, None)
    assert "127.0.0.1" in put["problems"][0]
    assert [key.split("--")[1] for keys, _ in services.dagster.ingests for key in keys] == ["notes.documents"]


def test_source_is_kept_without_dagster(client: TestClient, services: TestServices, roots: Path) -> None:
    services.dagster.up = False
    look = client.put("/api/sources", json={"sources": [notes(roots)]}).json()["first_look"]
    assert (look["started"], "next look of `anamnesis up`" in look["text"]) == (False, True)
    assert names(client)[-1] == "notes"
    problem(client.post("/api/crawler/run"), 503)
    body = client.get("/api/crawler/status").json()
    assert (body["running"], bool(body["dagster"])) == (None, True)


def test_status_tells_of_machines_and_runs(client: TestClient, services: TestServices, roots: Path) -> None:
    far = {"name": "nas", "kind": "documents", "root": "/x", "host": "me@127.0.0.1:1", "machine": "nas"}
    client.put("/api/sources", json={"sources": [notes(roots), far]})
    client.post("/api/crawler/run")
    services.dagster.runs = IngestRuns((IngestRun("r", "mac--a", "STARTED", 1e9, None),), None)
    body = client.get("/api/crawler/status").json()
    assert (body["running"], body["current_activity"]) == (True, ["reading mac--a (started)"])
    assert {host["machine"]: host["state"] for host in body["hosts"]} == {"mac": "well", "nas": "away"}
    rows = {row["name"]: row for row in body["sources"]}
    assert (rows["notes"]["files"], rows["notes"]["behind"], rows["notes"]["fresh"]) == (1, 1, True)
    assert (rows["nas"]["last_success"], rows["nas"]["fresh"]) == (None, False)
    assert body["totals"]["sources"] == 4


def test_expressions_and_folders_are_looked_at(client: TestClient) -> None:
    right, wrong = (client.post("/api/crawler/validate-regex", json={"pattern": p}).json() for p in ("a+b", "a("))
    assert right == {"valid": True, "problem": None}
    assert (wrong["valid"], bool(wrong["problem"])) == (False, True)
    folders = client.get("/api/crawler/available-mounts").json()["folders"]
    assert all(set(folder) == {"path", "logs", "readable", "configured"} for folder in folders)


URL = "/api/crawler/config/doc-tag-patterns"
INVOICE = {"match": "invoice", "tag": "money"}
NUMBER = {"match": r"\bACME-\d+", "tag": "acme", "field": "content", "regex": True, "ignorecase": False}


def test_patterns_round_trip_in_their_order(client: TestClient) -> None:
    assert client.get(URL).json() == {"patterns": []}
    whole = [{"field": "filename", "regex": False, "ignorecase": True, **INVOICE}, NUMBER]
    assert client.put(URL, json={"patterns": [INVOICE, NUMBER]}).json() == {"patterns": whole}
    assert client.get(URL).json() == {"patterns": whole}
    assert client.put(URL, json={"patterns": []}).json() == {"patterns": []}
    assert client.put(URL, json={"patterns": [INVOICE] * 100}).status_code == 200
    problem(client.put(URL, json={"patterns": [INVOICE] * 101}))


def test_bad_pattern_is_refused(client: TestClient, services: TestServices) -> None:
    client.put(URL, json={"patterns": [INVOICE]})
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"match": "(", "regex": True}, "no regular expression of RE2"),
        ({"match": "(?=a)", "regex": True}, "no regular expression of RE2"),
        ({"match": ""}, "at least 1 character"),
        ({"match": "a" * 1_001}, "at most 1000 characters"),
        ({"tag": "two words"}, "pattern"),
        ({"field": "body"}, "'filename' or 'content'"),
        ({"flags": "i"}, "is not a known field"),
    ]
    for pattern, said in wrong:
        refused = client.put(URL, json={"patterns": [NUMBER, {"match": "a", "tag": "t", **pattern}]})
        assert said in str(problem(refused)), pattern
    assert [found.tag for found in stored_patterns(services.store.settings)] == ["money"]


@pytest.mark.parametrize(
    ("path", "kind", "other"),
    [("jsonl-roots", "claude_logs", "documents"), ("machine-roots", "documents", "claude_logs")],
)
def test_roots_are_sources_that_keep_their_settings(client: TestClient, path: str, kind: str, other: str) -> None:
    def configured() -> dict[str, dict[str, Any]]:
        return {spec["name"]: spec for spec in client.get("/api/sources").json()["sources"] if not spec["built_in"]}

    url = f"/api/crawler/config/{path}"
    for name, made in (("mine", kind), ("other", other)):
        fields = {"kind": made, "root": f"/srv/{name}", "interval_s": 60}
        assert client.put(f"/api/sources/{name}", json=fields).status_code == 200
    assert client.get(url).json() == {"roots": [{"root": "/srv/mine", "host": ""}]}
    wish = [{"root": "/srv/mine/", "host": ""}, {"root": "/srv/new", "host": ""}]
    reply = client.put(url, json={"roots": [*wish, *wish]}).json()
    assert {root["root"] for root in reply["roots"]} == {"/srv/mine", "/srv/new"}
    found = configured()
    assert (found["mine"]["interval_s"], found["other"]["root"], len(found)) == (60, "/srv/other", 3)
    removed = client.put(url, json={"roots": []}).json()
    assert (removed["roots"], len(removed["removed"]), "mine" in removed["removed"]) == ([], 2, True)
    assert list(configured()) == ["other"]


def test_new_roots_leave_what_claude_itself_remembers(client: TestClient) -> None:
    url = "/api/crawler/config/machine-roots"
    for name, root in (("nas-memory", "~/.claude"), ("nas-notes", "~/notes")):
        assert client.put(f"/api/sources/{name}", json={"kind": "documents", "root": root}).status_code == 200
    memory = {"root": "~/.claude", "host": ""}
    assert client.put(url, json={"roots": []}).json() == {"roots": [memory], "removed": ["nas-notes"]}
    assert client.put(url, json={"roots": [memory]}).json() == {"roots": [memory], "removed": []}
    assert "nas-memory" in names(client)


def test_root_that_cannot_be_is_refused(client: TestClient, tmp_path: Path) -> None:
    url = "/api/crawler/config/machine-roots"
    refused = client.put(url, json={"roots": [{"root": str(tmp_path / "a")}, {"root": "/"}]})
    assert "whole machine" in str(problem(refused))
    refused = client.put(url, json={"roots": [{"root": "notes"}]})
    assert "roots.0.root: should be absolute or beginning with ~" in problem(refused)["detail"]
    assert client.get(url).json() == {"roots": []}


def test_interval_set_and_unset(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "/api/crawler/config/interval"
    assert client.get(address).json() == {"interval_s": 300, "origin": "default"}
    changed = client.put(address, json={"interval_s": 60}).json()
    assert (changed["interval_s"], changed["origin"]) == (60, "stored")
    assert changed["reload"].startswith("Dagster reloaded its schedules and sensors")
    assert client.put(address, json={"interval_s": 60}).json() == {"interval_s": 60, "origin": "stored"}
    assert services.dagster.reloads == 1
    assert client.get("/api/crawler/status").json()["interval_s"] == 60
    for wrong in (5, 86_401, "60", 60.5):
        problem(client.put(address, json={"interval_s": wrong}))
    unset = client.put(address, json={"interval_s": None}).json()
    assert (unset["interval_s"], unset["origin"]) == (300, "default")
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    monkeypatch.setenv("ANAMNESIS_CRAWL_INTERVAL_S", "120")
    assert problem(client.put(address, json={"interval_s": 60}))["errors"][0]["path"] == "interval_s"

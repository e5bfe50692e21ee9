"""Configured sources and the crawler over HTTP, on a real store and real folders; Dagster stands in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.dagster_api.runs import IngestRun, IngestRuns
from anamnesis_pipeline.steps.host_clock import HostClock, failed, read_clock, write_clock
from anamnesis_tests.sidecar.conftest import TestServices

pytestmark = pytest.mark.usefixtures("roots")


def notes(folder: Path, **more: Any) -> dict[str, Any]:
    return {"name": "notes", "kind": "documents", "root": str(folder / "notes"), **more}


def names(client: TestClient) -> list[str]:
    reply = client.get("/api/sources")
    assert reply.status_code == 200, reply.text
    return [source["name"] for source in reply.json()["sources"]]


def test_built_in_sources_are_listed_without_configuration(client: TestClient) -> None:
    assert names(client) == ["local-logs", "local-memory"]


def test_a_source_is_added_changed_and_removed_by_name(client: TestClient, roots: Path) -> None:
    fields = {"kind": "documents", "root": str(roots / "notes"), "include": ["*.md"], "interval_s": 60}
    added = client.put("/api/sources/notes", json=fields)
    assert (added.status_code, added.json()["machine"], added.json()["built_in"]) == (200, "mac", False)
    assert client.put("/api/sources/notes", json={**fields, "private": True}).json()["private"] is True
    assert names(client) == ["local-logs", "local-memory", "notes"]
    assert client.delete("/api/sources/notes").status_code == 204
    assert client.delete("/api/sources/notes").status_code == 404
    assert names(client) == ["local-logs", "local-memory"]


def test_the_whole_list_is_put_and_a_bad_one_changes_nothing(client: TestClient, roots: Path) -> None:
    far = {"name": "nas", "kind": "claude_logs", "root": "~/.claude/projects", "host": "ann@nas"}
    both = client.put("/api/sources", json={"sources": [notes(roots), far]})
    assert both.status_code == 200, both.text
    assert names(client)[2:] == ["nas", "notes"]
    twice = client.put("/api/sources", json={"sources": [notes(roots), notes(roots)]})
    assert (twice.status_code, twice.json()["errors"][0]["path"]) == (422, "sources")
    assert names(client)[2:] == ["nas", "notes"]
    assert client.put("/api/sources", json={"sources": []}).status_code == 200
    assert names(client) == ["local-logs", "local-memory"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"root": "notes"}, {"kind": "pictures"}, {"interval_s": 5}, {"host": "a b"}, {"include": ["!"]}, {"what": 1},
        {"root": "C:\\notes"}, {"root": "/"}, {"max_file_bytes": 0},
    ],
)  # fmt: skip
def test_what_cannot_be_a_source_is_refused(client: TestClient, roots: Path, wrong: dict[str, Any]) -> None:
    fields = {key: value for key, value in notes(roots, **wrong).items() if key != "name"}
    reply = client.put("/api/sources/notes", json=fields)
    assert reply.status_code == 422, reply.text
    assert names(client) == ["local-logs", "local-memory"]


def test_a_trial_says_what_would_be_crawled_and_stores_nothing(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    body = client.post("/api/sources/test", json={"source": notes(roots)}).json()
    assert (body["ok"], body["files"], body["first"]) == (True, 1, ["a.md"])
    assert body["formats"] == [{"format": "markdown", "files": 1, "bytes": 4}]
    assert client.post("/api/sources/test", json={"name": "local-logs"}).json()["partitions"] == 1
    assert [source.key for source in services.store.files.sources() if source.kind != "reserved"] == []
    assert client.post("/api/sources/test", json={"name": "nope"}).status_code == 422
    assert client.post("/api/sources/test", json={}).status_code == 422


def test_a_trial_of_a_host_that_is_away_is_an_answer(client: TestClient, roots: Path) -> None:
    reply = client.post("/api/sources/test", json={"source": notes(roots, host="me@127.0.0.1:1")})
    assert (reply.status_code, reply.json()["ok"]) == (200, False)
    assert "127.0.0.1" in reply.json()["problem"]


def test_a_machine_that_answers_when_it_is_tried_is_away_no_longer(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    settings = services.store.settings
    write_clock(settings, "", failed(HostClock(), datetime.now(UTC), "away", 3_600))
    assert client.post("/api/sources/test", json={"source": notes(roots)}).json()["ok"]
    assert read_clock(settings, "").next_at is None


def test_a_run_looks_and_asks_dagster_for_what_is_new(client: TestClient, services: TestServices, roots: Path) -> None:
    client.put("/api/sources", json={"sources": [notes(roots)]})
    reply = client.post("/api/crawler/run")
    assert reply.status_code == 202
    body = reply.json()
    assert body["run_id"] == "ingest2", "the first is the look at what is new"
    assert body["link"]
    assert len(body["sources"]) == 2
    only = client.post("/api/crawler/run", json={"sources": ["notes"]}).json()
    assert [key.split("--")[1] for key in only["sources"]] == ["notes.documents"]
    assert client.post("/api/crawler/run", json={"sources": ["nope"]}).status_code == 422


def test_a_source_that_is_new_or_changed_is_read_at_once_and_one_that_is_not_is_left(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    fields = {"kind": "documents", "root": str(roots / "notes")}
    added = client.put("/api/sources/notes", json=fields).json()["first_look"]
    assert (added["started"], added["run_id"], "read now" in added["text"]) == (True, "ingest1", True)
    assert client.put("/api/sources/notes", json=fields).json()["first_look"] is None
    both = [notes(roots), notes(roots) | {"name": "far", "host": "me@127.0.0.1:1", "machine": "far"}]
    put = client.put("/api/sources", json={"sources": both}).json()["first_look"]
    assert (put["started"], put["run_id"]) == (False, None)
    assert "127.0.0.1" in put["problems"][0]
    assert [key.split("--")[1] for keys, _ in services.dagster.ingests for key in keys] == ["notes.documents"]


def test_a_source_that_is_put_while_dagster_is_away_is_kept_and_when_it_is_read_is_said(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    services.dagster.up = False
    look = client.put("/api/sources", json={"sources": [notes(roots)]}).json()["first_look"]
    assert (look["started"], "next look of `anamnesis up`" in look["text"]) == (False, True)
    assert names(client)[-1] == "notes"


def test_without_dagster_no_run_is_promised_and_the_status_says_why(client: TestClient, services: TestServices) -> None:
    services.dagster.up = False
    assert client.post("/api/crawler/run").status_code == 503
    body = client.get("/api/crawler/status").json()
    assert body["running"] is None
    assert body["dagster"]


def test_the_status_tells_of_every_machine_source_and_run(
    client: TestClient, services: TestServices, roots: Path
) -> None:
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


def test_a_run_that_was_asked_for_is_running_before_dagster_has_begun_with_it(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    assert client.get("/api/crawler/status").json()["running"] is False
    assert client.post("/api/crawler/run").json()["run_id"]
    body = client.get("/api/crawler/status").json()
    assert (body["running"], body["current_activity"]) == (True, ["1 request about to be run"])


def test_regular_expressions_are_checked(client: TestClient) -> None:
    assert client.post("/api/crawler/validate-regex", json={"pattern": "a+b"}).json() == {
        "valid": True,
        "problem": None,
    }
    wrong = client.post("/api/crawler/validate-regex", json={"pattern": "a("}).json()
    assert (wrong["valid"], bool(wrong["problem"])) == (False, True)


def test_folders_that_may_hold_logs_are_listed_with_their_counts(client: TestClient, tmp_path: Path) -> None:
    folders = client.get("/api/crawler/available-mounts").json()["folders"]
    assert all(set(folder) == {"path", "logs", "readable", "configured"} for folder in folders)

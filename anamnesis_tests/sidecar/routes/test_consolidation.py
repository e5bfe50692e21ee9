"""Consolidation over HTTP, on a real store and pool; an LLM on loopback merges."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.model import Source
from anamnesis_tests.sidecar.conftest import Post, TestServices, problem
from anamnesis_tests.support.ollama_server import MODEL, OllamaServer, streamed
from anamnesis_tests.support.samples import put

LOGS = Source("mac--api--00000000", "mac", "/logs", "api")
SAID = "the webhook retries charge twice since no idempotency key is sent"
REPLY = json.dumps({"skip": False, "summary": "Retries charged twice.", "tags": ["billing"], "records": []})


@pytest.fixture
def snapshots(client: TestClient, services: TestServices) -> TestServices:
    """A session that says the same twice."""
    services.store.files.put_sources([LOGS])
    for minute, name in enumerate(("old", "new")):
        put(services.store, name, SAID, minute=minute, source=LOGS.key, session_id="s", raw_exchange=SAID)
        services.poster.embed([name])
    return services


def found(client: TestClient, **asked: Any) -> dict[str, str | None]:
    reply = client.post("/api/episodes/search", json={"query": SAID, "fold": False, "min_score": 0, **asked})
    return {hit["episode_id"]: hit["superseded_by"] for hit in reply.json()["results"]}


def test_run_hides_what_is_repeated_and_is_undone(client: TestClient, snapshots: TestServices) -> None:
    assert client.get("/api/consolidation/status").json()["changed"] == 1
    ran = client.post("/api/consolidation/run").json()
    assert (ran["sessions"], ran["superseded"], ran["waiting"]) == (1, 1, 0)
    assert found(client) == {"new": None}
    assert found(client, include_superseded=True) == {"new": None, "old": "new"}
    status = client.get("/api/consolidation/status").json()
    assert status["counts"] == {"session": 1, "merge": 0, "statement": 0, "undone": 0}
    assert (status["last_run"], status["changed"], status["threshold"]) == (ran, 0, 0.95)
    undone = client.post("/api/consolidation/unsupersede/old")
    assert undone.json() == {"restored": ["old"], "retired": None}
    client.post("/api/consolidation/run")
    assert set(found(client)) == {"old", "new"}
    assert client.post("/api/consolidation/unsupersede/old").status_code == 404
    assert client.post("/api/consolidation/unsupersede/search").status_code == 422


def test_merges_are_proposed_unless_asked_for(client: TestClient, post: Post) -> None:
    ids = [post(f"{SAID} {n}", instance=n, episode_id=n)["episode_id"] for n in ("mac", "linux")]
    defaults = client.get("/api/consolidation/regime_2/defaults").json()
    assert (defaults["dry_run"], defaults["threshold"], defaults["neighbours"]) == (True, 0.84, 10)
    assert (defaults["cluster_least"], defaults["cluster_most"], defaults["sample"]) == (2, 5, 500)
    proposed = client.post("/api/consolidation/run_regime_2").json()
    assert (proposed["dry_run"], proposed["counts"]) == (True, {"proposed": 1})
    assert set(proposed["proposals"][0]["members"]) == set(ids)
    without = client.post("/api/consolidation/run_regime_2", json={"dry_run": False}).json()
    assert "summarizer" in without["problem"]
    assert set(found(client)) == set(ids)


def test_merge_is_found_and_undone(client: TestClient, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {post(f"{SAID} {n}", instance=n, episode_id=n)["episode_id"] for n in ("mac", "linux")}
    with OllamaServer().running() as server:
        server.respond(streamed(REPLY))
        monkeypatch.setenv("ANAMNESIS_SUMMARIZER", "ollama")
        monkeypatch.setenv("ANAMNESIS_SUMMARY_MODEL", MODEL)
        monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", server.url)
        done = client.post("/api/consolidation/run_regime_2", json={"dry_run": False}).json()
    assert done["counts"] == {"merged": 1}, done
    merged = done["proposals"][0]["merged_into"]
    assert set(found(client)) == {merged}
    undone = client.post(f"/api/consolidation/unsupersede/{merged}").json()
    assert (set(undone["restored"]), undone["retired"]) == (ids, merged)
    assert set(found(client)) == ids


def test_merge_that_cannot_be_is_refused_by_its_field(client: TestClient) -> None:
    for name, value in {"threshold": 2, "sample": 1, "most": 0, "cluster_most": 6, "x": 1}.items():
        refused = problem(client.post("/api/consolidation/run_regime_2", json={name: value}))
        assert name in json.dumps(refused["errors"])


def test_the_schedule_is_kept_and_says_when_it_runs_next(client: TestClient, services: TestServices) -> None:
    schedule = client.get("/api/consolidation/schedule").json()
    assert (schedule["consolidate_schedule"], schedule["consolidate_hour"]) == ("nightly", 6)
    assert schedule["next_run"].endswith("06:00:00Z") or "T06:00" in schedule["next_run"]
    changed = client.put("/api/consolidation/schedule", json={"consolidate_schedule": "disabled"})
    assert changed.status_code == 200, changed.text
    assert services.dagster.reloads == 1
    assert changed.json()["reload"].startswith("Dagster reloaded its schedules and sensors")
    assert client.get("/api/consolidation/schedule").json()["next_run"] is None
    for body in ({}, {"consolidate_hour": 24}, {"consolidate_schedule": "yearly"}, {"ingest_hour": 3}):
        assert client.put("/api/consolidation/schedule", json=body).status_code == 422

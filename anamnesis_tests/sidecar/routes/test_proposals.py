from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import TestServices, problem
from anamnesis_tests.support.proposed import NOTES, STEPS, dream, propose_procedure, tell


@pytest.fixture
def dreamt(client: TestClient) -> TestClient:
    tell(client)
    dream(client)
    return client


def listed(client: TestClient, **asked: Any) -> list[dict[str, Any]]:
    reply = client.get("/api/proposals", params=asked)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["items"]
    return found


def one(client: TestClient, kind: str) -> dict[str, Any]:
    (found,) = listed(client, kind=kind)
    return found


def decide(client: TestClient, proposal_id: str, action: str, **wanted: str) -> dict[str, Any]:
    reply = client.post(f"/api/proposals/{proposal_id}/{action}", json=wanted)
    assert reply.status_code == 200, reply.text
    done: dict[str, Any] = reply.json()
    return done


def test_list_has_evidence_and_what_accepting_changes(dreamt: TestClient) -> None:
    found = one(dreamt, "supersede")
    assert [(each["episode_id"], each["quote"]) for each in found["evidence"]] == [
        ("friday", NOTES["friday"]),
        ("monday", NOTES["monday"]),
    ]
    assert found["change"]["statuses"] == [
        {"episode_id": "friday", "status": "superseded", "superseded_by": "monday"},
    ]
    assert (found["state"], found["project"], found["decided_at"]) == ("open", "shop", None)
    assert dreamt.get(f"/api/proposals/{found['proposal_id'][:8]}").json() == found
    assert {each["kind"] for each in listed(dreamt)} == {"supersede", "merge"}
    assert len(listed(dreamt, limit=1)) == 1
    assert listed(dreamt, project="garden") == listed(dreamt, state="accepted") == []
    assert len(listed(dreamt, state="all")) == 2


def test_accepting_supersedes_and_undoing_restores(dreamt: TestClient) -> None:
    name = one(dreamt, "supersede")["proposal_id"]
    done = decide(dreamt, name, "accept", by="Ada", reason="the team said so")
    assert (done["state"], done["decided_by"], done["reason"]) == ("accepted", "Ada", "the team said so")
    assert dreamt.get("/api/episodes/friday").json()["superseded_by"] == "monday"
    assert decide(dreamt, name, "undo", by="Bob")["state"] == "undone"
    assert dreamt.get("/api/episodes/friday").json()["superseded_by"] is None


def test_rejected_proposal_opens_again_by_undo(dreamt: TestClient) -> None:
    name = one(dreamt, "merge")["proposal_id"]
    assert decide(dreamt, name, "reject", reason="they differ")["state"] == "rejected"
    dream(dreamt)
    assert listed(dreamt, kind="merge") == []
    assert decide(dreamt, name, "undo")["state"] == "open"


def test_accepted_procedure_has_the_text_that_was_given(client: TestClient, services: TestServices) -> None:
    tell(client)
    name = propose_procedure(services.store).proposal_id
    assert one(client, "pattern")["change"]["entry"] == STEPS
    decide(client, name, "accept", by="Ada", entry="Build, ship, tell the team")
    (kept,) = client.get("/api/episodes", params={"kind": "procedure"}).json()["items"]
    assert kept["summary"] == "Build, ship, tell the team"
    decide(client, name, "undo")
    assert client.get("/api/episodes", params={"kind": "procedure"}).json()["items"] == []


def test_unknown_decided_and_malformed_requests_are_refused(dreamt: TestClient) -> None:
    name = one(dreamt, "merge")["proposal_id"]
    unknown = "0123456789abcdef"
    for action in ("accept", "reject", "undo"):
        problem(dreamt.post(f"/api/proposals/{unknown}/{action}"), 404)
        problem(dreamt.post(f"/api/proposals/{name}/{action}", json={"note": "x"}), 422)
    problem(dreamt.get(f"/api/proposals/{unknown}"), 404)
    problem(dreamt.get("/api/proposals/abc"), 422)
    problem(dreamt.get("/api/proposals", params={"kind": "gossip"}), 422)
    problem(dreamt.get("/api/proposals", params={"limit": 0}), 422)
    assert "it must be accepted" in problem(dreamt.post(f"/api/proposals/{name}/undo"), 409)["detail"]
    decide(dreamt, name, "accept")
    for action in ("accept", "reject"):
        assert "it must be open" in problem(dreamt.post(f"/api/proposals/{name}/{action}"), 409)["detail"]


def test_dream_tells_what_waits_and_what_it_did(client: TestClient) -> None:
    assert client.get("/api/dream").json() == {"open": 0, "since": None, "last_run": None}
    tell(client)
    report = client.post("/api/dream").json()
    assert (report["observed"], report["waiting"], report["problems"]) == (4, 0, {})
    assert report["proposed"]["DuplicateNotes"]["new"] == report["proposed"]["SupersededNotes"]["new"] == 1
    told = client.get("/api/dream").json()
    assert (told["open"], told["last_run"]) == (2, report)
    assert client.post("/api/dream").json()["observed"] == 0
    assert client.get("/api/dream").json()["open"] == 2


def test_private_project_is_listed_only_by_name(dreamt: TestClient, services: TestServices) -> None:
    services.store.settings.set("config.private_projects", ["shop"])
    assert listed(dreamt) == []
    assert dreamt.get("/api/dream").json()["open"] == 0
    assert len(listed(dreamt, project="shop")) == 2

"""Forgetting over HTTP: a dry run unless it is asked for."""

from starlette.testclient import TestClient

NOTE = {"summary": "the zanzibar plan", "instance": "main", "project": "p", "episode_id": "e1"}


def test_a_post_says_what_would_go_and_removes_it_only_when_told_to(client: TestClient) -> None:
    assert client.post("/api/episodes", json=NOTE).status_code == 201
    dry = client.post("/api/forget", json={"ids": ["e1"]})
    assert dry.status_code == 200
    assert (dry.json()["dry_run"], dry.json()["episodes"]) == (True, 1)
    assert client.get("/api/episodes/e1").status_code == 200
    done = client.post("/api/forget", json={"ids": ["e1"], "dry_run": False}).json()
    assert (done["dry_run"], done["episodes"], done["problems"]) == (False, 1, [])
    assert client.get("/api/episodes/e1").status_code == 404


def test_unknown_fields_and_an_empty_wish_are_refused(client: TestClient) -> None:
    assert client.post("/api/forget", json={"everything": True}).status_code == 422
    assert client.post("/api/forget", json={}).status_code == 422

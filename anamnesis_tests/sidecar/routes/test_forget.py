"""Excluding and forgetting over HTTP."""

import pytest
from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import Post, problem


def test_an_excluded_episode_is_gone_stays_away_and_can_be_lifted(client: TestClient, post: Post) -> None:
    post("the zanzibar plan", episode_id="team/e1")
    reply = client.post("/api/episodes/team/e1/exclude", json={"reason": "out of date"})
    assert reply.status_code == 200
    assert client.get("/api/episodes/team/e1").status_code == 404
    again = client.post("/api/episodes", json={"summary": "the zanzibar plan", "instance": "x", "project": "y"})
    assert again.status_code == 409
    assert "out of date" in again.json()["detail"]
    items = client.get("/api/blocklist").json()["items"]
    assert {(item["kind"], item["reason"], item["episode_id"]) for item in items} == {
        ("content", "out of date", "team/e1"),
        ("episode", "out of date", "team/e1"),
    }
    assert client.delete("/api/blocklist/team/e1").status_code == 200
    assert client.get("/api/blocklist").json()["items"] == []
    post("the zanzibar plan")
    assert client.post("/api/episodes/none/exclude", json={}).status_code == 404


def test_deleting_leaves_an_entry_unless_it_is_told_not_to(client: TestClient, post: Post) -> None:
    post("one", episode_id="e1")
    post("two", episode_id="e2")
    assert client.delete("/api/episodes/e1").status_code == 204
    assert client.delete("/api/episodes/e2?exclude=false").status_code == 204
    assert [item["id"] for item in client.get("/api/blocklist").json()["items"]] == ["e1"]


def test_rules_are_added_once_paged_and_lifted(client: TestClient) -> None:
    ids = []
    for n in range(3):
        reply = client.post("/api/blocklist", json={"kind": "path", "value": f"/srv/p{n}", "reason": "private"})
        assert reply.status_code == 201
        assert "forget" in reply.json()["note"]
        ids.append(reply.json()["rule"]["id"])
    assert client.post("/api/blocklist", json={"kind": "path", "value": "/srv/p0/"}).status_code == 200
    first = client.get("/api/blocklist?limit=2").json()
    rest = client.get("/api/blocklist", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert client.delete(f"/api/blocklist/{ids[0]}").json()["parts"] == 0
    assert client.delete(f"/api/blocklist/{ids[0]}").status_code == 404


@pytest.mark.parametrize(
    "rule",
    [{"kind": "path", "value": "x"}, {"kind": "content-pattern", "value": "("}, {"kind": "colour", "value": "red"}, {}],
)
def test_rule_that_means_nothing_is_refused(client: TestClient, rule: dict[str, str]) -> None:
    problem(client.post("/api/blocklist", json=rule))


def test_an_excluded_item_of_a_bulk_call_fails_alone(client: TestClient) -> None:
    client.post("/api/blocklist", json={"kind": "project", "value": "secret", "reason": "private"})
    drafts = [{"summary": name, "instance": "i", "project": name} for name in ("open", "secret")]
    reply = client.post("/api/episodes/bulk", json={"episodes": drafts}).json()
    assert (reply["created"], [failed["index"] for failed in reply["failed"]]) == (1, [1])
    assert "private" in reply["failed"][0]["errors"][0]["message"]
    pair = {"user": "a", "assistant": "b", "project": "secret"}
    assert client.post("/memory/ingest", json=pair).status_code == 409


def test_forgetting_removes_only_without_dry_run(client: TestClient, post: Post) -> None:
    post("the zanzibar plan", episode_id="e1")
    dry = client.post("/api/forget", json={"ids": ["e1"]}).json()
    assert (dry["dry_run"], dry["episodes"], client.get("/api/episodes/e1").status_code) == (True, 1, 200)
    done = client.post("/api/forget", json={"ids": ["e1"], "dry_run": False}).json()
    assert (done["dry_run"], done["episodes"], done["problems"]) == (False, 1, [])
    assert client.get("/api/episodes/e1").status_code == 404
    for body in ({"everything": True}, {}):
        problem(client.post("/api/forget", json=body))


def test_forgetting_by_filter_spares_what_is_pinned(client: TestClient, post: Post) -> None:
    post("a pinned remark", episode_id="e1", tags=["pinned"])
    post("another remark", episode_id="e2")
    body = {"project": "acme", "dry_run": False}
    assert [client.post("/api/forget", json=body).json()[name] for name in ("episodes", "spared")] == [1, 1]
    assert client.get("/api/episodes/e1").status_code == 200
    done = client.post("/api/forget", json=body | {"include_pinned": True}).json()
    assert (done["episodes"], done["spared"]) == (1, 0)

"""Events, quality, similar episodes and the age of each source over HTTP."""

from typing import Any

from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import Post, problem


def test_events_are_told_once_by_number_kind_and_episode(client: TestClient, post: Post) -> None:
    def kinds(**asked: Any) -> list[str]:
        return [event["kind"] for event in client.get("/api/events", params=asked).json()["events"]]

    post("The zeppelin hangar", episode_id="a")
    post("The harbour crane", episode_id="b")
    first = client.get("/api/events").json()["events"]
    assert [(e["kind"], e["episode_id"], e["episodes"]) for e in first] == [("write", "a", 1), ("write", "b", 1)]
    client.post("/api/episodes/search", json={"query": "zeppelin hangar", "top_k": 1})
    client.patch("/api/episodes/a", json={"tags": ["pinned"]})
    since = first[-1]["number"]
    assert kinds(episode_id="a") == ["write", "read", "promote"]
    assert kinds(episode_id="a", since=since, kind=["promote", "forget"]) == ["promote"]
    assert kinds(episode_id="a", since=0, limit=1) == ["write"]
    client.delete("/api/episodes/a")
    body = client.get("/api/events", params={"since": since}).json()
    assert [e["kind"] for e in body["events"]] == ["read", "promote", "forget"]
    assert body["counts"] == {
        "write": 2,
        "read": 1,
        "edit": 0,
        "promote": 1,
        "forget": 1,
        "consolidation": 0,
        "status": 0,
    }
    assert kinds(kind=["forget"], limit=5) == ["forget"]
    assert client.get("/api/events", params={"kind": "nonsense"}).status_code == 422


def test_quality_equals_a_count_by_hand(client: TestClient, post: Post) -> None:
    empty = client.get("/api/quality").json()
    assert (empty["storage_quality"], empty["curation_ratio"], empty["episodes"]) == (None, None, 0)
    post("The zeppelin hangar", episode_id="a", kind="decision")
    post("The harbour crane", episode_id="b")
    for _ in range(2):
        client.post("/api/episodes/search", json={"query": "zeppelin hangar", "top_k": 1})
        client.get("/api/episodes/a")
    assert client.get("/api/quality").json() == {
        "episodes": 2,
        "active": 2,
        "storage_quality": 1.0,
        "curation_ratio": 0.5,
        "enrichment_ratio": None,
        "evolution_count": 0,
        "confirmation_count": 1,
        "retrievals": 2,
    }


def test_each_source_says_of_when_its_newest_episode_is(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a", timestamp="2026-03-01T12:00:00Z")
    post("The harbour crane", episode_id="b", timestamp="2026-03-02T12:00:00Z")
    rows = {row["source"]: row for row in client.get("/api/settings/sources/last-ingest").json()["sources"]}
    assert (rows["direct"]["episodes"], rows["direct"]["newest"]) == (2, "2026-03-02T12:00:00Z")
    assert (rows["chat"]["episodes"], rows["chat"]["newest"]) == (0, None)


def test_similar_comes_first_without_itself_or_superseded(client: TestClient, post: Post) -> None:
    def similar(episode_id: str, **asked: Any) -> Any:
        return client.get("/api/similar", params={"episode_id": episode_id, **asked}).json()

    post("The zeppelin hangar needs a new roof", episode_id="a")
    post("The zeppelin hangar needs a new door", episode_id="b/c")
    post("Breakfast was served late", episode_id="d")
    body = similar("a")
    assert [item["episode_id"] for item in body["items"]] == ["b/c", "d"]
    assert body["items"][0]["similarity_score"] > body["items"][1]["similarity_score"]
    assert (body["embedded"], body["model_id"]) == (True, "hashing-64")
    assert len(similar("a", limit=1)["items"]) == 1
    client.patch("/api/episodes/b/c", json={"status": "superseded", "superseded_by": "a"})
    assert [item["episode_id"] for item in similar("a")["items"]] == ["d"]
    problem(client.get("/api/similar", params={"episode_id": "nobody"}), 404)
    problem(client.get("/api/similar"))

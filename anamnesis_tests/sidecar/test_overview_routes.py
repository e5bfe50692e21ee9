from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import Post


def test_events_tell_each_operation_once_and_go_on_where_one_left_off(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a")
    first = client.get("/api/events").json()
    assert [(e["kind"], e["episode_id"], e["episodes"]) for e in first["events"]] == [("write", "a", 1)]
    client.post("/api/episodes/search", json={"query": "zeppelin hangar"})
    client.patch("/api/episodes/a", json={"tags": ["pinned"]})
    client.delete("/api/episodes/a")
    since = first["events"][-1]["number"]
    body = client.get("/api/events", params={"since": since}).json()
    assert [e["kind"] for e in body["events"]] == ["read", "promote", "forget"]
    assert body["counts"] == {
        "write": 1, "read": 1, "edit": 0, "promote": 1, "forget": 1, "consolidation": 0, "status": 0,
    }  # fmt: skip
    only = client.get("/api/events", params={"kind": ["forget"], "limit": 5}).json()["events"]
    assert [e["kind"] for e in only] == ["forget"]
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
        "episodes": 2, "active": 2, "storage_quality": 1.0, "curation_ratio": 0.5, "enrichment_ratio": None,
        "evolution_count": 0, "confirmation_count": 1, "retrievals": 2,
    }  # fmt: skip


def test_each_source_says_of_when_its_newest_episode_is(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a", timestamp="2026-03-01T12:00:00Z")
    post("The harbour crane", episode_id="b", timestamp="2026-03-02T12:00:00Z")
    rows = {row["source"]: row for row in client.get("/api/settings/sources/last-ingest").json()["sources"]}
    assert (rows["direct"]["episodes"], rows["direct"]["newest"]) == (2, "2026-03-02T12:00:00Z")
    assert (rows["chat"]["episodes"], rows["chat"]["newest"]) == (0, None)

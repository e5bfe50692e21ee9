from typing import Any

from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import Post


def similar(client: TestClient, episode_id: str, **asked: Any) -> Any:
    reply = client.get("/api/similar", params={"episode_id": episode_id, **asked})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_what_says_nearly_the_same_comes_first_and_never_the_episode_itself(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar needs a new roof", episode_id="a")
    post("The zeppelin hangar needs a new door", episode_id="b/c")
    post("Breakfast was served late", episode_id="d")
    body = similar(client, "a")
    assert [item["episode_id"] for item in body["items"]] == ["b/c", "d"]
    assert body["items"][0]["similarity_score"] > body["items"][1]["similarity_score"]
    assert (body["embedded"], body["model_id"]) == (True, "hashing-64")
    assert len(similar(client, "a", limit=1)["items"]) == 1


def test_what_is_superseded_is_not_similar(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar needs a new roof", episode_id="a")
    post("The zeppelin hangar needs a new door", episode_id="b")
    client.patch("/api/episodes/b", json={"status": "superseded", "superseded_by": "a"})
    assert similar(client, "a")["items"] == []


def test_an_unknown_episode_has_nothing_similar(client: TestClient) -> None:
    assert client.get("/api/similar", params={"episode_id": "nobody"}).status_code == 404
    assert client.get("/api/similar").status_code == 422


def test_events_that_name_one_episode_are_asked_for_alone(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a")
    post("The harbour crane", episode_id="b")
    client.patch("/api/episodes/a", json={"tags": ["pinned"]})
    events = client.get("/api/events", params={"episode_id": "a"}).json()["events"]
    assert [event["kind"] for event in events] == ["write", "promote"]
    later = {"episode_id": "a", "since": events[0]["number"], "kind": ["promote", "read"]}
    assert [event["kind"] for event in client.get("/api/events", params=later).json()["events"]] == ["promote"]
    first = client.get("/api/events", params={"episode_id": "a", "since": 0, "limit": 1}).json()["events"]
    assert [event["kind"] for event in first] == ["write"]

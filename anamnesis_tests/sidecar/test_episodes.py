from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.bulk import MAX_EPISODE_BYTES
from anamnesis_tests.sidecar.conftest import Post, TestServices, problem

POSTED = ("operation", "replaced", "challenged", "novelty", "alike", "projects_alike")
"""Fields of the answer to a post alone."""
DRAFT = {"summary": "Webhook retries charged twice", "instance": "mac", "project": "acme"}


def listed(client: TestClient, **params: Any) -> list[str]:
    return [item["summary"] for item in client.get("/api/episodes", params=params).json()["items"]]


def search(client: TestClient, query: str, **more: Any) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = client.post("/api/episodes/search", json={"query": query, **more}).json()["results"]
    return hits


def test_posted_episode_comes_back_without_text_and_vectors(client: TestClient) -> None:
    reply = client.post("/api/episodes", json={**DRAFT, "raw_exchange": "user: why?", "tags": ["billing"]})
    assert reply.status_code == 201
    body = reply.json()
    assert body == {
        **DRAFT,
        "episode_id": body["episode_id"],
        "timestamp": body["timestamp"],
        "kind": "note",
        "title": "Webhook retries charged twice",
        "tags": ["billing"],
        "retrieval_count": 0,
        "last_retrieved": None,
        "status": "active",
        "superseded_by": None,
        "superseded_at": None,
        "authority": "routing",
        "source": {"machine": "", "path": "", "session_id": "", "message_ids": []},
        "metadata": {},
        "operation": "added",
        "replaced": [],
        "challenged": [],
        "novelty": 1.0,
        "alike": [],
        "projects_alike": [],
    }
    assert body["timestamp"].endswith("Z")
    assert client.get(reply.headers["location"]).json() == {k: v for k, v in body.items() if k not in POSTED}


@pytest.mark.parametrize(("asked", "text"), [("", "absent"), ("?include=raw", "the whole text")])
def test_text_comes_only_with_include_raw(client: TestClient, asked: str, text: str) -> None:
    draft = {**DRAFT, "raw_exchange": "the whole text", "episode_id": "e"}
    answers = [
        client.post(f"/api/episodes{asked}", json=draft).json(),
        client.patch(f"/api/episodes/e{asked}", json={"tags": ["x"]}).json(),
        client.get(f"/api/episodes/e{asked}").json(),
        client.get(f"/api/episodes{asked}").json()["items"][0],
        search(client, "webhook", include=["raw"] * bool(asked))[0],
    ]
    assert [each.get("raw_exchange", "absent") for each in answers] == [text] * 5


def test_new_statement_takes_the_place_of_the_former(client: TestClient) -> None:
    def state(name: str, **more: Any) -> dict[str, Any]:
        draft = {**DRAFT, "episode_id": name, "subject": "deploy day", "kind": "decision", **more}
        reply: dict[str, Any] = client.post("/api/episodes", params=more.pop("params", {}), json=draft).json()
        return reply

    assert state("friday", summary="We deploy on Friday")["subject"] == "deploy day"
    wanted = {**DRAFT, "episode_id": "monday", "subject": "Deploy day", "summary": "We deploy on Monday"}
    would = client.post("/api/episodes", params={"dry_run": True}, json=wanted)
    assert (would.status_code, would.json()["operation"], would.json()["replaced"]) == (200, "updated", ["friday"])
    assert client.get("/api/episodes/monday").status_code == 404
    done = state("monday", summary="We deploy on Monday")
    assert (done["operation"], done["replaced"]) == ("updated", ["friday"])
    assert would.json()["novelty"] == pytest.approx(done["novelty"], abs=0.1)
    assert done["novelty"] < 1.0  # what it replaced said nearly the same
    assert [hit["episode_id"] for hit in search(client, "deploy", type=["decision"])] == ["monday"]
    assert search(client, "deploy", type=["fact"]) == []
    patched = client.patch("/api/episodes/monday", json={"metadata": {"x": 1}}).json()
    assert (patched["subject"], patched["metadata"]["x"]) == ("deploy day", 1)
    client.delete("/api/episodes/monday")
    assert [hit["episode_id"] for hit in search(client, "deploy")] == ["friday"]
    problem(client.post("/api/episodes", json={**DRAFT, "replaces": "nobody"}), 404)


def test_alike_and_novelty_are_told(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar needs new doors", episode_id="first")
    again = post("The zeppelin hangar needs new doors", episode_id="again")
    assert [each["episode_id"] for each in again["alike"]] == ["first"]
    assert again["novelty"] < 0.1
    other = post("Lunch is at noon in the yellow kitchen", episode_id="other")
    assert (other["alike"], other["novelty"] > again["novelty"]) == ([], True)
    draft = {**DRAFT, "project": again["project"], "summary": "The zeppelin hangar needs new doors"}
    would = client.post("/api/episodes", params={"dry_run": True}, json=draft).json()
    assert would["operation"] == "added"
    assert would["novelty"] < 0.1


def test_list_is_of_a_layer_and_of_a_type(client: TestClient, post: Post) -> None:
    for name, kind in (("how", "procedure"), ("why", "decision"), ("what", "note")):
        post(f"the {name} zeppelin", episode_id=name, kind=kind)
    assert listed(client, layer="procedural") == ["the how zeppelin"]
    assert listed(client, layer=["procedural", "semantic"]) == ["the why zeppelin", "the how zeppelin"]
    assert listed(client, type=["decision", "note"]) == ["the what zeppelin", "the why zeppelin"]
    problem(client.get("/api/episodes", params={"layer": "none"}), 422)


def test_search_as_of_a_time_answers_as_then(client: TestClient) -> None:
    for name, day, text in (("friday", 1, "We deploy on Friday"), ("monday", 10, "We deploy on Monday")):
        draft = {**DRAFT, "summary": text, "episode_id": name, "subject": "deploy day"}
        client.post("/api/episodes", json={**draft, "timestamp": f"2026-03-{day:02}"})
    asked = {day: search(client, "deploy", as_of=f"2026-03-{day:02}") for day in (1, 5, 12)}
    assert {day: [hit["episode_id"] for hit in hits] for day, hits in asked.items()} == {
        1: [],  # a time is exclusive, as `until` is
        5: ["friday"],
        12: ["monday"],
    }


def test_what_holds_no_more_or_not_yet_is_left_out(client: TestClient) -> None:
    bounds = {
        "over": {"valid_until": "2026-03-01"},
        "now": {"valid_from": "2026-03-01"},
        "later": {"valid_from": "2199-01-01"},
    }
    for name, more in bounds.items():
        client.post("/api/episodes", json={**DRAFT, "summary": f"the {name} zeppelin", "episode_id": name, **more})
    assert [hit["episode_id"] for hit in search(client, "zeppelin")] == ["now"]
    found = {hit["episode_id"] for hit in search(client, "zeppelin", include_superseded=True)}
    assert found == set(bounds)
    assert client.patch("/api/episodes/over", json={"valid_until": None}).json().get("valid_until") is None
    assert {hit["episode_id"] for hit in search(client, "zeppelin")} == {"now", "over"}


def test_change_of_status_is_kept_with_its_reason(client: TestClient, post: Post) -> None:
    for name in ("old", "new"):
        post(f"the {name} zeppelin", episode_id=name)
    change = {"status": "challenged", "reason": "measured: password=hunter2hunter2X9", "by": "Ada"}
    assert client.patch("/api/episodes/old", json=change).json()["status"] == "challenged"
    assert [hit["status"] for hit in search(client, "the old zeppelin") if hit["episode_id"] == "old"] == ["challenged"]
    client.patch("/api/episodes/old", json={"status": "superseded", "superseded_by": "new"})
    assert "old" not in [hit["episode_id"] for hit in search(client, "the old zeppelin")]
    client.patch("/api/episodes/old", json={"status": "invalidated"})
    body = client.get("/api/history", params={"episode_id": "old"}).json()
    told = [(each["former"], each["status"], each["superseded_by"], each["by"]) for each in body["items"]]
    assert told == [
        ("active", "challenged", None, "Ada"),
        ("challenged", "superseded", "new", "request"),
        ("superseded", "invalidated", None, "request"),  # nothing stands for it any more
    ]
    assert "hunter2" not in str(body)
    assert client.get("/api/history", params={"episode_id": "new"}).json() == {"items": []}
    problem(client.get("/api/history", params={"episode_id": "none"}), 404)
    problem(client.patch("/api/episodes/new", json={"reason": "why not", "tags": []}), 422)
    problem(client.patch("/api/episodes/new", json={"reason": "why not"}), 400)


def test_next_search_finds_what_was_posted(client: TestClient, post: Post) -> None:
    posted = post("The zeppelin hangar needs new doors")
    found = client.post("/api/episodes/search", json={"query": "zeppelin doors"}).json()
    assert [hit["episode_id"] for hit in found["results"]] == [posted["episode_id"]]
    assert (found["degraded"], found["results"][0]["similarity_score"] > 0) == ([], True)


def test_content_under_an_id_is_accepted_once(client: TestClient) -> None:
    first = client.post("/api/episodes", json={**DRAFT, "episode_id": "same"})
    again = client.post("/api/episodes", json={**DRAFT, "episode_id": "same"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {**first.json(), "operation": "unchanged"}
    problem(client.post("/api/episodes", json={**DRAFT, "episode_id": "same", "summary": "Something else"}), 409)


def test_summary_and_time_are_normalized(post: Post) -> None:
    assert post("  two\n\twords ")["summary"] == "two words"
    assert post("one", timestamp="2026-03-14T09:26:53")["timestamp"] == "2026-03-14T09:26:53Z"
    assert post("two", timestamp="2026-03-14T09:26:53.5+02:00")["timestamp"] == "2026-03-14T07:26:53.500000Z"


def test_secret_never_comes_back(client: TestClient, post: Post) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    post(f"The token is {key}", raw_exchange=f"export GITHUB_TOKEN={key}", metadata={"note": key}, episode_id="s")
    assert key not in client.get("/api/episodes/s?include=raw").text
    assert key not in str(search(client, "deploy token", include=["raw"]))


def test_ids_may_hold_any_printable_characters(client: TestClient) -> None:
    for episode_id in ("a/b:c", "acme/api/2026-01-01", "naïve id", "100%", "a?b#c", "searching", "/lead"):
        reply = client.post("/api/episodes", json={**DRAFT, "episode_id": episode_id})
        assert reply.status_code == 201, episode_id
        assert client.get(reply.headers["location"]).json()["episode_id"] == episode_id
        assert client.delete(reply.headers["location"]).status_code == 204


def test_list_pages_without_gaps_while_episodes_arrive(client: TestClient, post: Post) -> None:
    for day in range(1, 8):
        post(f"day {day}", timestamp=f"2026-01-0{day}T00:00:00Z", episode_id=f"e{day}")
    first = client.get("/api/episodes", params={"limit": 3}).json()
    post("newest of all", timestamp="2026-02-01T00:00:00Z")
    second = client.get("/api/episodes", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    third = client.get("/api/episodes", params={"limit": 3, "cursor": second["next_cursor"]}).json()
    seen = [item["summary"] for page in (first, second, third) for item in page["items"]]
    assert seen == [f"day {day}" for day in range(7, 0, -1)]
    assert third["next_cursor"] is None
    assert listed(client, skip=6) == ["day 2", "day 1"]
    assert listed(client, order="oldest", since="2026-01-07T00:00:00Z") == ["day 7", "newest of all"]
    refused = client.get("/api/episodes", params={"cursor": "made-up"})
    assert problem(refused)["errors"][0]["path"] == "cursor"
    assert "made-up" not in refused.text


FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({"project": "acme"}, {"a"}),
    ({"instance": "pi"}, {"b"}),
    ({"tags": ["x"]}, {"a", "b"}),
    ({"tags": ["x", "y"]}, {"b"}),
    ({"kind": ["decision"]}, {"b"}),
    ({"kind": ["decision", "note"]}, {"a", "b"}),
    ({"since": "2026-01-02"}, {"b"}),
    ({"until": "2026-01-02"}, {"a"}),
    ({"since": "2026-01-01", "until": "2026-01-02"}, {"a"}),
]


def test_lists_and_searches_are_filtered(client: TestClient, post: Post) -> None:
    post("zeppelin a", tags=["x"], timestamp="2026-01-01", episode_id="a")
    post(
        "zeppelin b",
        tags=["x", "y"],
        timestamp="2026-01-02",
        project="other",
        instance="pi",
        kind="decision",
        episode_id="b",
    )

    def found(**asked: Any) -> set[str]:
        return {hit["episode_id"] for hit in search(client, "zeppelin a", fold=False, min_score=0, **asked)}

    for asked, expected in FILTERS:
        assert found(**asked) == expected, asked
        params = {"tag" if name == "tags" else name: value for name, value in asked.items()}
        items = client.get("/api/episodes", params=params).json()["items"]
        assert {item["episode_id"] for item in items} == expected, asked
    assert found(project=None, instance=None, since=None) == {"a", "b"}
    assert found(top_k=1) == found(top_k=1.0) == {"a"}
    assert listed(client, kind="decision") == ["zeppelin b"]
    assert listed(client, session_id="none") == []


def test_edit_is_found_by_its_new_words_alone(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="e", tags=["old"])
    edited = client.patch("/api/episodes/e", json={"summary": "The submarine dock"}).json()
    assert (edited["summary"], edited["tags"]) == ("The submarine dock", ["old"])
    assert [hit["episode_id"] for hit in search(client, "submarine", mode="exact")] == ["e"]
    assert search(client, "zeppelin", mode="exact") == []
    for content in (b"{}", b""):
        problem(client.patch("/api/episodes/e", content=content, headers={"Content-Type": "application/json"}), 400)
    problem(client.patch("/api/episodes/e", json={"episode_id": "f"}))


def test_superseded_is_hidden_unless_asked_for(client: TestClient, post: Post) -> None:
    post("The old truth about zeppelins", episode_id="old")
    client.patch("/api/episodes/old", json={"status": "superseded", "superseded_by": "new"})
    assert search(client, "zeppelins") == []
    (hit,) = search(client, "zeppelins", include_superseded=True)
    assert (hit["episode_id"], hit["status"], hit["superseded_by"]) == ("old", "superseded", "new")
    assert (since := hit["superseded_at"])
    again = client.patch("/api/episodes/old", json={"superseded_by": "newer"}).json()
    assert (again["superseded_by"], again["superseded_at"]) == ("newer", since)
    assert client.get("/api/episodes/old").json()["status"] == "superseded"
    post("The truth about airships")
    assert listed(client, only_superseded="true") == ["The old truth about zeppelins"]
    assert client.patch("/api/episodes/old", json={"status": "active"}).json()["superseded_at"] is None


@pytest.mark.parametrize(("query", "kept_away"), [("", True), ("?exclude=false", False)])
def test_deleted_is_gone_and_stays_away(
    client: TestClient, post: Post, services: TestServices, query: str, kept_away: bool
) -> None:
    post("The zeppelin hangar", episode_id="e")
    episode = services.store.episodes.get(["e"])["e"]
    passages = [stored.passage for stored in services.store.episodes.passages_of("e")]
    assert client.delete("/api/episodes/e" + query).status_code == 204
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"summary": "x"})):
        problem(client.request(method, "/api/episodes/e", json=body), 404)
    assert search(client, "zeppelin") == []
    assert services.store.overview.counts().passages == 0
    assert services.store.episodes.put([(episode, passages)]).tombstoned == int(kept_away)


def test_bad_episode_of_a_bulk_call_fails_alone(client: TestClient) -> None:
    client.post("/api/episodes", json={**DRAFT, "episode_id": "known"})
    episodes = [
        {**DRAFT, "summary": "new"},
        {**DRAFT, "episode_id": "known"},
        {**DRAFT, "summary": " "},
        "not an object",
        {**DRAFT, "episode_id": "known", "summary": "other"},
        {**DRAFT, "raw_exchange": "x" * MAX_EPISODE_BYTES},
    ]
    body = client.post("/api/episodes/bulk", json={"episodes": episodes}).json()
    assert (body["created"], body["unchanged"]) == (1, 1)
    failed = [(failure["index"], failure["errors"][0]["path"]) for failure in body["failed"]]
    assert failed == [(2, "summary"), (3, ""), (4, "episode_id"), (5, "")]
    assert sorted(listed(client)) == sorted(["new", DRAFT["summary"]])


def test_bulk_call_holds_a_list_of_at_most_a_thousand(client: TestClient) -> None:
    for body in ({"episodes": [{}] * 1001}, {"episodes": "x"}, {}, [], {"episodes": [], "more": 1}):
        problem(client.post("/api/episodes/bulk", json=body))
    assert client.post("/api/episodes/bulk", json={"episodes": []}).status_code == 200


def test_beginning_of_an_id_reads_and_deletes_nothing(client: TestClient) -> None:
    for name in ("e52b14176ce8", "e52b99ff0011"):
        client.post("/api/episodes", json={**DRAFT, "episode_id": name, "raw_exchange": name})
    assert client.get("/api/episodes/e52b1").json()["episode_id"] == "e52b14176ce8"
    assert "e52b14176ce8 and e52b99ff0011" in problem(client.get("/api/episodes/e52b"), 409)["detail"]
    problem(client.get("/api/episodes/e52"), 404)
    problem(client.delete("/api/episodes/e52b1"), 404)
    problem(client.patch("/api/episodes/e52b1", json={"tags": ["x"]}), 404)


def test_short_ids_and_quotes_come_where_they_are_asked_for(client: TestClient) -> None:
    said = "The weather was fine. The zeppelin hangar needs new doors. Nobody knows who pays for them."
    client.post("/api/episodes", json={**DRAFT, "summary": said, "episode_id": "e52b14176ce8" + "0" * 20})
    body = {"query": "Which doors does the zeppelin hangar need?"}
    (plain,) = search(client, **body)
    assert not {"short_id", "quote"} & plain.keys()
    (hit,) = search(client, **body, include=["short_id"], quote_tokens=12)
    assert (hit["short_id"], hit["quote"]) == ("e52b14", "The zeppelin hangar needs new doors.")
    (listed,) = client.get("/api/episodes?include=short_id").json()["items"]
    assert client.get(f"/api/episodes/{listed['short_id']}").json()["episode_id"] == "e52b14176ce8" + "0" * 20


def test_summary_of_session_is_not_edited_but_replaced(client: TestClient, post: Post) -> None:
    post("We shipped it", episode_id="s", kind="session", metadata={"session": {"title": "We shipped it"}})
    for change in ({"summary": "We did not"}, {"kind": "note"}, {"metadata": {}}, {"raw_exchange": "x"}):
        told = problem(client.patch("/api/episodes/s", json=change), 409)
        assert "post a new version" in told["detail"]
        assert "`replaces`: s" in told["detail"]
    assert client.patch("/api/episodes/s", json={"summary": "We shipped it", "tags": ["pinned"]}).status_code == 200
    noted = {"metadata": {"session": {"title": "We shipped it"}, "notes": ["checked"]}}
    assert client.patch("/api/episodes/s", json=noted).status_code == 200
    reply = client.post("/api/episodes", json={**SESSION, "replaces": "s"})
    assert (reply.status_code, reply.json()["replaced"]) == (201, ["s"])
    held = client.get("/api/episodes/s").json()
    assert (held["status"], held["summary"]) == ("superseded", "We shipped it")
    assert client.post("/api/episodes", json={**SESSION, "episode_id": "s"}).status_code == 409


SESSION = {"summary": "We shipped half of it", "kind": "session", "instance": "mac", "project": "acme"}

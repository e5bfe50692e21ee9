import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.model import Episode, Passage, Source
from anamnesis_pipeline.services.fields import parse_time
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import (
    BASE,
    HashedWords,
    Post,
    TestServices,
    know_the_unrelated,
    open_services,
    wait_for,
)


def search(client: TestClient, query: str, **more: Any) -> dict[str, Any]:
    reply = client.post("/api/episodes/search", json={"query": query, **more})
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def summaries(answer: dict[str, Any]) -> list[str]:
    return [hit["summary"] for hit in answer["results"]]


def test_an_answer_has_exactly_the_fields_of_the_contract(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", timestamp="2026-03-14T09:26:53+01:00", tags=["air"])
    answer = search(client, "zeppelin")
    assert set(answer) == {"results", "weak", "took_ms", "model_id", "degraded", "total_tokens"}
    (hit,) = answer["results"]
    assert set(hit) == {
        "episode_id",
        "score",
        "confidence",
        "weak",
        "similarity_score",
        "timestamp",
        "instance",
        "project",
        "kind",
        "title",
        "summary",
        "excerpt",
        "tags",
        "retrieval_count",
        "status",
        "superseded_by",
        "superseded_at",
        "source",
        "also",
        "boosted_score",
        "priority_multiplier",
        "consolidated_from",
        "authority",
        "layer",
    }
    assert hit["boosted_score"] == hit["score"]
    assert hit["timestamp"] == "2026-03-14T08:26:53Z"
    assert 0 <= hit["score"] <= 1
    assert all(round(hit[name], 4) == hit[name] for name in ("score", "similarity_score"))
    assert "zeppelin" in hit["excerpt"]
    assert answer["model_id"] == "hashing-64"


def test_hit_says_what_it_was_made_of_and_multiplied_by(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar and all that was said of it", metadata={"consolidated_from": ["one", "two"]})
    reply = client.post("/api/episodes/search", json={"query_text": "zeppelin"})  # another name of query
    (hit,) = reply.json()["results"]
    assert (hit["consolidated_from"], hit["priority_multiplier"]) == (["one", "two"], 1.2)


def test_a_hit_points_to_the_records_of_its_own_passage(client: TestClient, services: TestServices) -> None:
    episode = Episode(
        "part",
        "mac--acme",
        parse_time("2026-01-01"),
        "mac",
        "acme",
        "exchange",
        "s",
        "zeppelin",
        machine="mac",
        path="a/b.jsonl",
        session_id="s1",
        message_ids=("m1", "m2"),
        message_keys=("k1", "k2"),
    )
    services.store.episodes.put(
        [(episode, [Passage(0, "balloon", "", ("m1",)), Passage(1, "zeppelin " * 300, "", ("m2",))])]
    )
    (hit,) = search(client, "zeppelin", mode="exact")["results"]
    assert hit["source"] == {
        "machine": "mac",
        "path": "a/b.jsonl",
        "session_id": "s1",
        "message_ids": ["m2"],
        "trust": "transcript",
    }
    assert len(hit["excerpt"]) == 850


def test_filters_never_cost_results(client: TestClient, post: Post) -> None:
    for number in range(30):
        post(f"zeppelin number {number}", project="wanted" if number % 3 == 0 else "other")
    answer = search(client, "zeppelin", project="wanted", top_k=10, min_score=0, fold=False, include_superseded=True)
    assert len(answer["results"]) == 10
    assert {hit["project"] for hit in answer["results"]} == {"wanted"}


def test_retrieval_is_counted_unless_it_is_not_tracked(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="e")
    for track, count in ((False, 0), (True, 1)):
        search(client, "zeppelin", track=track)
        episode = client.get("/api/episodes/e").json()
        assert (episode["retrieval_count"], episode["last_retrieved"] is not None) == (count, track)


def test_explain_tells_how_hits_came_about(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="hangar")
    post("Nothing in common with it at all")
    answer = search(client, "The zeppelin hangar", explain=True, min_score=0.9)
    assert answer["results"][0]["explanation"]["words_text"]["rank"] == 1
    found = answer["explanation"]
    assert found["lists"]["words_text"]["first"][0]["episode_id"] == "hangar"
    assert {"dense_text", "dense_context"} <= found["lists"].keys()
    assert (len(answer["results"]), found["candidates"], found["below_floor"]) == (1, 2, 1)
    exact = search(client, "zeppelin", mode="exact", explain=True)["explanation"]["lists"]
    assert not {"dense_text", "dense_context"} & exact.keys()
    plain = search(client, "zeppelin")
    assert "explanation" not in plain.keys() | plain["results"][0].keys()


def test_private_project_is_found_only_by_name(client: TestClient, post: Post, services: TestServices) -> None:
    for number in range(30):
        post(f"The zeppelin diary, page {number}", project="me/diary", episode_id=f"page{number}")
    post("The zeppelin plan", project="acme/plan", episode_id="plan")
    services.store.settings.set("config.private_projects", ["diary"])

    def ids(items: list[dict[str, Any]]) -> set[str]:
        return {item["episode_id"].rstrip("0123456789") for item in items}

    def found(**asked: Any) -> set[str]:
        return ids(search(client, "zeppelin", min_score=0, fold=False, top_k=100, **asked)["results"])

    def listed(**asked: Any) -> set[str]:
        return ids(client.get("/api/episodes", params={"limit": 100, **asked}).json()["items"])

    for way in (found, listed):
        assert way() == way(include_private=["other"]) == {"plan"}
        assert way(project="diary") == {"page"}
        assert way(include_private=["me/diary"]) == way(include_private=["*"]) == {"page", "plan"}


def test_below_the_threshold_the_nearest_come_as_weak(client: TestClient, post: Post, services: TestServices) -> None:
    know_the_unrelated(services.store)
    near = post("The importer skips rows without a currency")["episode_id"]
    question = "violin currency orchestra rehearsal evening"
    answer = search(client, question)
    assert answer["weak"]
    assert [(hit["episode_id"], hit["weak"], hit["confidence"]) for hit in answer["results"]] == [(near, True, "weak")]
    for narrowed in ({"weak": False}, {"profile": "context"}):
        silent = search(client, question, **narrowed)
        assert (silent["results"], silent["weak"]) == ([], False)
    assert client.post("/api/context", json={"query": question}).json()["episodes"] == []
    assert client.get("/api/queries").json()["answered"] == 0
    known = search(client, "importer rows currency")
    assert (known["weak"], known["results"][0]["weak"]) == (False, False)


def test_words_are_searched_while_the_model_loads(tmp_path: Path) -> None:
    go_on = threading.Event()

    def slow() -> HashedWords:
        go_on.wait(60)
        return HashedWords()

    with TestClient(create_app(open_services(tmp_path, slow)), base_url=BASE) as client:
        try:
            posted = {"summary": "The zeppelin hangar", "instance": "mac", "project": "acme"}
            assert client.post("/api/episodes", json=posted).status_code == 201
            answer = search(client, "zeppelin")
            assert summaries(answer) == ["The zeppelin hangar"]
            assert "loading" in answer["degraded"][0]
            assert answer["results"][0]["similarity_score"] is None
            ready = client.get("/ready")
            assert (ready.status_code, "loading" in ready.json()["missing"][0]) == (503, True)
            assert int(ready.headers["retry-after"]) > 0
        finally:
            go_on.set()
        wait_for(lambda: client.get("/ready").status_code == 200)
        waiting = "embedding: no vectors yet of 1 passage, found by words alone"
        assert search(client, "zeppelin")["degraded"] == [waiting]


def test_layer_narrows_a_search(client: TestClient, post: Post) -> None:
    post("The zeppelin is about to land")
    post("The zeppelin landed last year", timestamp="2025-03-14")
    post("Always moor the zeppelin first", kind="preference")

    def found(**asked: Any) -> dict[str, str]:
        return {hit["layer"]: hit["summary"] for hit in search(client, "zeppelin", **asked)["results"]}

    working = {"working": "The zeppelin is about to land"}
    others = {"episodic": "The zeppelin landed last year", "semantic": "Always moor the zeppelin first"}
    assert found(layer=["working"], track=False) == working
    assert found(layer=["semantic", "episodic"], track=False) == others
    assert found() == found() == found() == working | others
    assert found(layer=["codebase"]) == {}


def test_reading_moves_an_episode_on_but_not_listing(client: TestClient, post: Post, services: TestServices) -> None:
    name = post("The zeppelin is about to land")["episode_id"]

    def layer() -> str:
        return str(search(client, "zeppelin")["results"][0]["layer"])

    assert [layer() for _ in range(4)] == ["working"] * 4
    for _ in range(2):
        client.get(f"/dashboard/episodes/{name}")
    assert layer() == "working"
    for include in ("", "?include=raw"):
        client.get(f"/api/episodes/{name}{include}")
    assert layer() == "episodic"
    episode = services.store.episodes.get([name])[name]
    assert (episode.retrieval_count, episode.read_count) == (6, 2)


def test_search_of_a_session_takes_a_unique_prefix(client: TestClient, services: TestServices) -> None:
    services.store.files.put_sources([Source("log", "mac", "/logs", "p", "claude_projects")])
    now = parse_time("2026-03-14T08:00:00Z")
    for session_id in ("aaaa1111-x", "aaaa2222-y", "bbbb3333-z"):
        episode = Episode(
            session_id,
            "log",
            now,
            "mac",
            "api",
            "exchange",
            "zeppelin",
            f"zeppelin {session_id}",
            session_id=session_id,
        )
        services.store.episodes.put([(episode, [Passage(0, f"zeppelin {session_id}")])])

    def found(name: str) -> set[str]:
        return {hit["episode_id"] for hit in search(client, "zeppelin", session_id=name, fold=False)["results"]}

    assert found("aaaa1") == found("aaaa1111-x") == {"aaaa1111-x"}
    assert found("cccc") == set()
    refused = client.post("/api/episodes/search", json={"query": "zeppelin", "session_id": "aaaa"})
    assert refused.status_code == 409
    assert "aaaa1111-x and aaaa2222-y" in refused.json()["detail"]


def test_only_the_wanted_lists_are_asked(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar stands open")
    for lists in (["dense_text"], ["words_text", "words_context"], ["exact"]):
        asked = search(client, "zeppelin `hangar`", explain=True, lists=lists)["explanation"]["lists"]
        assert asked.keys() == {*lists}
    every = search(client, "zeppelin `hangar`", explain=True)["explanation"]["lists"]
    assert every.keys() == search(client, "zeppelin `hangar`", explain=True, lists=[])["explanation"]["lists"].keys()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"lists": ["graph"]}, "'dense_text', 'dense_context', 'words_text', 'words_context', 'exact' or 'rare'"),
        ({"lists": ["exact"], "mode": "semantic"}, "mode semantic asks none of these lists, but dense_text, dense_"),
        ({"lists": ["rare"], "mode": "exact"}, "mode exact asks none of these lists, but exact"),
        ({"decay_weight": 1.5}, "less than or equal to 1"),
        ({"decay_weight": 0.5, "decay": "none"}, "decay_weight needs a decay other than none"),
    ],
)
def test_a_knob_that_does_not_fit_is_refused(client: TestClient, asked: dict[str, Any], said: str) -> None:
    refused = client.post("/api/episodes/search", json={"query": "zeppelin", **asked})
    assert refused.status_code == 422
    assert said in refused.text


def test_decay_weight_lets_age_count_for_one_question(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar door", episode_id="old", timestamp="2019-01-01T00:00:00Z", kind="note")
    post("The zeppelin of the hangar has a door", episode_id="new", kind="note")

    def first(**asked: Any) -> str:
        return str(search(client, "The zeppelin hangar door", **asked)["results"][0]["episode_id"])

    assert first() == first(decay_weight=0) == first(profile="recent", decay_weight=0) == "old"
    assert first(decay_weight=1) == first(decay_weight=1, decay="additive") == "new"

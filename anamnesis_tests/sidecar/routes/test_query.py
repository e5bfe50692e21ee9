"""What is remembered of searches, and the report on those that found nothing."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.cli.search import render_queries
from anamnesis_tests.sidecar.conftest import Post, TestServices


def ask(client: TestClient, query: str, **fields: Any) -> list[str]:
    reply = client.post("/api/episodes/search", json={"query": query, **fields})
    assert reply.status_code == 200, reply.text
    return [hit["episode_id"] for hit in reply.json()["results"]]


def report(client: TestClient) -> dict[str, Any]:
    reply = client.get("/api/queries")
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def counts(client: TestClient) -> tuple[int, int, int]:
    body = report(client)
    return body["queries"], body["answered"], body["used"]


def test_search_counts_as_used_when_a_find_is_read(client: TestClient, post: Post) -> None:
    found = post("The zeppelin hangar")["episode_id"]
    other = post("A teapot")["episode_id"]
    ask(client, "zeppelin", track=False)
    assert counts(client) == (0, 0, 0), "what is not tracked is not remembered, nor is the report"
    assert ask(client, "zeppelin", project="acme", top_k=1) == [found]
    client.get(f"/api/episodes/{other}?include=raw")
    client.get(f"/api/episodes/{found}")  # only its head
    assert counts(client) == (1, 1, 0)
    client.get(f"/api/episodes/{found}?include=raw")
    assert counts(client) == (1, 1, 1)


def test_missed_question_is_listed_with_another_way(client: TestClient, post: Post) -> None:
    wanted = post("The zeppelin hangar is painted green")["episode_id"]
    question = "which zeppelin hangar is green"
    assert ask(client, question, mode="semantic", project="acme", min_score=0.99) == []
    assert ask(client, question, mode="semantic", project="acme", min_score=0.99) == []
    assert ask(client, "submarine", mode="exact") == []
    body = report(client)
    assert (body["queries"], body["answered"], body["unanswered"]) == (3, 0, 2)
    (missed,) = body["missed"]
    assert missed.pop("asked_at").endswith("Z")
    assert missed.pop("similarity_score") is None  # words alone found it
    assert missed == {
        "query": question,
        "mode": "semantic",
        "project": "acme",
        "times": 2,
        "found_by": "exact",
        "episode_id": wanted,
        "excerpt": "The zeppelin hangar is painted green",
    }
    text = render_queries(report(client))
    assert "3 searches: 0 found something" in text
    assert f"{wanted} holds all its words" in text


def test_the_filters_of_a_question_hold_when_it_is_asked_anew(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", project="other")
    assert ask(client, "zeppelin", mode="exact", project="acme", since="2026-01-01", tags=["air"]) == []
    body = report(client)
    assert (body["unanswered"], body["missed"]) == (1, [])


def test_lists_of_one_mode_do_not_stop_the_report(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar")
    assert ask(client, "zeppelin", tags=["air"], lists=["words_text"]) == []
    assert report(client)["unanswered"] == 1


def test_secrets_in_a_question_are_masked(client: TestClient, services: TestServices) -> None:
    ask(client, "why is ghp_0123456789abcdefABCDEF0123456789abcd refused", mode="exact")
    (asked,) = services.store.queries.unanswered(10)
    assert "ghp_" not in asked.query
    assert "[REDACTED:" in asked.query


@pytest.mark.parametrize("named", ["api", "acme/api"])
def test_private_or_unwanted_is_not_kept(client: TestClient, post: Post, services: TestServices, named: str) -> None:
    post("The zeppelin hangar", project="acme/api")
    services.store.settings.set("config.private_projects", ["api"])
    assert ask(client, "zeppelin", include_private=["*"])
    ask(client, "submarine", project=named, mode="exact")
    assert counts(client) == (0, 0, 0)
    ask(client, "submarine", mode="exact")
    assert counts(client) == (1, 0, 0)
    services.store.settings.set("config.query_log", False)
    ask(client, "teapot", mode="exact")
    assert counts(client) == (1, 0, 0)


def test_forgetting_leaves_no_question_about_what_went(client: TestClient, post: Post) -> None:
    kept, gone = post("The zeppelin hangar"), post("A teapot")
    ask(client, "zeppelin")
    ask(client, "teapot boiling", mode="exact")
    ask(client, "submarine", mode="exact")
    assert client.delete(f"/api/episodes/{kept['episode_id']}").status_code == 204
    assert counts(client) == (2, 0, 0)
    client.post("/api/forget", json={"ids": [gone["episode_id"]], "dry_run": False})
    assert counts(client) == (1, 0, 0)

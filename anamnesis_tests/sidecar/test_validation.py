import json
import re
from calendar import isleap
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar import fields

DRAFT = {"summary": "s", "instance": "mac", "project": "acme"}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("summary", {"summary": " \t\n "}),
        ("summary", {"summary": ""}),
        ("summary", {"summary": "a\x00b"}),
        ("summary", {"summary": None}),
        ("summary", {"summary": 5}),
        ("instance", {"instance": "x" * 201}),
        ("project", {"project": ""}),
        ("project", {"project": ["acme"]}),
        ("raw_exchange", {"raw_exchange": "\x00"}),
        ("tags", {"tags": ["t"] * 51}),
        ("tags", {"tags": "t"}),
        ("tags.1", {"tags": ["fine", "t" * 101]}),
        ("kind", {"kind": "k" * 51}),
        ("timestamp", {"timestamp": "yesterday"}),
        ("timestamp", {"timestamp": "1969-12-31T23:59:59Z"}),
        ("timestamp", {"timestamp": "2201-01-01"}),
        ("timestamp", {"timestamp": 1_700_000_000}),
        ("timestamp", {"timestamp": "2025-02-29"}),
        ("metadata", {"metadata": {"a": "x" * 65_536}}),
        ("metadata", {"metadata": {"a": [{"b": "\x00"}]}}),
        ("metadata", {"metadata": {"\x00": 1}}),
        ("metadata", {"metadata": []}),
        ("episode_id", {"episode_id": ""}),
        ("episode_id", {"episode_id": "x" * 201}),
        ("episode_id", {"episode_id": "tab\there"}),
        ("episode_id", {"episode_id": "."}),
        ("episode_id", {"episode_id": ".."}),
        ("episode_id", {"episode_id": "a/../b"}),
        ("episode_id", {"episode_id": "search"}),
        ("episode_id", {"episode_id": "bulk/1"}),
        ("episode_id", {"episode_id": "reembed/status"}),
        ("episode_id", {"episode_id": "recent"}),
        ("episode_id", {"episode_id": "upload/x"}),
        ("sumary", {"sumary": "misspelt"}),
    ],
)
def test_a_field_with_a_value_it_cannot_have_is_named(client: TestClient, path: str, changed: dict[str, Any]) -> None:
    reply = client.post("/api/episodes", json={**DRAFT, **changed})
    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"
    body = reply.json()
    assert [error["path"] for error in body["errors"]] == [path]
    assert body["status"] == 422
    assert body["title"]


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("query", {"query": "  "}),
        ("query", {"query": "q" * 10_001}),
        ("", {}),
        ("", {"query": "a", "query_text": "b"}),
        ("top_k", {"query": "q", "top_k": 0}),
        ("top_k", {"query": "q", "top_k": 101}),
        ("top_k", {"query": "q", "top_k": "5"}),
        ("top_k", {"query": "q", "top_k": True}),
        ("top_k", {"query": "q", "top_k": 1.5}),
        ("mode", {"query": "q", "mode": "psychic"}),
        ("tags", {"query": "q", "tags": "x"}),
        ("since", {"query": "q", "since": "soon"}),
        ("min_score", {"query": "q", "min_score": 1.1}),
        ("max_tokens", {"query": "q", "max_tokens": 0}),
        ("include.0", {"query": "q", "include": ["everything"]}),
        ("fold", {"query": "q", "fold": "yes"}),
        ("limit", {"query": "q", "limit": 5}),
    ],
)
def test_a_search_with_a_value_it_cannot_have_is_refused(
    client: TestClient, path: str, question: dict[str, Any]
) -> None:
    reply = client.post("/api/episodes/search", json=question)
    assert reply.status_code == 422
    assert [error["path"] for error in reply.json()["errors"]] == [path]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "skip=-1",
        "skip=99999999999999999999",
        "since=x",
        "project=a&project=b",
        "tag=%00",
    ],
)
def test_a_parameter_with_a_value_it_cannot_have_is_refused(client: TestClient, query: str) -> None:
    reply = client.get("/api/episodes?" + query)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["path"].partition(".")[0] == query.partition("=")[0]


def test_a_parameter_that_has_one_value_is_not_given_twice(client: TestClient) -> None:
    reply = client.get("/api/episodes?project=a&project=b")
    assert reply.status_code == 422
    assert reply.json()["errors"] == [{"path": "project", "message": "is given more than once"}]


@pytest.mark.parametrize("episode_id", ["recent", "upload/1", "reembed/x", "x" * 201, ""])
def test_an_id_that_cannot_exist_is_refused_wherever_it_is_asked_for(client: TestClient, episode_id: str) -> None:
    assert client.get(f"/api/episodes/{episode_id}").status_code == 422
    assert client.delete(f"/api/episodes/{episode_id}").status_code == 422


def test_half_a_surrogate_pair_is_refused_wherever_it_hides(client: TestClient) -> None:
    for changed in ({"summary": "\ud800"}, {"metadata": {"a": ["\udfff"]}}, {"tags": ["\ud800x"]}):
        reply = client.post("/api/episodes", content=json.dumps({**DRAFT, **changed}), headers=JSON)
        assert reply.status_code == 422


def test_metadata_is_not_nested_without_end(client: TestClient) -> None:
    nested: dict[str, Any] = {}
    for _ in range(fields.MAX_METADATA_DEPTH):
        nested = {"deeper": nested}
    assert client.post("/api/episodes", json={**DRAFT, "metadata": nested["deeper"]}).status_code == 201
    assert client.post("/api/episodes", json={**DRAFT, "metadata": nested}).status_code == 422


@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff\xfe{}", b"[" * 100_000, b'{"summary": ' + b"1" * 5000 + b"}", b"null trailing"]
)
@pytest.mark.parametrize("path", ["/api/episodes", "/api/episodes/bulk", "/api/episodes/search"])
def test_what_is_not_json_is_malformed(client: TestClient, path: str, content: bytes) -> None:
    reply = client.post(path, content=content, headers=JSON)
    assert reply.status_code == 400, reply.text
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_know_are_refused(client: TestClient, number: str) -> None:
    episode = json.dumps({**DRAFT, "metadata": {"a": 0}}).replace("0", number)
    assert client.post("/api/episodes", content=episode, headers=JSON).status_code == 422
    question = f'{{"query": "q", "min_score": {number}}}'
    assert client.post("/api/episodes/search", content=question, headers=JSON).status_code == 422


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("path", ["/api/episodes", "/api/episodes/bulk", "/api/episodes/search"])
def test_a_form_cannot_post(client: TestClient, path: str, content_type: str) -> None:
    reply = client.post(path, content=json.dumps(DRAFT), headers={"Content-Type": content_type})
    assert 400 <= reply.status_code < 500


def test_a_refusal_never_repeats_the_values_it_was_sent(client: TestClient) -> None:
    secret = "hunter2-hunter2"
    sent = {
        "summary": [secret], "instance": secret * 20, "project": {secret: 1}, "timestamp": secret, "kind": secret * 9,
        "tags": [secret * 9], "metadata": secret, "episode_id": secret + "\x07", "raw_exchange": secret + "\x00",
    }  # fmt: skip
    replies = [
        client.post("/api/episodes", json=sent),
        client.post("/api/episodes/bulk", json={"episodes": [sent]}),
        client.patch("/api/episodes/x", json={**sent, "status": secret}),
        client.post("/api/episodes/search", json={"query": [secret], "mode": secret, "since": secret, "top_k": secret}),
        client.get("/api/episodes", params={"limit": secret, "since": secret, "cursor": secret}),
        client.get("/api/episodes", params={"cursor": secret}),
        client.post("/api/episodes", content=secret, headers=JSON),
    ]
    assert [reply.status_code for reply in replies] == [422, 200, 422, 422, 422, 422, 400]
    assert not [reply.text for reply in replies if secret in reply.text]


def test_a_thousand_wrong_fields_are_not_all_listed(client: TestClient) -> None:
    reply = client.post("/api/episodes", json={**DRAFT, **{f"field{n}": n for n in range(1000)}})
    assert len(reply.json()["errors"]) == 100


def test_the_time_pattern_knows_every_day_from_1970_to_2200_and_no_other() -> None:
    day, pattern = date(1969, 1, 1), re.compile(fields.TIME_PATTERN)
    while day < date(2202, 1, 1):
        assert bool(pattern.fullmatch(day.isoformat())) == (1970 <= day.year <= 2200)
        day += timedelta(days=1)
    for year in range(1970, 2201):
        assert isleap(year) == bool(pattern.fullmatch(f"{year}-02-29"))
        assert not pattern.fullmatch(f"{year}-04-31")


@given(st.from_regex(fields.TIME_PATTERN, fullmatch=True))
def test_every_time_that_the_document_allows_is_read(text: str) -> None:
    assert fields.parse_time(text).tzinfo is UTC


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 12, 30)))
def test_a_time_survives_its_text(moment: datetime) -> None:
    assert fields.parse_time(moment.isoformat()) == moment.replace(tzinfo=UTC)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_an_id_with_a_character_that_cannot_be_printed_is_refused(text: str) -> None:
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in text):
        assert not re.fullmatch(fields.ID_PATTERN, text)
    elif text.isascii() and text.isalnum():
        assert bool(re.fullmatch(fields.ID_PATTERN, text)) == (text not in fields.RESERVED_SEGMENTS)

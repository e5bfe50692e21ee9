import json
import re
from calendar import isleap
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from httpx2 import Response
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from anamnesis_pipeline.services import fields
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import BASE, open_services, problem

DRAFT = {"summary": "s", "instance": "mac", "project": "acme"}
JSON = {"Content-Type": "application/json"}


BAD_FIELDS: dict[str, list[Any]] = {
    "summary": [" \t\n ", "", "a\x00b", None, 5],
    "instance": ["x" * 201],
    "project": ["", ["acme"]],
    "raw_exchange": ["\x00"],
    "tags": [["t"] * 51, "t", ["fine", "t" * 101]],
    "kind": ["k" * 51],
    "timestamp": ["yesterday", "1969-12-31T23:59:59Z", "2201-01-01", 1_700_000_000, "2025-02-29"],
    "metadata": [{"a": "x" * 65_536}, {"a": [{"b": "\x00"}]}, {"\x00": 1}, []],
    "episode_id": [
        "",
        "x" * 201,
        "tab\there",
        ".",
        "..",
        "a/../b",
        "search",
        "bulk/1",
        "reembed/status",
        "recent",
        "upload/x",
        "rolling/x",
    ],
    "sumary": ["misspelt"],
}
BAD_SEARCHES: dict[str, list[Any]] = {
    "query": ["  ", "q" * 10_001],
    "top_k": [0, 101, "5", True, 1.5],
    "mode": ["psychic"],
    "tags": ["x"],
    "since": ["soon"],
    "min_score": [1.1],
    "max_tokens": [0],
    "include": [["everything"]],
    "fold": ["yes"],
    "limit": [5],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One for all: what is refused leaves nothing behind."""
    with TestClient(create_app(open_services(tmp_path_factory.mktemp("home"))), base_url=BASE) as client:
        yield client


def cases(values: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name in values for value in values[name]]


def errors(reply: Response) -> list[str]:
    body = problem(reply)
    assert (body["status"], bool(body["title"])) == (422, True)
    return [error["path"] for error in body["errors"]]


@pytest.mark.parametrize(("name", "value"), cases(BAD_FIELDS))
def test_field_with_a_bad_value_is_named(client: TestClient, name: str, value: Any) -> None:
    (path,) = errors(client.post("/api/episodes", json={**DRAFT, name: value}))
    assert path == ("tags.1" if value == ["fine", "t" * 101] else name)


@pytest.mark.parametrize(("name", "value"), [*cases(BAD_SEARCHES), ("", None), ("query_text", "b")])
def test_search_with_a_bad_value_is_refused(client: TestClient, name: str, value: Any) -> None:
    body = {} if not name else {"query": "q", name: value}
    (path,) = errors(client.post("/api/episodes/search", json=body))
    assert path == {"include": "include.0", "query_text": ""}.get(name, name)


@pytest.mark.parametrize(
    "query", "limit=0 limit=101 limit=x skip=-1 skip=99999999999999999999 since=x project=a&project=b tag=%00".split()
)
def test_parameter_with_a_bad_value_is_refused(client: TestClient, query: str) -> None:
    (error,) = problem(client.get("/api/episodes?" + query))["errors"]
    assert error["path"].partition(".")[0] == query.partition("=")[0]
    assert (error["message"] == "is given more than once") is ("&" in query)


@pytest.mark.parametrize("episode_id", ["recent", "upload/1", "reembed/x", "x" * 201, ""])
def test_id_that_cannot_exist_is_refused(client: TestClient, episode_id: str) -> None:
    for method in ("GET", "DELETE"):
        problem(client.request(method, f"/api/episodes/{episode_id}"))


def test_half_a_surrogate_pair_is_refused_wherever_it_hides(client: TestClient) -> None:
    for changed in ({"summary": "\ud800"}, {"metadata": {"a": ["\udfff"]}}, {"tags": ["\ud800x"]}):
        problem(client.post("/api/episodes", content=json.dumps({**DRAFT, **changed}), headers=JSON))


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
    problem(client.post(path, content=content, headers=JSON), 400)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_know_are_refused(client: TestClient, number: str) -> None:
    episode = json.dumps({**DRAFT, "metadata": {"a": 0}}).replace("0", number)
    problem(client.post("/api/episodes", content=episode, headers=JSON))
    question = f'{{"query": "q", "min_score": {number}}}'
    problem(client.post("/api/episodes/search", content=question, headers=JSON))


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("path", ["/api/episodes", "/api/episodes/bulk", "/api/episodes/search"])
def test_a_form_cannot_post(client: TestClient, path: str, content_type: str) -> None:
    reply = client.post(path, content=json.dumps(DRAFT), headers={"Content-Type": content_type})
    assert 400 <= reply.status_code < 500


def test_a_refusal_never_repeats_the_values_it_was_sent(client: TestClient) -> None:
    secret = "hunter2-hunter2"
    sent = {
        "summary": [secret],
        "instance": secret * 20,
        "project": {secret: 1},
        "timestamp": secret,
        "kind": secret * 9,
        "tags": [secret * 9],
        "metadata": secret,
        "episode_id": secret + "\x07",
        "raw_exchange": secret + "\x00",
    }
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


def test_time_pattern_knows_every_day_from_1970_to_2200() -> None:
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


@pytest.mark.parametrize("path", ["pointers", "topics", "proposals", "drift", "search/hints"])
def test_no_route_takes_the_last_of_two_values(client: TestClient, path: str) -> None:
    (error,) = problem(client.get(f"/api/{path}?project=a&project=b"))["errors"]
    assert error["message"] == "is given more than once"

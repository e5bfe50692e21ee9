"""The notes of a session: one episode that grows, loses nothing, and is found by its newest words."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.services import rolling
from anamnesis_tests.sidecar.conftest import TestServices, problem
from anamnesis_tests.support.page_reading import read
from anamnesis_tests.support.samples import parsed, part, segment

SESSION = "258c7280-ae70-4798-800f-63464d01a85d"
ID = "ep_rolling_mac_notes_258c7280"


def upsert(client: TestClient, delta: str, status: int = 200, **fields: Any) -> dict[str, Any]:
    body = {"handle": "notes", "session_id": SESSION, "delta": delta, "machine": "mac", **fields}
    reply = client.post("/api/episodes/rolling/upsert", json=body)
    assert reply.status_code == status, reply.text
    found: dict[str, Any] = reply.json()
    return found


def stored(client: TestClient, episode_id: str = ID) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/episodes/{episode_id}?include=raw").json()
    return found


def told(client: TestClient, episode_id: str = ID) -> str:
    """The notes without the time of each."""
    text: str = stored(client, episode_id)["raw_exchange"]
    lines = text.split("\n\n")
    assert all(re.match(r"\[20\d\d-\d\d-\d\d \d\d:\d\d\] ", line) for line in lines)
    return "\n\n".join(line.partition("] ")[2] for line in lines)


def ids(client: TestClient, query: str) -> list[str]:
    results = client.post("/api/episodes/search", json={"query": query}).json()["results"]
    assert all(hit["similarity_score"] is not None for hit in results)
    return [hit["episode_id"] for hit in results]


def test_two_upserts_are_one_episode_that_grows(client: TestClient) -> None:
    first = upsert(client, "Began with the quagga.", 201, tags=["a", "b"])
    assert first == {
        "episode_id": ID,
        "created": True,
        "appended": True,
        "chars": 22 + len("[2026-03-01 12:00] "),
        "tags": ["a", "b"],
        "closed": None,
    }
    second = upsert(client, " Then the zeppelin.\n", tags=["b", "c"])
    assert (second["created"], second["appended"], second["tags"]) == (False, True, ["a", "b", "c"])
    episode = stored(client)
    assert told(client) == "Began with the quagga.\n\nThen the zeppelin."
    assert (episode["kind"], episode["instance"], episode["source"]["session_id"]) == ("rolling", "mac", SESSION)
    assert ids(client, "zeppelin") == ids(client, "quagga") == [ID]
    assert len(client.get("/api/episodes").json()["items"]) == 1


def test_same_delta_again_changes_nothing(client: TestClient) -> None:
    upsert(client, "one", 201)
    assert upsert(client, "one")["appended"] is False
    upsert(client, "two")
    before = stored(client)
    assert upsert(client, "two")["appended"] is False
    assert stored(client) | {"last_retrieved": None} == before | {"last_retrieved": None}
    assert upsert(client, "two", tags=["new"])["tags"] == ["new"]
    assert upsert(client, "wo")["appended"] is True  # the end of a delta is not that delta
    upsert(client, "one")
    assert told(client) == "one\n\ntwo\n\nwo\n\none"


def test_oldest_text_moves_into_closed_episodes(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "MAX_CHARS", 300)
    monkeypatch.setattr(rolling, "KEPT_CHARS", 150)
    deltas = [f"note {n} about wordnumber{n} and some more of it" for n in range(20)]
    closed = [upsert(client, delta, 200 if n else 201, tags=[f"t{n % 3}"])["closed"] for n, delta in enumerate(deltas)]
    siblings = [name for name in closed if name]
    assert siblings == [f"{ID}_{n + 1}" for n in range(len(siblings))]
    assert len(siblings) > 2
    texts = [stored(client, name)["raw_exchange"] for name in [*siblings, ID]]
    assert "\n\n".join(told(client, name) for name in [*siblings, ID]).split("\n\n") == deltas, "nothing is lost"
    assert max(map(len, texts)) <= 300
    assert ids(client, "wordnumber19")[0] == ID
    assert ids(client, "wordnumber0")[0] == f"{ID}_1"
    assert stored(client, siblings[0])["metadata"] == {"rolling": ID, "part": 1}


def test_long_delta_is_found_by_its_last_words(client: TestClient) -> None:
    filler = " ".join(f"filler{n % 50}" for n in range(1_200))
    upsert(client, f"{filler} and lastly the okapi", 201)
    upsert(client, f"{filler[:9_000]} and lastly the tapir")
    assert ids(client, "okapi") == ids(client, "tapir") == [ID]
    asked = {"query": "lastly the tapir", "mode": "semantic"}
    assert "tapir" in client.post("/api/episodes/search", json=asked).json()["results"][0]["excerpt"]


def test_deltas_that_come_at_once_all_stay(client: TestClient) -> None:
    upsert(client, "first", 201)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: upsert(client, f"delta {n}"), range(8)))
    assert sorted(told(client).split("\n\n")) == sorted(["first", *(f"delta {n}" for n in range(8))])


def test_a_session_whose_id_begins_like_anothers_is_refused(client: TestClient) -> None:
    upsert(client, "one", 201)
    problem = upsert(client, "two", 409, session_id=SESSION[:8] + "-other")
    assert SESSION in problem["detail"]
    upsert(client, "x", 201, machine="a_b", handle="c")
    assert "a_b" in upsert(client, "x", 409, machine="a", handle="b_c")["detail"]
    assert told(client) == "one"


def test_secrets_are_masked_and_repeats_change_nothing(client: TestClient) -> None:
    secret = "ghp" + "_" + "q7Zk" * 9
    upsert(client, f"the token is {secret}", 201)
    assert upsert(client, f"the token is {secret}")["appended"] is False
    assert secret not in str(stored(client))


def test_the_project_is_that_in_which_the_session_began(client: TestClient, services: TestServices) -> None:
    parsed(services.store, part(segment("m1"), session_id=SESSION))
    upsert(client, "one", 201)
    assert stored(client)["project"] == "acme/api"
    assert upsert(client, "x", 201, handle="other", project="mine")["episode_id"] == "ep_rolling_mac_other_258c7280"
    assert stored(client, "ep_rolling_mac_other_258c7280")["project"] == "mine"


def test_an_id_is_made_of_odd_names_too(client: TestClient) -> None:
    made = upsert(client, "one", 201, handle="a/b: c_ü", machine="my mac", session_id="../exclude")
    assert made["episode_id"] == "ep_rolling_my-mac_a-b-c_-_..-exclu"
    assert told(client, made["episode_id"]) == "one"


@pytest.mark.parametrize("missing", ["handle", "session_id", "delta"])
def test_missing_field_is_named(client: TestClient, missing: str) -> None:
    body = {"handle": "notes", "session_id": SESSION, "delta": "x"}
    del body[missing]
    assert problem(client.post("/api/episodes/rolling/upsert", json=body))["errors"][0]["path"] == missing


def test_forgetting_a_session_forgets_its_notes(client: TestClient) -> None:
    upsert(client, "one", 201)
    reply = client.post("/api/forget", json={"session_id": SESSION, "dry_run": False})
    assert reply.status_code == 200, reply.text
    assert client.get(f"/api/episodes/{ID}").status_code == 404


def test_note_of_page_is_read_with_its_time(client: TestClient) -> None:
    form = read(client, "/dashboard/sessions").select_one("#note")
    address = str(form.select_one("#note-it")["hx-post"])
    for text in ("the valve leaks", "the valve is shut"):
        assert client.post(address, data={"text": text, "project": "shop"}).status_code == 200
    (notes,) = client.get("/api/episodes?kind=rolling&include=raw&project=shop").json()["items"]
    first, second = notes["raw_exchange"].split("\n\n")
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] the valve leaks", first)
    assert second.endswith("] the valve is shut")
    assert notes["tags"] == ["diary"]
    assert client.post(address, data={"text": " "}).status_code == 422

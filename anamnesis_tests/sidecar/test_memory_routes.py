"""A question and its answer, posted: stored whatever the LLM does, once, with the records that it finds."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.sidecar.extraction import TOO_MANY, TOO_SLOW, Extraction
from anamnesis_pipeline.steps.recording import Recorded
from anamnesis_tests.sidecar.conftest import TestServices, wait_for
from anamnesis_tests.summaries.loopback import Answer
from anamnesis_tests.summaries.ollama_server import OllamaServer, error, streamed

SECRET = "ghp" + "_" + "q7Zk" * 9
PAIR = {
    "user": f"Why does the quagga retry charge twice? The error came with {SECRET}.",
    "assistant": "An error: the request failed and was sent again. The fix: we decided on an idempotency key.",
    "project": "acme",
}
RECORD = {"type": "decision", "text": "Retries send an idempotency key.", "why": "They charged twice.", "messages": [2]}


def reply(*records: dict[str, Any], summary: str = "The retry double-charged; it now sends a key.") -> Answer:
    return streamed(json.dumps({"skip": False, "summary": summary, "tags": ["payments"], "records": records}))


@pytest.fixture
def llm(services: TestServices) -> Iterator[OllamaServer]:
    """The LLM that is set: a server on loopback."""
    with OllamaServer().running() as server:
        services.store.settings.set("config.summarizer", "ollama")
        services.store.settings.set("config.ollama_urls", [server.url])
        yield server


def search(client: TestClient, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.post("/api/episodes/search", json={"query": query}).json()["results"]
    return found


def asked(llm: OllamaServer) -> list[Any]:
    return [request.json for request in llm.received if request.path == "/api/chat"]


def test_a_pair_is_stored_masked_with_its_records_and_both_are_found_at_once(
    client: TestClient, llm: OllamaServer
) -> None:
    llm.respond(reply(RECORD))
    answer = client.post("/memory/ingest", json=PAIR)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    (record,) = body["records"]
    assert (body["created"], body["problem"], body["tags"]) == (True, None, ["payments"])
    assert (record["type"], record["text"], record["why"]) == ("decision", RECORD["text"], RECORD["why"])
    assert record["tags"] == ["decision", "payments"]
    stored = client.get(f"/api/episodes/{body['episode_id']}?include=raw").json()
    assert (stored["kind"], stored["summary"]) == ("exchange", "The retry double-charged; it now sends a key.")
    assert stored["metadata"]["masked"] == {"github": 1}
    assert stored["raw_exchange"].startswith("[User]\nWhy does the quagga retry charge twice?")
    assert f"\n\n[Claude]\n{PAIR['assistant']}" in stored["raw_exchange"]
    (request,) = asked(llm)
    assert "quagga" in json.dumps(request)
    assert SECRET not in json.dumps(request) + stored["raw_exchange"]
    ids = {hit["episode_id"] for hit in search(client, "idempotency key")}
    assert {record["episode_id"], body["episode_id"]} <= ids
    assert all(hit["similarity_score"] is not None for hit in search(client, "idempotency key"))


def test_the_same_pair_twice_adds_nothing_and_asks_nobody(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(reply(RECORD))
    first = client.post("/memory/ingest", json=PAIR)
    before = client.get("/api/episodes?include=raw").json()
    second = client.post("/memory/ingest", json=PAIR)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == {**first.json(), "created": False}
    assert client.get("/api/episodes?include=raw").json() == before
    assert len(asked(llm)) == 1
    other = client.post("/memory/ingest", json={**PAIR, "timestamp": "2026-03-14T09:26:53Z"}).json()
    assert (other["created"], other["records"][0]["timestamp"]) == (True, "2026-03-14T09:26:53Z")


def test_the_llm_gives_at_most_three_records(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(reply(*({**RECORD, "text": f"Fact {n}."} for n in range(5))))
    records = client.post("/memory/ingest", json=PAIR).json()["records"]
    assert [record["text"] for record in records] == ["Fact 0.", "Fact 1.", "Fact 2."]


def test_without_an_llm_a_pair_is_stored_and_the_answer_says_why_it_has_no_records(client: TestClient) -> None:
    answer = client.post("/memory/ingest", json=PAIR)
    assert answer.status_code == 201
    assert (answer.json()["records"], answer.json()["problem"]) == ([], "no LLM is set; see the setting summarizer")
    assert [hit["episode_id"] for hit in search(client, "quagga")] == [answer.json()["episode_id"]]
    assert client.post("/memory/ingest", json=PAIR).json()["created"] is False


FAR = {"summarizer": "openai", "openai_url": "http://192.0.2.1/v1", "summary_model": "m"}
PRICED = {**FAR, "llm_input_price": 1.0, "llm_output_price": 1.0}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"llm_daily_tokens": 10}, "budget"),
        ({"summary_min_value": 19.0}, "summary_min_value"),
        ({"summarizer": "openai", "local_only": False}, "openai_url must be set"),
        ({**FAR, "local_only": False}, "price"),
        ({**PRICED, "local_only": False}, "only with a budget"),
        (PRICED, "may not leave this machine"),
        ({**PRICED, "local_only": False, "private_projects": ["acme"]}, "may not leave this machine"),
    ],
)
def test_an_llm_that_may_not_be_asked_is_not_asked_and_the_pair_is_stored(
    client: TestClient, services: TestServices, llm: OllamaServer, settings: dict[str, Any], says: str
) -> None:
    llm.respond(reply(RECORD))
    for name, value in settings.items():
        services.store.settings.set(f"config.{name}", value)
    answer = client.post("/memory/ingest", json=PAIR)
    assert (answer.status_code, answer.json()["records"], asked(llm)) == (201, [], [])
    assert says in answer.json()["problem"]


def test_a_failing_llm_leaves_the_pair_and_the_next_post_gets_its_records(
    client: TestClient, llm: OllamaServer
) -> None:
    llm.respond(error(404), reply(RECORD))
    failed = client.post("/memory/ingest", json=PAIR)
    assert (failed.status_code, failed.json()["records"]) == (201, [])
    assert failed.json()["problem"]
    client.put("/api/jsonl/settings", json={"summarizer": "ollama"})  # closes the breaker, as whoever mends it does
    again = client.post("/memory/ingest", json=PAIR).json()
    assert (again["created"], again["problem"], len(again["records"])) == (False, None, 1)
    assert again["summary"] == "The retry double-charged; it now sends a key."


def test_an_llm_that_asks_to_wait_is_not_waited_for(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(error(503), reply(RECORD))
    body = client.post("/memory/ingest", json=PAIR).json()
    assert (body["created"], body["records"], len(asked(llm))) == (True, [], 1)
    assert "too many calls waiting" in body["problem"]


def test_a_slow_llm_holds_up_nobody_and_its_records_come_later(client: TestClient, llm: OllamaServer) -> None:
    release = threading.Event()

    def answer(request: Any) -> Answer:
        release.wait(60)
        return reply(RECORD)

    llm.answer = answer  # type: ignore[method-assign]
    client.app.state.extraction = Extraction(at_once=2, patience_s=0.2)  # type: ignore[attr-defined]
    pairs = [{**PAIR, "instance": f"i{n}", "user": f"{PAIR['user']} {n}"} for n in range(3)]
    with ThreadPoolExecutor(3) as threads:
        slow = [found.json() for found in threads.map(lambda pair: client.post("/memory/ingest", json=pair), pairs)]
        assert sorted(body["problem"] for body in slow) == sorted([TOO_SLOW, TOO_SLOW, TOO_MANY])
        assert all(body["created"] and body["records"] == [] for body in slow)
        assert len(search(client, "quagga")) == 1, "folded: all three are there"
        release.set()
        late = [body for body in slow if body["problem"] == TOO_SLOW]
        kinds = {"kind": "record", "limit": 100}
        wait_for(lambda: len(client.get("/api/episodes", params=kinds).json()["items"]) == len(late))


def test_an_edited_summary_stays_and_a_deleted_record_stays_away(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(error(404), reply(RECORD))
    pair_id = client.post("/memory/ingest", json=PAIR).json()["episode_id"]
    client.patch(f"/api/episodes/{pair_id}", json={"summary": "mine"})
    client.put("/api/jsonl/settings", json={"summarizer": "ollama"})
    (record,) = client.post("/memory/ingest", json=PAIR).json()["records"]
    assert client.get(f"/api/episodes/{pair_id}").json()["summary"] == "mine"
    assert client.delete(f"/api/episodes/{record['episode_id']}").status_code == 204
    again = client.post("/memory/ingest", json=PAIR).json()
    assert again["records"] == []
    assert "deleted before" in again["problem"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "why?"},
        {"user": "why?", "assistant": "  "},
        {"user": "why?", "assistant": "so", "role": "system"},
        {"user": "why?", "assistant": "so", "timestamp": "yesterday"},
        {"user": 1, "assistant": "so"},
    ],
)
def test_what_is_no_pair_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post("/memory/ingest", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_pair_larger_than_a_mebibyte_is_refused(client: TestClient) -> None:
    assert client.post("/memory/ingest", json={**PAIR, "assistant": "a" * 2**20}).status_code == 413


def test_who_asks_for_work_under_way_gets_its_outcome_and_a_failure_is_raised() -> None:
    recorded = Recorded(Episode("e", "direct", datetime(2026, 3, 1, tzinfo=UTC), "i", "p", "exchange", "s", ""), ())
    begun, calls = threading.Event(), []

    def work() -> Recorded:
        calls.append(os.getpid())
        assert begun.wait(60)
        return recorded

    def fail() -> Recorded:
        raise StoreBusy("held")

    async def ask() -> None:
        extraction = Extraction()
        both = asyncio.gather(extraction.run("a", work), extraction.run("a", work))
        await asyncio.sleep(0)
        begun.set()
        assert await both == [recorded, recorded]
        with pytest.raises(StoreBusy):
            await extraction.run("b", fail)
        assert await extraction.run("b", work) == recorded

    asyncio.run(ask())
    assert len(calls) == 2


def test_what_a_newer_llm_finds_replaces_all_that_an_older_one_found(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(reply(*({**RECORD, "text": f"Fact {n}."} for n in range(3))), reply(RECORD, summary="It is mended."))
    client.post("/memory/ingest", json=PAIR)
    client.put("/api/jsonl/settings", json={"summary_model": "another"})
    body = client.post("/memory/ingest", json=PAIR).json()
    assert (body["summary"], [record["text"] for record in body["records"]]) == ("It is mended.", [RECORD["text"]])
    records = client.get("/api/episodes", params={"kind": "record"}).json()["items"]
    assert [record["summary"] for record in records] == [RECORD["text"]]


def test_what_a_client_wrote_over_an_llms_summary_stays_when_a_newer_llm_is_asked(
    client: TestClient, llm: OllamaServer
) -> None:
    llm.respond(reply(RECORD), reply(RECORD, summary="It is mended."))
    pair_id = client.post("/memory/ingest", json=PAIR).json()["episode_id"]
    client.patch(f"/api/episodes/{pair_id}", json={"tags": ["mine"]})
    client.put("/api/jsonl/settings", json={"summary_model": "another"})
    body = client.post("/memory/ingest", json=PAIR).json()
    assert (body["summary"], body["tags"]) == ("The retry double-charged; it now sends a key.", ["mine"])


def test_a_secret_in_a_reply_is_masked_before_the_reply_is_cached(
    client: TestClient, services: TestServices, llm: OllamaServer
) -> None:
    llm.respond(reply(RECORD, summary=f"It was {SECRET}."))
    assert client.post("/memory/ingest", json=PAIR).json()["summary"].startswith("It was [")
    (cached,) = services.store.llm.replies_after("", 9)
    assert "It was [" in cached.reply
    assert SECRET not in cached.reply

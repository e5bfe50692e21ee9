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
from anamnesis_pipeline.services.recording import Recorded
from anamnesis_pipeline.sidecar.extraction import TOO_MANY, TOO_SLOW, Extraction
from anamnesis_tests.sidecar.conftest import TestServices, problem, raising, wait_for
from anamnesis_tests.support.loopback import Answer
from anamnesis_tests.support.ollama_server import OllamaServer, error, streamed

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


def ingest(client: TestClient, status: int = 201, **changes: Any) -> dict[str, Any]:
    """The answer to the pair, with these changes."""
    answer = client.post("/memory/ingest", json={**PAIR, **changes})
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    return body


def search(client: TestClient, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.post("/api/episodes/search", json={"query": query}).json()["results"]
    return found


def asked(llm: OllamaServer) -> list[Any]:
    return [request.json for request in llm.received if request.path == "/api/chat"]


def test_pair_is_stored_masked_and_found_with_its_records(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(reply(RECORD))
    body = ingest(client)
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
    hits = search(client, "idempotency key")
    assert {record["episode_id"], body["episode_id"]} <= {hit["episode_id"] for hit in hits}
    assert all(hit["similarity_score"] is not None for hit in hits)
    before = client.get("/api/episodes?include=raw").json()
    assert ingest(client, 200) == {**body, "created": False}
    assert client.get("/api/episodes?include=raw").json() == before, "the same twice adds nothing"
    assert len(asked(llm)) == 1, "and asks nobody"
    other = ingest(client, timestamp="2026-03-14T09:26:53Z")
    assert (other["created"], other["records"][0]["timestamp"]) == (True, "2026-03-14T09:26:53Z")


def test_pair_is_stored_without_an_llm(client: TestClient) -> None:
    body = ingest(client)
    assert (body["records"], body["problem"]) == ([], "no LLM is set; see the setting summarizer")
    assert [hit["episode_id"] for hit in search(client, "quagga")] == [body["episode_id"]]
    assert ingest(client, 200)["created"] is False


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
def test_llm_that_may_not_be_asked_is_not(
    client: TestClient, services: TestServices, llm: OllamaServer, settings: dict[str, Any], says: str
) -> None:
    llm.respond(reply(RECORD))
    for name, value in settings.items():
        services.store.settings.set(f"config.{name}", value)
    body = ingest(client)
    assert (body["records"], asked(llm), says in body["problem"]) == ([], [], True)


@pytest.mark.parametrize("is_edited", [False, True])
def test_failing_llm_leaves_the_pair_for_later(client: TestClient, llm: OllamaServer, is_edited: bool) -> None:
    llm.respond(error(404), reply(RECORD))
    failed = ingest(client)
    assert (failed["records"], bool(failed["problem"])) == ([], True)
    address = f"/api/episodes/{failed['episode_id']}"
    if is_edited:
        client.patch(address, json={"summary": "mine"})
    client.put("/api/jsonl/settings", json={"summarizer": "ollama"})  # closes the breaker, as whoever mends it does
    again = ingest(client, 200)
    (record,) = again["records"]
    assert (again["created"], again["problem"]) == (False, None)
    summary = "mine" if is_edited else "The retry double-charged; it now sends a key."
    assert client.get(address).json()["summary"] == summary
    assert client.delete(f"/api/episodes/{record['episode_id']}").status_code == 204
    again = ingest(client, 200)
    assert (again["records"], "deleted before" in again["problem"]) == ([], True)


def test_llm_that_asks_to_wait_is_not_waited_for(client: TestClient, llm: OllamaServer) -> None:
    llm.respond(error(503), reply(RECORD))
    body = ingest(client)
    assert (body["created"], body["records"], len(asked(llm))) == (True, [], 1)
    assert "too many calls waiting" in body["problem"]


def test_slow_llm_holds_up_nobody(client: TestClient, llm: OllamaServer) -> None:
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


def test_what_is_no_pair_is_refused(client: TestClient) -> None:
    said = {"user": "why?", "assistant": "so"}
    wrong = [{}, {"user": "why?"}, said | {"assistant": "  "}, said | {"role": "system"}, said | {"user": 1}]
    for body in (*wrong, said | {"timestamp": "yesterday"}):
        problem(client.post("/memory/ingest", json=body))
    ingest(client, 413, assistant="a" * 2**20)


def test_work_under_way_is_shared_and_its_failure_raised() -> None:
    recorded = Recorded(Episode("e", "direct", datetime(2026, 3, 1, tzinfo=UTC), "i", "p", "exchange", "s", ""), ())
    begun, calls = threading.Event(), []

    def work() -> Recorded:
        calls.append(os.getpid())
        assert begun.wait(60)
        return recorded

    fail = raising(StoreBusy("held"))

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


@pytest.mark.parametrize("is_edited", [False, True])
def test_newer_llm_replaces_all_but_edits(client: TestClient, llm: OllamaServer, is_edited: bool) -> None:
    llm.respond(reply(*({**RECORD, "text": f"Fact {n}."} for n in range(5))), reply(RECORD, summary="It is mended."))
    first = ingest(client)
    assert [record["text"] for record in first["records"]] == ["Fact 0.", "Fact 1.", "Fact 2."], "three at most"
    if is_edited:
        client.patch(f"/api/episodes/{first['episode_id']}", json={"tags": ["mine"]})
    client.put("/api/jsonl/settings", json={"summary_model": "another"})
    body = ingest(client, 200)
    if is_edited:
        assert (body["summary"], body["tags"]) == ("The retry double-charged; it now sends a key.", ["mine"])
        return
    assert (body["summary"], [record["text"] for record in body["records"]]) == ("It is mended.", [RECORD["text"]])
    records = client.get("/api/episodes", params={"kind": "record"}).json()["items"]
    assert [record["summary"] for record in records] == [RECORD["text"]]


def test_secret_in_a_reply_is_not_cached(client: TestClient, services: TestServices, llm: OllamaServer) -> None:
    llm.respond(reply(RECORD, summary=f"It was {SECRET}."))
    assert ingest(client)["summary"].startswith("It was [")
    (cached,) = services.store.llm.replies_after("", 9)
    assert "It was [" in cached.reply
    assert SECRET not in cached.reply

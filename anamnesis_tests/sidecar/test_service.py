import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from httpx2 import Response
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import (
    BadSetting,
    DimensionMismatch,
    EmbeddingQueueFull,
    ModelLoading,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    UnknownModel,
)
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import BASE, Post, TestServices, open_services, problem, raising, wait_for


def asked(client: TestClient, services: TestServices, error: Exception) -> Response:
    """The reply to a search that raises this."""
    fail = raising(error)
    services.engine.search = fail  # type: ignore[method-assign]
    return client.post("/api/episodes/search", json={"query": "q"})


def test_health_answers_without_store_or_model(tmp_path: Path) -> None:
    services = open_services(tmp_path)
    with TestClient(create_app(services), base_url=BASE) as client:
        services.store.close()
        body = client.get("/health").json()
    assert (body["status"], body["service"], bool(body["version"])) == ("ok", "anamnesis", True)


def test_ready_reports_coverage_and_never_waits_for_it(client: TestClient, services: TestServices, post: Post) -> None:
    post("The zeppelin hangar", episode_id="e")
    ready = client.get("/ready").json()
    assert ready["store"] == str(services.settings.database)
    full = ready["coverage"]
    assert full == {"space": "hashing-1", "model_id": "hashing-64", "embedded": 1, "stored": 1}
    episode = services.store.episodes.get(["e"])["e"]
    passages = [stored.passage for stored in services.store.episodes.passages_of("e")]
    services.store.episodes.put([(replace(episode, episode_id="unembedded"), passages)])
    reply = client.get("/ready")
    assert reply.status_code == 200
    assert (reply.json()["coverage"]["embedded"], reply.json()["coverage"]["stored"]) == (1, 2)


def test_ready_says_that_a_model_will_not_load(tmp_path: Path) -> None:
    load = raising(UnknownModel("no such model: pick another"))
    with TestClient(create_app(open_services(tmp_path, load)), base_url=BASE) as client:
        wait_for(lambda: "pick another" in client.get("/ready").json()["detail"])
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200


def test_metrics_count_requests_by_route_and_tell_what_is_stored(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a/b")
    client.get("/api/episodes/a/b")
    client.get("/api/episodes/none")
    client.get("/nope/at/all")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }
    route = "/api/episodes/{episode_id}"
    for labels in ((route, "200", "GET"), (route, "404", "GET"), ("unrouted", "404", "")):
        assert samples["anamnesis_http_requests_total", *sorted(labels)] == 1
    assert samples["anamnesis_http_request_seconds_count", route] == 2
    assert samples["anamnesis_episodes",] == 1
    assert samples["anamnesis_passages",] == 1
    assert samples["anamnesis_embedded_passages", *sorted(("hashing-1", "active"))] == 1
    assert samples["anamnesis_reembed_state", "idle"] == 1
    assert samples["anamnesis_reembed_state", "running"] == 0
    assert samples["anamnesis_reembed_passages_per_second",] == 0
    assert samples["anamnesis_embedding_queue_depth",] == 0
    assert samples["anamnesis_model_ready",] == 1


def test_document_has_a_summary_of_every_call(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/health", "/api/episodes/search", "/api/sources", "/api/uploads"} < set(paths)  # all: test_documents.py
    assert all(call["summary"] and call["responses"] for calls in paths.values() for call in calls.values())


def test_unknown_address_is_a_problem(client: TestClient) -> None:
    for path in ("/nope", "/health/", "/api", "/api/episodesx", "/redoc"):
        assert problem(client.get(path), 404) == {
            "type": "about:blank",
            "title": "Not Found",
            "status": 404,
            "detail": "no such address; /docs lists them",
        }


def test_wrong_method_is_told_the_right_ones(client: TestClient) -> None:
    for path, wrong, allow in (
        ("/api/episodes/x", "PUT", "DELETE, GET, PATCH"),
        ("/api/episodes", "DELETE", "GET, POST"),
        ("/api/episodes/search", "GET", "POST"),
        ("/api/episodes/bulk", "DELETE", "POST"),
        ("/api/episodes/reembed", "GET", "POST"),
        ("/api/episodes/reembed/pause", "DELETE", "POST"),
        ("/api/episodes/reembed/status", "PATCH", "GET"),
        ("/api/episodes/reembed/status", "POST", "GET"),
        ("/api/episodes/rolling/upsert", "GET", "POST"),
        ("/api/embedding/model", "GET", "POST"),
        ("/health", "POST", "GET"),
    ):
        reply = client.request(wrong, path)
        problem(reply, 405)
        assert reply.headers["allow"] == allow, path


def test_what_waiting_may_help_says_when(client: TestClient, services: TestServices) -> None:
    for error, status in (
        (StoreBusy("the store is busy"), 503),
        (StoreFull("the disk is full; make room"), 503),
        (StoreCorrupt("the file is damaged"), 503),
        (ModelLoading("the model is loading"), 503),
        (UnknownModel("no such model"), 503),
        (DimensionMismatch("64 is not 384"), 503),
        (EmbeddingQueueFull("too many"), 429),
    ):
        reply = asked(client, services, error)
        assert int(reply.headers["retry-after"]) > 0
        assert problem(reply, status)["detail"] == str(error)


@pytest.mark.parametrize("error", [RuntimeError("hunter2"), BadSetting("hunter2")])
def test_unexpected_error_tells_no_values(
    client: TestClient, services: TestServices, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    client = TestClient(client.app, base_url=BASE, raise_server_exceptions=False)
    reply = asked(client, services, error)
    assert client.get("/health").status_code == 200
    problem(reply, 500)
    assert reply.headers["cache-control"] == "no-store"
    assert "hunter2" not in reply.text + caplog.text
    assert type(error).__name__ in caplog.text


def test_access_log_has_no_id_query_or_body(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "anamnesis.access"):
        client.get("/api/episodes/hunter2?include=raw&x=hunter2")
        client.post("/api/episodes/search", json={"query": "hunter2"})
    lines = [record.getMessage() for record in caplog.records if record.name == "anamnesis.access"]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "GET /api/episodes/{episode_id} 404",
        "POST /api/episodes/search 200",
    ]


def test_closing_the_application_closes_the_services_once(tmp_path: Path) -> None:
    closed: list[int] = []
    services = open_services(tmp_path)
    really_close = services.close
    services = replace(services, close=lambda: (closed.append(1), really_close())[1])
    with TestClient(create_app(services), base_url=BASE):
        assert closed == []
    assert closed == [1]


def test_application_imports_no_dagster_and_no_model_library() -> None:
    code = "import sys, json, anamnesis_pipeline.sidecar.app; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    roots = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not roots & {"dagster", "torch", "transformers", "sentence_transformers", "pandas", "pymongo", "paramiko"}


def test_metrics_tell_how_long_each_stage_of_a_search_took(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a/b")
    for mode in ("hybrid", "exact"):
        client.post("/api/episodes/search", json={"query": "zeppelin hangar", "mode": mode})
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
    samples = families["anamnesis_search_stage_seconds"].samples
    counts = {s.labels["stage"]: s.value for s in samples if s.name.endswith("_count")}
    both = dict.fromkeys(("embed", "lists", "order", "late", "read", "fold", "show"), 2)
    assert counts == both | dict.fromkeys("words_text words_context dense_text dense_context exact rare".split(), 1)
    assert all(s.value > 0 for s in samples if s.name.endswith("_sum"))
    below = [s.value for s in samples if s.name.endswith("_bucket") and s.labels["stage"] == "read"]
    assert below == sorted(below)
    assert below[-1] == 2


@pytest.mark.parametrize("path", ["", "/bulk"])
def test_a_full_store_is_not_ready_until_it_takes_a_write_again(
    client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    full = raising(StoreFull("the disk has no room to write"))
    body = {"summary": "The harbour crane", "instance": "mac", "project": "acme"}
    with monkeypatch.context() as patched:
        patched.setattr(type(services.store.episodes), "create", full)
        patched.setattr(type(services.store.settings), "set", full)
        assert client.get("/ready").status_code == 200, "nobody has written yet"
        reply = client.post(f"/api/episodes{path}", json={"episodes": [body]} if path else body)
        assert "the disk has no room to write" in reply.text
        for _ in range(2):
            reply = client.get("/ready")
            assert (reply.status_code, reply.json()["missing"]) == (503, ["store: the disk has no room to write"])
    assert client.get("/ready").status_code == 200
    assert client.post("/api/episodes", json=body).status_code == 201
    with monkeypatch.context() as patched:  # searches are answered, and one that cannot be noted is a write, too
        patched.setattr(type(services.store.queries), "note", full)
        patched.setattr(type(services.store.settings), "set", full)
        assert client.post("/api/episodes/search", json={"query": "harbour crane"}).json()["results"]
        assert client.get("/ready").status_code == 503

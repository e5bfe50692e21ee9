"""Reading logs over HTTP: status, start, stop, settings and models, on a real store; Dagster stands in."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.cli.status import memory_status
from anamnesis_pipeline.model import FileCursor, LlmBudget, LlmUse, Source
from anamnesis_pipeline.pipeline.llm_guard import Breaker
from anamnesis_pipeline.services.dagster.runs import CUT_OFF, IngestRun, IngestRuns
from anamnesis_pipeline.services.setting_changes import store_settings
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_tests.sidecar.conftest import TestServices, problem
from anamnesis_tests.support.samples import parsed, part, segment, summary
from anamnesis_tests.support.samples import put as put_episode

pytestmark = pytest.mark.usefixtures("no_logs")


@pytest.fixture
def sources(services: TestServices) -> list[str]:
    keys = ["mac--a--00000001", "mac--b--00000002"]
    services.store.files.put_sources([Source(key, "mac", "/logs", key[5]) for key in keys])
    return keys


def put(client: TestClient, **changes: Any) -> dict[str, Any]:
    """The settings after these changes."""
    body: dict[str, Any] = client.put("/api/jsonl/settings", json=changes).json()
    return body


def get_status(client: TestClient) -> dict[str, Any]:
    reply = client.get("/api/jsonl/status")
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def test_status_counts_what_is_stored(client: TestClient, services: TestServices, sources: list[str]) -> None:
    one, two = part(segment("m1")), part(segment("m2"), closed=False)
    parsed(services.store, one, two, keys=["m1", "m2"])
    services.store.summaries.put_summaries([summary(one)])
    services.store.files.put_sources([Source("direct", kind="reserved")])
    status = get_status(client)
    counters = status["counters"]
    assert (counters["files"], counters["lines"], counters["messages"], counters["parts"]) == (1, 10, 2, 2)
    assert (counters["evaluated"], counters["flagged"], counters["errors"]) == (1, 0, 0)
    assert status["summaries"] == {"extractive": 1}
    listed = [source["key"] for source in memory_status(services.store)["sources"]]
    assert listed == sources
    assert counters["sources"] == len(listed), "as the command line counts them"


def test_unread_files_are_counted(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, state in {"a": {}, "b": {"unread": "denied"}, "c": {"unread": "denied", "gone": True}}.items():
        cursor = FileCursor("logs", path, lines=10, parsed_lines=-1, **state)  # type: ignore[arg-type]
        services.store.files.commit_crawl(None, cursor, None)
    monkeypatch.setattr(services.store.files, "cursors", lambda source: pytest.fail("loads the state of each file"))
    counters = get_status(client)["counters"]
    assert (counters["files"], counters["lines"], counters["unparsed_lines"], counters["errors"]) == (3, 30, 30, 1)


def test_status_shows_runs_and_the_next_one(client: TestClient, services: TestServices) -> None:
    going, ended = IngestRun("r2", "s", "STARTED", 1e9, None), IngestRun("r1", "s", "SUCCESS", 1e9, 1e9 + 7.5)
    cut_off = IngestRun("r0", "s", "FAILURE", 1e9, 1e9 + 1)
    services.dagster.runs = IngestRuns((going,), replace(ended, ingested=3), cut_off)
    services.store.settings.set(CUT_OFF, "r0")
    put_episode(services.store, "e1", "text")
    status = get_status(client)
    assert (status["last_interrupted"]["run_id"], status["last_interrupted"]["duration_s"]) == ("r0", 1.0)
    assert status["ingested"] == {"last": 3, "total": 1}
    assert status["running"] is True
    assert status["runs"][0]["link"].endswith("/runs/r2")
    assert (status["last_run"]["duration_s"], status["last_run"]["status"]) == (7.5, "SUCCESS")
    next_run = datetime.fromisoformat(status["next_run"])
    assert (next_run.hour, next_run.minute) == (5, 0)
    assert timedelta() < next_run - datetime.now(UTC) <= timedelta(days=1)


def test_the_status_is_told_without_dagster_too(client: TestClient, services: TestServices) -> None:
    services.dagster.up = False
    status = get_status(client)
    assert (status["running"], status["runs"], status["last_run"]) == (None, [], None)
    assert (status["last_interrupted"], status["ingested"]) == (None, {"last": None, "total": 0})
    assert "does not answer" in status["dagster"]


def test_status_shows_the_llms_use_and_problem(client: TestClient, services: TestServices) -> None:
    put(client, summarizer="ollama")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    services.store.llm.reserve("c", today, "ollama", "m", LlmUse(1, 300, 40, 0.0), LlmBudget())
    Breaker(services.store.settings, "ollama").was_refused("no such model: ollama pull llama3.2")
    llm = get_status(client)["llm"]
    assert llm["used_today"] == {"calls": 1, "input_tokens": 300, "output_tokens": 40, "dollars": 0.0}
    assert (llm["summarizer"], llm["paid"], llm["local"]) == ("ollama", False, True)
    assert llm["breakers"][0]["open"] is True
    assert "ollama pull" in llm["problem"]
    put(client, ingest_hour=4)
    assert get_status(client)["llm"]["breakers"] != []
    put(client, summarizer="ollama", summary_model="qwen3:8b")
    assert get_status(client)["llm"]["breakers"] == [], "another model is tried at once"


def test_ingest_is_one_backfill(client: TestClient, services: TestServices, sources: list[str], no_logs: Path) -> None:
    reply = client.post("/api/jsonl/ingest")
    assert (reply.status_code, reply.json()) == (
        202,
        {
            "run_id": "ingest1",
            "link": "http://127.0.0.1:3000/runs/b/ingest1",
            "sources": sources,
            "running_already": [],
        },
    )
    assert services.dagster.ingests[0][0] == tuple(sources)
    (no_logs / "fresh").mkdir()
    (no_logs / "fresh" / "11111111-2222-4333-8444-555555555555.jsonl").write_text("{}\n")
    found = client.post("/api/jsonl/ingest").json()["sources"]
    assert [key for key in found if "--fresh--" in key] != [], "new folders of logs are found"
    services.dagster.runs = IngestRuns(tuple(IngestRun("r", key, "QUEUED", None, None) for key in sources[:1]), None)
    body = client.post("/api/jsonl/ingest", json={"sources": sources}).json()
    assert (body["sources"], body["running_already"]) == (sources[1:], sources[:1])


def test_ingest_that_cannot_be_is_refused(client: TestClient, services: TestServices, sources: list[str]) -> None:
    for wrong in (["nonesuch"], []):
        refused = client.post("/api/jsonl/ingest", json={"sources": wrong})
        assert problem(refused)["errors"][0]["path"] == "sources"
    services.dagster.up = False
    assert "Dagster" in problem(client.post("/api/jsonl/ingest"), 503)["detail"]


def test_stop_ends_runs_and_their_backfill(client: TestClient, services: TestServices, sources: list[str]) -> None:
    assert client.post("/api/jsonl/stop").json() == {"stopped": []}
    services.dagster.runs = IngestRuns((IngestRun("r2", "s", "STARTED", 1e9, None),), None)
    assert client.post("/api/jsonl/stop").json() == {"stopped": ["r2"]}
    assert services.dagster.stopped == ["r2"]
    client.post("/api/jsonl/ingest", json={"sources": sources})
    assert client.post("/api/jsonl/stop").json() == {"stopped": []}
    assert services.dagster.cancelled == ["ingest1"]


def test_settings_are_changed_kept_and_shown_with_their_origin(client: TestClient, services: TestServices) -> None:
    changes = {"ingest_hour": 3, "timezone": "Europe/Berlin", "llm_daily_dollars": 2.5, "private_projects": ["acme/x"]}
    body = client.put("/api/jsonl/settings", json=changes).json()
    assert {name: body[name] for name in changes} == changes
    assert body["origin"]["ingest_hour"] == "stored"
    assert effective_settings(services.store).private_projects == ("acme/x",)
    assert client.put("/api/jsonl/settings", json={"ingest_hour": None}).json()["ingest_hour"] == 5
    assert client.get("/api/jsonl/settings").json()["origin"]["ingest_hour"] == "default"


def test_most_that_a_run_does_is_brought_into_its_range(client: TestClient) -> None:
    for given, kept in ((-5, 0), (0, 0), (40, 40), (10**12, 1_000_000)):
        body = put(client, max_exchanges_per_run=given)
        assert (body["max_exchanges_per_run"], body["origin"]["max_exchanges_per_run"]) == (kept, "stored")


def test_schedule_is_one_of_the_presets(client: TestClient) -> None:
    assert get_status(client)["ingest_schedule"] == "nightly"
    put(client, ingest_schedule="30min")
    next_run = datetime.fromisoformat(get_status(client)["next_run"])
    assert next_run - datetime.now(UTC) <= timedelta(minutes=30)
    put(client, ingest_schedule="disabled")
    assert get_status(client)["next_run"] is None


def test_changed_times_reload_the_definitions(client: TestClient, services: TestServices) -> None:
    told = put(client, ingest_hour=3, timezone="Europe/Berlin")["reload"]
    assert told.startswith("Dagster reloaded its schedules and sensors; daily_ingest runs next on 20")
    assert told.endswith((" at 03:00 CET.", " at 03:00 CEST."))
    shown = client.get("/api/jsonl/settings").json().keys()
    assert "reload" not in shown
    assert put(client, ingest_hour=3).keys() == put(client, llm_batch_min=5).keys() == shown
    assert services.dagster.reloads == 1
    assert put(client, ingest_schedule="disabled")["reload"].endswith("daily_ingest is stopped.")
    services.dagster.settings = None
    told = "Dagster still has the former times of daily_ingest: stop and start `anamnesis up`, or its container."
    assert put(client, ingest_schedule="nightly")["reload"] == told
    services.dagster.up = False
    told = put(client, ingest_hour=4)["reload"]
    assert told.startswith("Dagster reads the change within an hour, or at its next start: Dagster does not answer")
    assert client.get("/api/jsonl/settings").json()["ingest_hour"] == 4


def test_changed_llm_reloads_the_definitions_once(client: TestClient, services: TestServices) -> None:
    told = put(client, summarizer="ollama", summary_model="qwen3:4b")["reload"]
    assert told == "Dagster's UI shows the change."
    assert "reload" not in put(client, summary_model="qwen3:4b")
    assert "reload" not in put(client, summary_min_value=2)
    assert services.dagster.reloads == 1
    services.dagster.up = False
    told = put(client, llm_daily_tokens=900)["reload"]
    assert told.startswith("Dagster shows the change within an hour, or at its next start: Dagster does not answer")


@pytest.mark.parametrize(
    ("changes", "reloads"),
    [
        ({"embed_cpu_pct": 50}, 1),
        ({"ollama_urls": ["http://127.0.0.1:11435"]}, 1),
        ({"ollama_urls": ["http://me:word@127.0.0.1:11434"]}, 0),
        ({"openai_url": "http://127.0.0.1:8080/v1"}, 0),
        ({"idle_minutes": 7}, 0),
    ],
    ids=["cores", "address", "what an address hides", "address of another LLM", "not shown"],
)
def test_setting_that_dagster_shows_reloads(services: TestServices, changes: dict[str, object], reloads: int) -> None:
    store_settings(services.store, {"summarizer": "ollama", "ollama_urls": ["http://127.0.0.1:11434"]})
    store_settings(services.store, changes, services.dagster)
    store_settings(services.store, changes, services.dagster)
    assert services.dagster.reloads == reloads


def test_setting_that_cannot_be_is_refused_by_name(client: TestClient) -> None:
    before = client.get("/api/jsonl/settings").json()
    changes: list[dict[str, Any]] = [
        {"nonesuch": 1},
        {"ingest_hour": 24},
        {"ingest_schedule": "3h"},
        {"timezone": "Mars/Base"},
        {"timezone": "Mars/Base", "summarizer": None},
        {"summarizer": "gpt"},
        {"llm_daily_dollars": -1},
        {"summarizer": "anthropic"},
    ]
    for each in changes:
        refused = problem(client.put("/api/jsonl/settings", json=each))
        assert refused["errors"][0]["path"].endswith(next(iter(each))), each
    assert problem(client.put("/api/jsonl/settings", json={}))["errors"][0]["path"].endswith("summarizer")
    assert client.get("/api/jsonl/settings").json() == before


def test_a_paid_llm_without_a_budget_comes_with_a_warning(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of nobody")
    local = client.put("/api/jsonl/settings", json={"summarizer": "anthropic"}).json()
    assert "local_only" in local["warnings"][0], "the environment of these tests keeps all text here"
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "0")
    body = client.get("/api/jsonl/settings").json()
    assert "budget" in body["warnings"][0]
    assert "a key of nobody" not in json.dumps(body)
    assert client.put("/api/jsonl/settings", json={"llm_daily_dollars": 1.0}).json()["warnings"] == []


def test_settings_that_the_environment_decides_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    monkeypatch.setenv("ANAMNESIS_INGEST_HOUR", "7")
    assert "LOCK_ENV" in problem(client.put("/api/jsonl/settings", json={"ingest_hour": 3}))["detail"]


def test_models_are_listed_with_prices_and_one_default_each(client: TestClient) -> None:
    models = client.get("/api/jsonl/models").json()["models"]
    defaults = [m["backend"] for m in models if m["default"]]
    assert sorted(defaults) == sorted(set(defaults))
    paid = next(m for m in models if m["backend"] == "anthropic" and m["default"])
    assert paid["paid"]
    assert paid["output_price"] > paid["input_price"] > 0
    assert not any(m["paid"] for m in models if m["backend"] == "ollama")

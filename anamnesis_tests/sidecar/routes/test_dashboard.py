"""The dashboard's figures, the resources the service stands on, the disk and the machine."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import Any, get_args

import psutil
import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import ServiceUnreachable, StoreFull
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.sidecar import resources
from anamnesis_pipeline.sidecar.admission import DiskSpace
from anamnesis_pipeline.sidecar.cache import TtlCache
from anamnesis_pipeline.sidecar.disk_use import Use, disk_use
from anamnesis_pipeline.sidecar.host_state import gpus_of, host_state
from anamnesis_pipeline.sidecar.overview_stats import points_of, sentence_of
from anamnesis_pipeline.sidecar.present_problems import Growth, present_problems
from anamnesis_pipeline.sidecar.resources import Answer, Place, Resource, Resources, masked
from anamnesis_pipeline.store.records.overview import Census, Grouping
from anamnesis_tests.sidecar.conftest import Post, TestServices, raising, wait_for
from anamnesis_tests.support.chat_services import ChatServer
from anamnesis_tests.support.samples import put

NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


def test_the_figures_equal_what_is_stored(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a", project="zoo", timestamp="2026-03-01T12:00:00Z")
    post("The harbour crane", episode_id="b", project="zoo", instance="other", timestamp="2026-03-02T12:00:00Z")
    post("The lighthouse", episode_id="c", timestamp="2026-03-03T12:00:00Z")
    for _ in range(2):
        client.post("/api/episodes/search", json={"query": "zeppelin hangar", "top_k": 1})
    client.get("/api/episodes/b")
    body = client.get("/api/dashboard/stats").json()
    assert body["totals"] == {"episodes": 3, "retrievals": 2, "projects": 2, "instances": 2}
    assert body["by_project"] == [{"project": "zoo", "episodes": 2}, {"project": "acme", "episodes": 1}]
    assert body["by_instance"] == [{"instance": "mac", "episodes": 2}, {"instance": "other", "episodes": 1}]
    assert [e["episode_id"] for e in body["recent"]] == ["c", "b", "a"]
    assert [(e["episode_id"], e["retrieval_count"]) for e in body["most_retrieved"]] == [("b", 0)]
    direct = {row["source"]: row for row in body["direct"]}
    assert direct["direct"] == {"source": "direct", "episodes": 3, "newest": "2026-03-03T12:00:00Z"}
    assert direct["uploads"] == {"source": "uploads", "episodes": 0, "newest": None}
    assert body["consolidation"] == client.get("/api/consolidation/status").json()
    assert body["knowledge"] == {"waiting": 0, "oldest_days": None, "dream_days": None, "dreamt_at": None}


def test_private_projects_are_counted_and_not_listed(client: TestClient, services: TestServices, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["secret"])
    post("The zeppelin hangar", episode_id="a", project="secret")
    client.post("/api/episodes/search", json={"query": "zeppelin hangar", "project": "secret"})
    body = client.get("/api/dashboard/stats").json()
    assert (body["totals"]["episodes"], body["totals"]["retrievals"]) == (1, 1)
    assert (body["recent"], body["most_retrieved"]) == ([], [])


def test_state_is_one_sentence_kept_for_a_minute(client: TestClient, post: Post) -> None:
    first = client.get("/api/status/summary").json()
    assert first["text"].startswith("The memory is empty;")
    post("The zeppelin hangar")
    assert client.get("/api/status/summary").json() == first


@pytest.mark.parametrize(
    ("episodes", "embedded", "hours", "wrong", "told"),
    [
        (1, 1.0, 0, 0, "1 episode of 1 project, the newest of just now; all is well."),
        (
            2,
            0.5,
            3,
            1,
            "2 episodes of 1 project, the newest of 3 hours ago; 50.0% can be found by meaning so far; "
            "1 thing to look at.",
        ),
        (2, None, 72, 2, "2 episodes of 1 project, the newest of 3 days ago; 2 things to look at."),
        (0, None, 0, 0, "The memory is empty; all is well."),
    ],
)
def test_sentence_says_how_it_stands(episodes: int, embedded: Any, hours: int, wrong: int, told: str) -> None:
    census = Census(episodes, 0, {"zoo": episodes} if episodes else {}, {})
    assert sentence_of(census, embedded, NOW - timedelta(hours=hours), wrong, NOW) == told


def test_long_history_is_drawn_by_the_week() -> None:
    days = {date(2020, 1, 1) + timedelta(days=n): 2 for n in range(700)}
    by_day, step = points_of(days)
    assert (len(by_day), step, by_day[0]) == (700, 1, [18262, 2])
    by_week, step = points_of(days, most=200)
    assert (step, len(by_week) <= 200, sum(count for _, count in by_week)) == (7, True, 1400)
    assert points_of({}) == ([], 1)


def test_embedding_that_stands_still_is_wrong(client: TestClient, services: TestServices, post: Post) -> None:
    now = 0.0
    growth = Growth(clock=lambda: now)

    def wrong() -> bool:
        return "coverage" in [each.name for each in present_problems(services, DiskSpace(), growth, ())]

    put(services.store, "unread", "not embedded by anybody")
    assert not wrong(), "nobody knows yet"
    now = 299.0
    post("The harbour crane", episode_id="embedded")
    assert not wrong(), "one more than before"
    now = 598.0
    assert not wrong()
    now = 600.0
    assert wrong()


def test_value_is_made_once_for_two_that_ask_at_once() -> None:
    now, made, both = [0.0], [], Barrier(2)

    def make(key: str) -> str:
        made.append(key)
        return f"{key}{len(made)}"

    kept = TtlCache(make, 5.0, most=2, clock=lambda: now[0])
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda _: (both.wait(), kept.get("a"))[1], range(2))) == ["a1", "a1"]
    assert made == ["a"]
    now[0] = 4.9
    assert kept.get("a") == "a1"
    now[0] = 5.1
    assert kept.get("a") == "a2"
    kept.get("b"), kept.get("c")
    assert (kept.get("b"), kept.get("a")) == ("b3", "a5"), "only the latest two are kept"


def test_value_dropped_forgotten_or_failed_is_made_again() -> None:
    made: list[str] = []

    def make(key: str) -> int:
        made.append(key)
        if len(made) == 1:
            raise StoreFull("no room")
        return len(made)

    kept = TtlCache(make, 5.0, most=2)
    with pytest.raises(StoreFull):
        kept.get("a")
    assert (kept.get("a"), kept.get("b")) == (2, 3)
    kept.drop("a")
    assert (kept.get("b"), kept.get("a")) == (3, 4)
    kept.forget()
    assert (kept.get("b"), kept.get("a")) == (5, 6)


class Stub:
    """A place that answers, fails or hangs, as it is told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.may_go = Event()
        self.may_go.set()
        self.asked = 0

    def __call__(self) -> Answer:
        self.asked += 1
        self.may_go.wait(60)
        if self.error:
            raise self.error
        return Answer("fine")


@pytest.fixture
def stub(services: TestServices, monkeypatch: pytest.MonkeyPatch) -> Stub:
    stub = Stub()
    place = Place("Stub", "llm", "here", stub, advice="do something")
    monkeypatch.setattr(resources, "places_of", lambda *_: [place])
    monkeypatch.setattr(resources, "PROBED_WITHIN_S", 30)
    return stub


def test_what_answered_is_stale_for_two_failures_then_down(services: TestServices, stub: Stub) -> None:
    now = [0.0]
    asked = Resources(services, DiskSpace(), clock=lambda: now[0])
    stub.error = ServiceUnreachable("nobody answers")
    (found,) = asked.status()
    assert (found.state, found.last_ok, found.advice) == ("down", None, "do something"), "it never answered"
    stub.error = None
    assert [asked.status(now=True)[0].state] == ["up"]
    stub.error = ServiceUnreachable("nobody answers")
    states = [asked.status(now=True)[0] for _ in range(3)]
    assert [(s.state, s.failures, s.detail) for s in states] == [
        ("stale", 1, "nobody answers"),
        ("stale", 2, "nobody answers"),
        ("down", 3, "nobody answers"),
    ]
    assert states[-1].last_ok is not None
    stub.error = None
    assert (asked.status(now=True)[0].state, asked.last()[0].failures) == ("up", 0)
    before = stub.asked
    asked.status(), asked.status()
    assert stub.asked == before, "within the pause what is known is told"
    now[0] = 30.0
    stub.error = RuntimeError("the password is hunter2")
    (found,) = Resources(services, DiskSpace()).status()
    assert (found.state, "hunter2" in found.detail, "RuntimeError" in found.detail) == ("down", False, True)
    asked.status()
    assert stub.asked == before + 2


def test_what_hangs_holds_up_nobody(services: TestServices, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Resources(services, DiskSpace())
    monkeypatch.setattr(resources, "PROBED_WITHIN_S", 0.2)
    stub.may_go.clear()
    for _ in range(3):
        (found,) = asked.status(now=True)
        assert (found.state, found.detail) == ("down", "no answer within 0.2 s")
    wait_for(lambda: stub.asked > 0)
    assert stub.asked == 1
    monkeypatch.setattr(resources, "PROBED_WITHIN_S", 30)
    stub.may_go.set()
    assert asked.status(now=True)[0].state == "up"


def test_resources_mask_keys(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-ant-0123456789abcdefghij"
    services.dagster.up = False
    with ChatServer().running() as server:
        for name, value in {
            "LOCAL_ONLY": "0",
            "OPENAI_URL": f"{server.url}/v1",
            "OPENAI_API_KEY": key,
            "SUMMARIZER": "openai",
            "SUMMARY_MODEL": "local-model",
            "OLLAMA_URLS": "http://127.0.0.1:9",
        }.items():
            monkeypatch.setenv(f"ANAMNESIS_{name}", value)
        reply = client.get("/api/resources/status")
        assert {request.path for request in server.received} == {"/v1/models"}, "nothing that costs money was asked"
    found = {row["name"]: row for row in reply.json()["resources"]}
    assert {name: row["state"] for name, row in found.items()} == {
        "Store": "up",
        "Embedding": "up",
        "Dagster": "down",
        "Sensors and schedules": "off",
        "OpenAI-compatible": "up",
        "Ollama": "down",
    }
    assert (found["OpenAI-compatible"]["key"], found["OpenAI-compatible"]["used"]) == ("sk-…ghij", True)
    assert not found["Ollama"]["used"]
    assert key not in reply.text


@pytest.mark.parametrize(
    ("name", "setting", "path", "models"),
    [("Ollama", "ollama_urls", "", 1), ("OpenAI-compatible", "openai_url", "/v1", 2)],
)
def test_server_for_chats_alone_is_up(services: TestServices, name: str, setting: str, path: str, models: int) -> None:
    with ChatServer().running() as server:
        url = f"{server.url}{path}"
        services.store.settings.set(f"config.{setting}", [url] if setting == "ollama_urls" else url)
        found = asked(services, name)
        assert (found.state, found.is_used) == ("up", False)
        assert found.detail == f"answers; {counted(models, 'model')} to chat with"
    found = asked(services, name)
    assert (found.state, found.last_ok, "reached" in found.detail) == ("down", None, True)


def test_server_of_summaries_is_down_without_their_model(services: TestServices) -> None:
    with ChatServer().running() as server:
        services.store.settings.set("config.ollama_urls", [server.url])
        services.store.settings.set("config.summarizer", "ollama")
        found = asked(services, "Ollama")
    assert (found.state, found.is_used) == ("down", True)
    assert "has no model 'llama3.2'" in found.detail


def asked(services: TestServices, name: str) -> Resource:
    (found,) = [each for each in Resources(services, DiskSpace()).status() if each.name == name]
    return found


def test_local_only_asks_no_llm_elsewhere(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_ANTHROPIC_API_KEY", "sk-ant-0123456789abcdefghij")
    rows = client.get("/api/resources/status").json()["resources"]
    (found,) = [row for row in rows if row["name"] == "Claude API"]
    assert (found["state"], found["used"]) == ("off", False)
    assert [masked("short"), masked("0123456789abcdefghij")] == ["set", "012…ghij"]


def test_full_store_is_down(services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    full = raising(StoreFull("the disk has no room"))
    room = DiskSpace()
    room.refused()
    monkeypatch.setattr(type(services.store.settings), "set", full)
    (store,) = [each for each in Resources(services, room).status() if each.kind == "store"]
    assert (store.state, "no room" in store.detail) == ("down", True)


def test_the_disk_use_names_each_entry_and_follows_no_link(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "index" / "deep").mkdir(parents=True)
    (home / "index" / "deep" / "a").write_bytes(b"x" * 300)
    (home / "index" / "b").write_bytes(b"x" * 200)
    (home / "anamnesis.db").write_bytes(b"x" * 100)
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 9_000)
    (home / "index" / "link").symlink_to(outside)
    found = disk_use(home)
    assert replace(found.uses[0], bytes=0) == Use("index", 0, 3)
    assert 500 <= found.uses[0].bytes < 1_000
    assert found.uses[1] == Use("anamnesis.db", 100, 1)
    assert found.free <= found.disk
    assert disk_use(tmp_path / "nowhere").uses == ()


TOLD = "NVIDIA H100 80GB HBM3, 37, 1024, 81559\nTesla T4, [N/A], [Not Supported], 15360\n"


def test_the_machine_is_told_as_the_system_has_it(client: TestClient) -> None:
    body = client.get("/api/host").json()
    assert body["cpus"] == psutil.cpu_count()
    assert body["memory_bytes"] == psutil.virtual_memory().total
    assert 0 < body["memory_available_bytes"] <= body["memory_bytes"]
    assert 0 <= body["cpu_percent"] <= 100
    assert body["load"]["one"] == pytest.approx(os.getloadavg()[0], abs=2)
    assert body["uptime_s"] > 0


def test_what_the_system_does_not_tell_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = raising(OSError("not here"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "getloadavg", unknown)
    for name in ("virtual_memory", "boot_time", "cpu_percent"):
        monkeypatch.setattr(psutil, name, unknown)
    found = host_state()
    names = ("load", "memory_bytes", "memory_available_bytes", "uptime_s", "cpu_percent", "gpus")
    assert [found[name] for name in names] == [None] * len(names)  # type: ignore[literal-required]


def test_gpus_are_told_with_what_they_say_of_themselves() -> None:
    first, second = gpus_of(TOLD)
    assert first == {
        "name": "NVIDIA H100 80GB HBM3",
        "percent": 37.0,
        "memory_used_bytes": 2**30,
        "memory_bytes": 81_559 * 2**20,
    }
    assert (second["percent"], second["memory_used_bytes"]) == (None, None)
    assert gpus_of("No devices were found\n") == []


@pytest.mark.parametrize(("script", "gpus"), [("printf 'T4, 0, 0, 15360\\n'", 1), ("exit 9", None), ("sleep 5", None)])
def test_gpu_program_may_fail(script: str, gpus: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("anamnesis_pipeline.sidecar.host_state.GPU_ASKED_S", 0.5 if "sleep" in script else 30)
    found = host_state()["gpus"]
    assert (None if found is None else len(found)) == gpus


def test_counts_by_any_field_add_up_to_the_total(client: TestClient, services: TestServices, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["secret"])
    post("The zeppelin hangar", episode_id="a", project="zoo", timestamp="2026-03-01T12:00:00Z", kind="decision")
    post("The harbour crane", episode_id="b", project="zoo", timestamp="2026-02-02T12:00:00Z")
    put(services.store, "c", "text", kind="exchange", source="logs")
    post("The safe", episode_id="d", project="secret", kind="quokka")
    for by in get_args(Grouping):
        body = client.get("/api/counts", params={"by": by}).json()
        assert (body["total"], body["private"], body["others"]) == (4, 1, 0), by
        assert sum(each["episodes"] for each in body["counts"]) == 3, by
        assert not {"secret", "quokka"} & {each["value"] for each in body["counts"]}, by
    stats = client.get("/api/dashboard/stats").json()
    assert stats["by_layer"] == [{"value": "episodic", "episodes": 2}, {"value": "semantic", "episodes": 1}]
    assert stats["by_month"] == [{"value": "2026-03", "episodes": 2}, {"value": "2026-02", "episodes": 1}]
    assert {each["value"]: each["episodes"] for each in stats["by_type"]} == {"decision": 1, "note": 1, "": 1}
    few = client.get("/api/counts", params={"by": "kind", "limit": 1}).json()
    assert (few["total"], few["others"], len(few["counts"])) == (4, 2, 1)
    named = client.get("/api/counts", params={"by": "kind", "project": "secret"}).json()
    assert named == {
        "by": "kind",
        "total": 1,
        "private": 0,
        "others": 0,
        "counts": [{"value": "quokka", "episodes": 1}],
    }
    assert client.get("/api/counts", params={"by": "mood"}).status_code == 422

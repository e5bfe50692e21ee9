from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import ServiceUnreachable, StoreFull
from anamnesis_pipeline.sidecar import resources
from anamnesis_pipeline.sidecar.disk_use import Use, disk_use
from anamnesis_pipeline.sidecar.kept import Kept
from anamnesis_pipeline.sidecar.overview_stats import points_of, sentence_of
from anamnesis_pipeline.sidecar.present_problems import Growth, present_problems
from anamnesis_pipeline.sidecar.resources import Answer, Place, Resource, Resources, masked
from anamnesis_pipeline.sidecar.room import Room
from anamnesis_pipeline.store.records.overview import Census
from anamnesis_pipeline.wording import counted
from anamnesis_tests.chat.services import ChatServer
from anamnesis_tests.sidecar.conftest import Post, TestServices, wait_for
from anamnesis_tests.store.samples import put

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


def test_private_projects_are_counted_and_not_listed(client: TestClient, services: TestServices, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["secret"])
    post("The zeppelin hangar", episode_id="a", project="secret")
    client.post("/api/episodes/search", json={"query": "zeppelin hangar", "project": "secret"})
    body = client.get("/api/dashboard/stats").json()
    assert (body["totals"]["episodes"], body["totals"]["retrievals"]) == (1, 1)
    assert (body["recent"], body["most_retrieved"]) == ([], [])


def test_the_state_is_one_plain_sentence_and_kept_for_a_minute(client: TestClient, post: Post) -> None:
    first = client.get("/api/status/summary").json()
    assert first["text"].startswith("The memory is empty;")
    post("The zeppelin hangar")
    assert client.get("/api/status/summary").json() == first


@pytest.mark.parametrize(
    ("episodes", "embedded", "hours", "wrong", "told"),
    [
        (1, 1.0, 0, 0, "1 episode of 1 project, the newest of just now; all is well."),
        (2, 0.5, 3, 1, "2 episodes of 1 project, the newest of 3 hours ago; 50.0% can be found by meaning so far; "
                       "1 thing to look at."),
        (2, None, 72, 2, "2 episodes of 1 project, the newest of 3 days ago; 2 things to look at."),
        (0, None, 0, 0, "The memory is empty; all is well."),
    ],
)  # fmt: skip
def test_the_sentence_says_how_much_how_new_and_how_well(
    episodes: int, embedded: float | None, hours: int, wrong: int, told: str
) -> None:
    census = Census(episodes, 0, {"zoo": episodes} if episodes else {}, {})
    assert sentence_of(census, embedded, NOW - timedelta(hours=hours), wrong, NOW) == told


def test_a_long_history_is_drawn_by_the_week_or_month() -> None:
    start = date(2020, 1, 1)
    days = {start + timedelta(days=n): 2 for n in range(700)}
    by_day, step = points_of(days)
    assert (len(by_day), step, by_day[0]) == (700, 1, [18262, 2])
    by_week, step = points_of(days, most=200)
    assert step == 7
    assert len(by_week) <= 200
    assert sum(count for _, count in by_week) == 1400
    assert points_of({}) == ([], 1)


def test_an_embedding_that_goes_on_is_nothing_wrong_and_one_that_stands_still_is(
    client: TestClient, services: TestServices, post: Post
) -> None:
    now = 0.0
    growth = Growth(clock=lambda: now)

    def wrong() -> bool:
        return "coverage" in [each.name for each in present_problems(services, Room(), growth, ())]

    put(services.store, "unread", "not embedded by anybody")
    assert not wrong(), "nobody knows yet"
    now = 299.0
    post("The harbour crane", episode_id="embedded")
    assert not wrong(), "one more than before"
    now = 598.0
    assert not wrong()
    now = 600.0
    assert wrong()


# --- values that are kept --------------------------------------------------------------------------------


def test_a_value_is_kept_for_its_time_and_made_once_for_two_that_ask_at_once() -> None:
    now, made, both = [0.0], [], Barrier(3)

    def make(key: str) -> str:
        made.append(key)
        return f"{key}{len(made)}"

    kept = Kept(make, 5.0, most=2, clock=lambda: now[0])
    threads = [Thread(target=lambda: (both.wait(), kept.get("a"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    both.wait()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    now[0] = 4.9
    assert kept.get("a") == "a1"
    now[0] = 5.1
    assert kept.get("a") == "a2"
    kept.get("b"), kept.get("c")
    assert kept.get("b") == "b3"
    assert kept.get("a") == "a5", "only the latest two are kept"


def test_what_is_dropped_or_forgotten_is_made_again() -> None:
    made: list[str] = []
    kept = Kept(lambda key: made.append(key) or len(made), 5.0, most=2)
    kept.get("a"), kept.get("b")
    kept.drop("a")
    assert (kept.get("b"), kept.get("a")) == (2, 3)
    kept.forget()
    assert (kept.get("b"), kept.get("a")) == (4, 5)


def test_what_could_not_be_made_is_made_again() -> None:
    answers = iter([StoreFull("no room"), "there"])

    def make(_: None) -> str:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    kept = Kept(make, 5.0)
    with pytest.raises(StoreFull):
        kept.get(None)
    assert kept.get(None) == "there"


# --- what the service stands on --------------------------------------------------------------------------


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


def test_what_answered_before_is_stale_for_two_failures_and_then_down(services: TestServices, stub: Stub) -> None:
    asked = Resources(services, Room())
    assert [asked.status(now=True)[0].state] == ["up"]
    stub.error = ServiceUnreachable("nobody answers")
    states = [asked.status(now=True)[0] for _ in range(3)]
    assert [(s.state, s.failures, s.detail) for s in states] == [
        ("stale", 1, "nobody answers"), ("stale", 2, "nobody answers"), ("down", 3, "nobody answers"),
    ]  # fmt: skip
    assert states[-1].last_ok is not None
    stub.error = None
    assert (asked.status(now=True)[0].state, asked.last()[0].failures) == ("up", 0)


def test_what_never_answered_is_down_at_once(services: TestServices, stub: Stub) -> None:
    stub.error = ServiceUnreachable("nobody answers")
    (found,) = Resources(services, Room()).status()
    assert (found.state, found.last_ok, found.advice) == ("down", None, "do something")


def test_what_hangs_holds_up_nobody_and_is_not_asked_again_meanwhile(
    services: TestServices, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Resources(services, Room())
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


def test_whoever_asks_within_the_pause_gets_what_is_known(services: TestServices, stub: Stub) -> None:
    now = [0.0]
    asked = Resources(services, Room(), clock=lambda: now[0])
    asked.status(), asked.status()
    assert stub.asked == 1
    now[0] = 30.0
    asked.status()
    assert stub.asked == 2


def test_an_error_nobody_expected_is_down_and_quotes_nothing(services: TestServices, stub: Stub) -> None:
    stub.error = RuntimeError("the password is hunter2")
    (found,) = Resources(services, Room()).status()
    assert found.state == "down"
    assert "hunter2" not in found.detail
    assert "RuntimeError" in found.detail


def test_all_are_asked_and_told_with_keys_masked(
    client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-ant-0123456789abcdefghij"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "0")
    monkeypatch.setenv("ANAMNESIS_OPENAI_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("ANAMNESIS_OPENAI_API_KEY", key)
    monkeypatch.setenv("ANAMNESIS_SUMMARY_MODEL", "little")
    monkeypatch.setenv("ANAMNESIS_SUMMARIZER", "openai")
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", "http://127.0.0.1:9")
    services.dagster.up = False
    reply = client.get("/api/resources/status")
    server.shutdown()
    server.server_close()
    found = {row["name"]: row for row in reply.json()["resources"]}
    assert {name: row["state"] for name, row in found.items()} == {
        "Store": "up", "Embedding": "up", "Dagster": "down", "Sensors and schedules": "off",
        "OpenAI-compatible": "up", "Ollama": "down",
    }  # fmt: skip
    assert (found["OpenAI-compatible"]["key"], found["OpenAI-compatible"]["used"]) == ("sk-…ghij", True)
    assert not found["Ollama"]["used"]
    assert key not in reply.text
    assert Models.paths == ["GET /v1/models"], "nothing that costs money was asked"


@pytest.mark.parametrize(
    ("name", "setting", "path", "models"),
    [("Ollama", "ollama_urls", "", 1), ("OpenAI-compatible", "openai_url", "/v1", 2)],
)
def test_a_server_that_only_chats_may_ask_is_up_whatever_model_summaries_would_want(
    services: TestServices, name: str, setting: str, path: str, models: int
) -> None:
    with ChatServer().running() as server:
        url = f"{server.url}{path}"
        services.store.settings.set(f"config.{setting}", [url] if setting == "ollama_urls" else url)
        found = asked(services, name)
        assert (found.state, found.is_used) == ("up", False)
        assert found.detail == f"answers; {counted(models, 'model')} to chat with"
    found = asked(services, name)
    assert (found.state, found.last_ok, "reached" in found.detail) == ("down", None, True)


def test_the_server_that_writes_summaries_is_down_without_the_model_of_theirs(services: TestServices) -> None:
    with ChatServer().running() as server:
        services.store.settings.set("config.ollama_urls", [server.url])
        services.store.settings.set("config.summarizer", "ollama")
        found = asked(services, "Ollama")
    assert (found.state, found.is_used) == ("down", True)
    assert "has no model 'llama3.2'" in found.detail


def asked(services: TestServices, name: str) -> Resource:
    (found,) = [each for each in Resources(services, Room()).status() if each.name == name]
    return found


class Models(BaseHTTPRequestHandler):
    """The list of models of an OpenAI-compatible service."""

    paths: list[str] = []  # noqa: RUF012 - of one test

    def do_GET(self) -> None:
        self.paths.append(f"GET {self.path}")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"object": "list", "data": [{"id": "little", "object": "model"}]}')

    def log_message(self, *_: object) -> None:
        pass


def test_with_local_only_no_llm_of_another_machine_is_asked(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_ANTHROPIC_API_KEY", "sk-ant-0123456789abcdefghij")
    rows = client.get("/api/resources/status").json()["resources"]
    (found,) = [row for row in rows if row["name"] == "Claude API"]
    assert (found["state"], found["used"]) == ("off", False)


def test_short_keys_are_not_shown_in_part() -> None:
    assert [masked("short"), masked("0123456789abcdefghij")] == ["set", "012…ghij"]


def test_a_full_store_is_down(services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("the disk has no room")

    room = Room()
    room.refused()
    monkeypatch.setattr(type(services.store.settings), "set", full)
    (store,) = [each for each in Resources(services, room).status() if each.kind == "store"]
    assert store.state == "down"
    assert "no room" in store.detail


# --- the disk --------------------------------------------------------------------------------------------


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


def test_nothing_is_left_of_what_could_not_be_made_or_is_too_old() -> None:
    now = [0.0]

    def make(key: int) -> int:
        return 10 // key

    kept = Kept(make, 5.0, most=3, clock=lambda: now[0])
    with pytest.raises(ZeroDivisionError):
        kept.get(0)
    kept.get(1)
    kept.drop(1)
    assert (kept._making, kept._values) == ({}, {})
    kept.get(1)
    now[0] = 6.0
    kept.get(2)
    assert (list(kept._values), list(kept._making)) == ([2], [2])

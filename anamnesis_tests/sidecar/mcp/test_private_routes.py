"""Each route has a decision: it hides what is private, may name a private source, or answers of what is named to it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from typer.testing import CliRunner

from anamnesis_pipeline.cli.app import app
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_tests.sidecar.conftest import know_the_unrelated
from anamnesis_tests.sidecar.mcp.conftest import Client, Sidecar
from anamnesis_tests.sidecar.mcp.test_private import crawl

NAMES = ("quokkaroot", "quokkasource", "potorooroot", "potoroosource", "zanzibarfund")
"""Of private sources, their folders, and a private project."""
CONTENT = ("numbatium", "platypus", "Echidna", "gliderbroken", "bilbyium", "5e550000", "cuscus", "wombatium")
"""Text, titles and files of them."""
ASKED = "why did the retry charge twice"

HIDES: dict[str, dict[str, Any]] = {
    "GET /ready": {},
    "GET /metrics": {},
    "GET /api/queries": {},
    "GET /api/blame": {"path": "README.md"},
    "GET /api/fix": {"error": "OSError: the disk of the harbour is full"},
    "GET /api/how": {"task": "run the tests"},
    "GET /api/events": {"limit": 1000},
    "GET /api/quality": {},
    "GET /api/dashboard/stats": {},
    "GET /api/counts": {"by": "project"},
    "GET /api/export": {"include_superseded": True},
    "GET /api/brief": {"query": ASKED},
    "GET /api/brief/compare": {"a": ASKED, "b": "a harbour"},
    "GET /api/search/hints": {"query": ASKED},
    "GET /api/hotspots": {},
    "GET /dashboard/brief": {"q": ASKED, "with": "a harbour"},
    "GET /api/status/summary": {},
    "GET /api/similar": {"episode_id": "open"},
    "GET /api/handoff": {"project": "x/y"},
    "GET /api/logs": {},
    "GET /api/projects/current": {"cwd": "/srv/other"},
    "GET /api/uploads": {},
    "GET /api/blocklist": {},
    "GET /api/episodes": {"include_superseded": True},
    "GET /api/sessions": {},
    "GET /api/topics": {},
    "GET /api/skills": {"query": ASKED},
    "GET /api/pointers": {},
    "GET /api/drift": {},
    "GET /api/codebase": {"project": "open"},
    "GET /dashboard/drift": {},
    "GET /api/entities": {},
    "GET /api/entities/groups": {},
    "GET /api/backlinks": {"episode_id": "open"},
    "GET /dashboard/entities": {"groups": 1},
    "GET /dashboard/topics": {},
    "GET /dashboard/review": {"state": "all"},
    "GET /dashboard/sessions": {},
    "GET /dashboard/sources/worktrees": {},
    "GET /api/chat/feedback/export": {},
    "GET /dashboard/search": {"q": ASKED, "explain": 1},
    "GET /dashboard/episodes": {"status": "all"},
    "GET /dashboard/timeline": {},
    "GET /dashboard/events": {},
    "GET /dashboard/context": {"query": ASKED},
    "GET /dashboard/sources/uploads": {},
    "GET /dashboard/map": {},
    "GET /dashboard/map/state": {},
    "GET /api/value": {"episode_id": "open"},
    "GET /dashboard/episode/importance": {"episode_id": "open"},
    "GET /dashboard/episode/similar": {"episode_id": "open"},
    "GET /dashboard/episode/related": {"episode_id": "open"},
    "GET /dashboard/episode/successors": {"episode_id": "open", "q": "retry charge twice"},
    "GET /chat": {},
    "GET /api/jsonl/status": {},
    "GET /api/consolidation/status": {},
    "GET /api/proposals": {},
    "GET /api/dream": {},
    "GET /api/embedding/config": {},
    "GET /api/embedding/spaces": {},
    "GET /api/episodes/reembed/status": {},
    "GET /dashboard/embedding": {},
    "GET /dashboard/embedding/progress": {},
    "GET /dashboard/logs/doing": {},
    "GET /openapi.json": {},
    "GET /docs": {},
    "GET /health": {},
    "POST /api/episodes/search": {"query": ASKED, "explain": True, "include_superseded": True},
    "POST /api/context": {"query": ASKED},
    "POST /api/context/action": {"command": "pytest", "cwd": "/srv/other"},
    "POST /api/consolidation/run_regime_2": {"threshold": 0.5},
}
NAMES_SOURCES: dict[str, dict[str, Any]] = {
    "GET /api/sources": {},
    "GET /api/crawler/status": {},
    "GET /api/settings/sources/last-ingest": {},
    "GET /api/crawler/config/jsonl-roots": {},
    "GET /api/crawler/config/machine-roots": {},
    "GET /api/jsonl/settings": {},
    "GET /dashboard/sources": {},
    "GET /dashboard/sources/state": {},
    "GET /dashboard/logs": {},
    "GET /dashboard/health": {},
    "GET /dashboard/health/checks": {},
    "GET /dashboard/health/resources": {},
    "GET /dashboard/sources/log-folders": {},
    "GET /": {},
    "GET /dashboard": {},
    "GET /dashboard/now": {},
    "POST /api/forget": {"query": "retry"},
}
"""Where people manage what is read, and see what is wrong with it."""
CONVERSATIONS = (
    "GET /api/chat/sessions",
    "GET /chat/parts/sessions",
    "GET /api/chat/feedback",
    "POST /api/chat/stream",
)
"""What people said here themselves; see `anamnesis_tests/sidecar/chat` for what a model is sent."""
NOT_OF_EPISODES = (
    "GET /api/retention",
    "GET /dashboard/retention",
    "GET /dashboard/retention/curves",
    "GET /api/resources/status",
    "GET /api/host",
    "GET /api/jsonl/models",
    "GET /api/consolidation/regime_2/defaults",
    "GET /api/consolidation/schedule",
    "GET /api/crawler/available-mounts",
    "GET /api/crawler/config/interval",
    "GET /api/crawler/config/doc-tag-patterns",
    "GET /api/chat/inference-resources",
    "GET /api/chat/models",
    "GET /api/chat/balance",
    "GET /login",
    "GET /dashboard/logs/llm-note",
    "GET /chat/parts/models",
    "GET /chat/",
    "GET /static/{digest}/{name:path}",
    "GET /dashboard/{rest:path}",
)
"""Settings, machines and files of this project."""
OF_WHAT_IS_NAMED = (
    "GET /api/history",
    "GET /api/proposals/{proposal_id}",
    "GET /api/episodes/{episode_id:path}",
    "GET /dashboard/episodes/{episode_id:path}",
    "GET /dashboard/episode/text",
    "GET /api/sessions/{session_id}",
    "GET /dashboard/sessions/{session_id}",
    "GET /dashboard/sessions/lines",
    "GET /api/chat/sessions/{session_id}",
    "GET /api/chat/sessions/{session_id}/export",
    "GET /chat/{session_id}",
    "GET /chat/{session_id}/head",
    "GET /chat/{session_id}/earlier",
    "GET /chat/{session_id}/answer",
    "GET /chat/messages/{message_id}",
    "GET /chat/messages/{message_id}/text",
)
BY_THEIR_OWN_TESTS = (
    "GET /dashboard/events/stream",
    "GET /dashboard/map/points",
    "GET /dashboard/map/point",
    "GET /dashboard/map/found",
    "GET /api/entities/timeline",
    "GET /api/entities/graph",
)
"""`test_a_stream_of_events_names_nothing_private`, `anamnesis_tests/sidecar/web/test_memory_map.py`, and
`anamnesis_tests/sidecar/routes/test_entities.py`.
"""


def told_routes() -> set[str]:
    """Every route that tells something; those that change something answer with what they were given."""
    application = create_app(cast(Services, SimpleNamespace(settings=Settings())))
    refused = {
        "GET /api/episodes/" + name for name in "reembed search bulk bulk/edit upload rolling/upsert ingest-url".split()
    }
    refused |= {f"GET /api/episodes/reembed/{name}" for name in ("pause", "resume")}
    refused.add("GET /api/episodes/{episode_id:path}/exclude")
    found = iter_route_contexts(application.routes)
    reads = {f"GET {route.path}" for route in found if route.methods and "GET" in route.methods} - refused
    return reads | {name for name in (*HIDES, *NAMES_SOURCES, *CONVERSATIONS) if name.startswith("POST")}


def test_routes_without_a_decision_on_private_text_fail() -> None:
    decided = [*HIDES, *NAMES_SOURCES, *CONVERSATIONS, *NOT_OF_EPISODES, *OF_WHAT_IS_NAMED, *BY_THEIR_OWN_TESTS]
    assert len(decided) == len(set(decided))
    assert set(decided) == told_routes()


@dataclass(frozen=True)
class Zoo:
    """A memory with an open text, two private sources, files of theirs that cannot be read, and a private project."""

    sidecar: Sidecar

    def answer(self, route: str, asked: dict[str, Any]) -> str:
        method, path = route.split()
        given = {"json": asked} if method == "POST" else {"params": asked}
        reply = httpx.request(method, self.sidecar.base + path, follow_redirects=True, timeout=60, **given)
        assert reply.status_code == 200, (route, reply.text)
        return reply.text


@pytest.fixture
def zoo(sidecar: Sidecar, tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    base, store = tmp_path_factory.mktemp("crawled"), sidecar.services.store
    know_the_unrelated(store)
    notes, logs = base / "quokkaroot", base / "potorooroot"
    (folder := logs / "-srv-bandicoot").mkdir(parents=True)
    notes.mkdir()
    (notes / "platypus.md").write_text("# Echidna\n\nThe numbatium retry did charge twice, since no key was sent.\n")
    (notes / "gliderbroken.docx").write_bytes(b"PK\x03\x04 no such file")
    said = {"role": "user", "content": "Why does the bilbyium retry charge twice?"}
    line = {
        "type": "user",
        "uuid": "u1",
        "parentUuid": None,
        "sessionId": "5e550000-1",
        "cwd": "/srv/bandicoot",
        "timestamp": "2026-03-01T10:00:00Z",
        "version": "2.1.0",
        "message": said,
    }
    (folder / "5e550000-1.jsonl").write_text(json.dumps(line) + "\nno json {{{\n")
    store.settings.set("config.private_projects", ["zanzibarfund"])
    sidecar.post("The retry did charge twice in the harbour, since no key was sent.", project="x/y", episode_id="open")
    for name in ("secret", "merged"):
        sidecar.post(
            "The wombatium retry did charge twice, since no key was sent.",
            project="zanzibarfund",
            episode_id=f"wombatium-{name}",
            instance=name,
            kind="note",
        )
    text = {"text": "# Cuscus\n\nThe cuscusium retry did charge twice.\n", "filename": "cuscus.md"}
    httpx.post(f"{sidecar.base}/api/uploads", json={**text, "project": "zanzibarfund"}, timeout=60).raise_for_status()
    crawl(
        sidecar,
        SourceSpec("quokkasource", DOCUMENTS, str(notes), private=True),
        SourceSpec("potoroosource", LOGS, str(logs), private=True),
    )
    return Zoo(sidecar)


def shown(answer: str, words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word.casefold() in answer.casefold()]


def test_each_route_that_hides_names_nothing_private(zoo: Zoo) -> None:
    for route, asked in (*HIDES.items(), ("GET /api/episodes", {"by_session": True})):
        assert shown(zoo.answer(route, asked), (*NAMES, *CONTENT)) == [], route


def test_pages_that_manage_sources_name_no_text_or_file(zoo: Zoo) -> None:
    for route, asked in NAMES_SOURCES.items():
        assert shown(zoo.answer(route, asked), CONTENT) == [], route
    assert "quokkasource" in zoo.answer("GET /api/sources", {})


def test_forgetting_by_words_shows_no_private_text(zoo: Zoo) -> None:
    told = json.loads(zoo.answer("POST /api/forget", {"query": "retry"}))
    assert (told["episodes"], [each["episode_id"] for each in told["shown"]]) == (5, ["open"])
    named = json.loads(zoo.answer("POST /api/forget", {"project": "zanzibarfund"}))
    assert "wombatium-secret" in {each["episode_id"] for each in named["shown"]}


def test_figures_count_what_is_private_in_one_number(zoo: Zoo) -> None:
    stats = json.loads(zoo.answer("GET /api/dashboard/stats", {}))
    named = sum(row["episodes"] for row in stats["by_project"])
    assert (named, stats["private"], stats["totals"]["episodes"]) == (1, 4, 5)
    page = zoo.answer("GET /dashboard", {})
    assert "private: 4" in page
    assert shown(page, ("zanzibarfund",)) == []


def test_events_of_private_episodes_are_named_only_by_id(zoo: Zoo) -> None:
    events = json.loads(zoo.answer("GET /api/events", {"limit": 1000}))["events"]
    assert {(event["project"], event["episode_id"]) for event in events} == {("private", ""), ("x/y", "open")}
    named = json.loads(zoo.answer("GET /api/events", {"episode_id": "wombatium-secret"}))["events"]
    assert {event["project"] for event in named} == {"zanzibarfund"}
    store = zoo.sidecar.services.store
    (source,) = (source.key for source in store.files.sources() if source.spec == "quokkasource")
    (gone,) = store.episodes.page(EpisodeFilter(source=source), 1).items
    httpx.delete(f"{zoo.sidecar.base}/api/episodes/{gone.episode_id}").raise_for_status()
    assert shown(zoo.answer("GET /api/events", {"limit": 1000}), (*NAMES, gone.episode_id)) == []
    assert shown(zoo.answer("GET /api/blocklist", {}), CONTENT) == []


def test_a_stream_of_events_names_nothing_private(zoo: Zoo) -> None:
    read = ""
    with httpx.stream("GET", f"{zoo.sidecar.base}/dashboard/events/stream", params={"after": 0}, timeout=60) as reply:
        for line in reply.iter_lines():
            read += line
            if "heartbeat" in line:
                break
    assert "x/y" in read
    assert shown(read, (*NAMES, *CONTENT)) == []


def test_names_are_offered_with_private_ones_on_demand(zoo: Zoo) -> None:
    assert "zanzibarfund" in zoo.answer("GET /dashboard/episodes", {"private": "on"})
    uploads = zoo.answer("GET /api/uploads", {"include_private": "zanzibarfund"})
    assert shown(uploads, ("cuscus",)) == ["cuscus"]


def test_texts_like_private_ones_tell_nothing_of_them(zoo: Zoo) -> None:
    text = {"text": "# Cuscus\n\nThe cuscusium retry did charge twice.\n", "filename": "mine.md"}
    reply = httpx.post(f"{zoo.sidecar.base}/api/uploads", json=text, timeout=60).json()
    assert (reply["duplicate"], reply["filename"], reply["project"]) == (True, "mine.md", "private")
    client = Client("http", zoo.sidecar.port, folder="/srv/other")
    for project in ({}, {"project": "x/y"}):
        said = client.call("remember", text="The wombatium retry did charge twice, since no key was sent.", **project)
        assert "wombatium-" not in said
        assert "Much like" not in said or "open" in said


def test_a_question_of_a_project_private_by_now_is_not_reported(zoo: Zoo) -> None:
    store, asked_of = zoo.sidecar.services.store, {"project": "zanzibarfund"}
    asked_at = datetime(2026, 3, 1, tzinfo=UTC)
    store.queries.note("wombatium retry", asked_of, [], asked_at)
    store.queries.note("numbatium retry", {"include_private": ["*"]}, [], asked_at)
    assert shown(zoo.answer("GET /api/queries", {}), (*NAMES, *CONTENT)) == []


def test_lists_of_commands_name_private_things_on_demand(zoo: Zoo) -> None:
    def run(command: str) -> str:
        told = CliRunner().invoke(app, command.split())
        assert told.exit_code == 0, told.output
        return told.output

    for command in ("projects list", "uploads list", "dead-letters list", "exclude list"):
        assert shown(run(command), (*CONTENT, "zanzibarfund")) == [], command
    for command in ("projects list", "uploads list"):
        assert "private: " in run(command)
        assert "zanzibarfund" in run(f"{command} --private")
    hint = CliRunner().invoke(app, ["search", "retry", "--project", "nosuch"]).output
    assert shown(hint, NAMES) == []

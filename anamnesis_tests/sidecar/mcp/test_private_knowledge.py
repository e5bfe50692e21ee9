"""What holds in a private project, or is said in a private source of an open one, appears in no output of another."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import dagster as dg
import httpx
import pytest
from typer.testing import CliRunner

from anamnesis_pipeline.cli.app import app
from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.memory_index import memory_index
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource, close_kept
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Evidence, Kind, State
from anamnesis_tests.sidecar.mcp.conftest import Client, Sidecar
from anamnesis_tests.sidecar.mcp.test_private import HOOK
from anamnesis_tests.sidecar.mcp.test_private_routes import HIDES
from anamnesis_tests.support.proposed import propose_lesson, propose_procedure
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.topics import put_pinned, put_pointer, put_topic

SECRET = "wombatium"
"""A word of what is private, and of its project."""
OPEN, PRIVATE = "x/harbour", f"acme/{SECRET}"
HIDDEN = "hidden"
"""Key of a private source, of which text is in the open project."""


def plant(store: Store, project: str, name: str, word: str, source: str) -> None:
    """Statements of every sort in a project, and proposals made of them."""
    said = (
        f"The {word} database runs on port 5433",
        f"{word} database: port 5433",
        f"We deploy the {word} on Fridays because the {word} team is there",
        f"We deploy the {word} on Mondays because the {word} team is there",
        f"Start it with `make {word}` and read docs/{word}.md",
    )
    for number, text in enumerate(said):
        fields = {"kind": "decision", "project": project, "raw_exchange": text, "summary": text, "instance": "mac"}
        put(store, f"{name}{number}", text, minute=number, source=source, **fields)
    propose_procedure(store, f"{name}0", project)
    propose_lesson(store, f"{name}1", project)
    origin = {"project": project, "source": f"{source}-topics" if source == "direct" else source}
    put_topic(store, f"/c/{name}/topics/{word}.md", f"# The {word}\n\nHow the {word} works.", title=word, **origin)
    lesson = f"# Lessons\n\n- The {word} failed\n  - Fixed by: restart the {word}"
    put_topic(store, f"/c/{name}/topics/lessons.md", lesson, title=word, **origin)
    put_pointer(store, f"{word}-{name}", project, description=f"where the {word} is", path=f"/srv/{word}")
    put_pinned(store, f"{name}-pinned", f"Prefer the {word} way", project)


@pytest.fixture
def planted(sidecar: Sidecar) -> Sidecar:
    """An open project, a private one, and text of a private source in the open one."""
    store = sidecar.services.store
    store.settings.set("config.private_projects", [SECRET])
    store.files.put_sources([Source(HIDDEN, "box", f"/{SECRET}", ".", DOCUMENTS, "removed")])
    plant(store, OPEN, "open", "lighthouse", "direct")
    plant(store, PRIVATE, "mine", SECRET, "direct")
    plant(store, OPEN, "hidden", SECRET, HIDDEN)
    for name in ("hidden-pinned", f"pointer-{OPEN}-{SECRET}-hidden"):
        held = store.episodes.get([name])[name]
        put(store, name, held.summary, source=HIDDEN, **{each: getattr(held, each) for each in _KEPT})
    reply = httpx.post(f"{sidecar.base}/api/dream", timeout=120)
    assert reply.status_code == 200, reply.text
    return sidecar


_KEPT = ("project", "kind", "tags", "summary", "metadata")


def private_of(store: Store) -> set[tuple[str, str]]:
    """Kind and project of the open proposals that tell the secret."""
    found = store.proposals.page(100)
    return {(each.kind, each.project) for each in found if SECRET in str(each)}


def test_what_is_planted_makes_proposals(planted: Sidecar) -> None:
    found = private_of(planted.services.store)
    assert {project for _, project in found} == {OPEN, PRIVATE}
    assert {kind for kind, _ in found} >= {Kind.PATTERN, Kind.LESSON, Kind.SUPERSEDE, Kind.PROMOTE}
    answer = httpx.get(f"{planted.base}/api/proposals", params={"project": PRIVATE}, timeout=60).text
    assert SECRET in answer, "it is shown where it is named"


def test_no_route_tells_what_holds_in_private(planted: Sidecar) -> None:
    asked = "where does the database run and when do we deploy"
    own: dict[str, dict[str, Any]] = {
        "GET /api/topics": {"project": OPEN},
        "GET /api/pointers": {"project": OPEN},
        "GET /api/proposals": {"limit": 200},
        "GET /dashboard/review": {"state": "all"},
        "GET /dashboard/topics": {},
        "GET /dashboard/drift": {},
        "GET /api/brief": {"query": asked},
        "GET /api/skills": {"query": asked},
        "POST /api/context": {"query": asked},
        "POST /api/episodes/search": {"query": asked, "explain": True},
    }
    for route, given in (*HIDES.items(), *own.items()):
        if route in {"GET /api/similar", "GET /api/value", "GET /api/backlinks"} or "/dashboard/episode/" in route:
            continue  # of an episode that is named
        method, path = route.split()
        sent = {"json": given} if method == "POST" else {"params": given}
        reply = httpx.request(method, planted.base + path, follow_redirects=True, timeout=60, **sent)
        assert reply.status_code == 200, (route, reply.text)
        is_named = given.get("project") == OPEN  # who names the project sees what a private source says in it
        assert is_named or SECRET not in reply.text.casefold(), route
    for state in State:
        page = httpx.get(f"{planted.base}/api/proposals", params={"state": state, "limit": 200}, timeout=60).text
        assert SECRET not in page
    assert "lighthouse" in httpx.get(f"{planted.base}/api/proposals", timeout=60).text


def test_page_of_an_open_episode_names_no_private_proposal(planted: Sidecar) -> None:
    store = planted.services.store
    texts = store.episodes.get(["open0", "hidden0"])
    evidence = tuple(Evidence(name, texts[name].raw_exchange) for name in texts)
    both = replace(
        propose_lesson(store, "open2", OPEN), evidence=evidence, target="both", title=texts["hidden0"].raw_exchange
    )
    assert store.proposals.propose(both).new == 1
    page = httpx.get(f"{planted.base}/dashboard/episodes/open0", timeout=60).text
    assert SECRET not in page.casefold()
    assert "Proposals that quote it" in page
    own = httpx.get(f"{planted.base}/dashboard/episodes/hidden0", timeout=60).text
    assert SECRET in own[own.index("Proposals that quote it") :]


def test_hooks_and_tools_tell_nothing_of_it(planted: Sidecar) -> None:
    for event in ("session-start", "prompt"):
        told = {
            "session_id": "s",
            "cwd": "/srv/harbour",
            "prompt": "When do we deploy, and where does the database run?",
        }
        asked = [sys.executable, str(HOOK), event, planted.base]
        done = subprocess.run(asked, input=json.dumps(told), capture_output=True, text=True, check=True)
        assert SECRET not in done.stdout.casefold(), event
    client = Client("http", planted.port, folder="/srv/harbour")
    assert SECRET not in client.call("status").casefold()
    assert SECRET not in client.call("search", query="where does the database run").casefold()


def test_commands_tell_nothing_of_it(planted: Sidecar) -> None:
    for command in ("dream list", "dream list --json", "topics", "topics --json", "lessons", "drift", "status"):
        told = CliRunner().invoke(app, command.split())
        assert SECRET not in told.output.casefold(), command


def test_assets_and_indexes_tell_nothing_of_it(planted: Sidecar) -> None:
    resources = {"memory": MemoryResource(), "embedding_pool": EmbeddingPoolResource()}
    told = ""
    for job in ("dream", "review"):
        done = defs.resolve_job_def(job).execute_in_process(resources=resources, raise_on_error=False)
        told += _metadata_of(done)
    done = dg.materialize([memory_index], resources={"memory": resources["memory"]})
    told += _metadata_of(done)
    close_kept()
    assert "lighthouse" in told
    assert SECRET not in told.casefold()
    open_index = next(planted.home.glob("topics/x%2Fharbour/MEMORY.md")).read_text()
    assert "lighthouse" in open_index
    assert SECRET not in open_index.casefold()
    own = next(planted.home.glob(f"topics/*{SECRET}/MEMORY.md")).read_text()
    assert SECRET in own
    assert "lighthouse" not in own


def _metadata_of(done: dg.ExecuteInProcessResult) -> str:
    events = [str(event.event_specific_data) for event in done.all_events]
    return "\n".join(events)

"""What is private is hidden in every way in, unless it is named or asked for from inside."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.pipeline.projects import SEEN
from anamnesis_pipeline.pipeline.source_specs import put_specs, remove_spec
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import built_in, open_crawler
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.wiring import effective_settings, open_pipeline
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec
from anamnesis_tests.sidecar.conftest import know_the_unrelated
from anamnesis_tests.sidecar.mcp.conftest import Client, Sidecar

ASKED = "why did the quagga retry charge twice"
OPEN = "The quagga retry did charge twice in the open harbour, since no key was sent."
SECRET = "The quagga retry did charge twice in the wombat vault, since no idempotency key was sent."
HOOK = Path(__file__).parents[3] / "plugin" / "hooks" / "anamnesis_hook.py"


@dataclass(frozen=True)
class Place:
    """Who asks: from a folder, and for a project by name."""

    folder: str | None = None
    project: str | None = None


@dataclass(frozen=True)
class Vault:
    """A running memory with an open text and a private one, which is of the project `label`."""

    sidecar: Sidecar
    folder: Path
    label: str

    def get(self, path: str, **params: Any) -> str:
        reply = httpx.get(f"{self.sidecar.base}{path}", params=params, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.text

    def post(self, path: str, body: dict[str, Any]) -> str:
        reply = httpx.post(f"{self.sidecar.base}{path}", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.text

    def client(self, place: Place) -> Client:
        return Client("http", self.sidecar.port, folder=quote(place.folder) if place.folder else None)


def of_project(sidecar: Sidecar, folder: Path) -> None:
    sidecar.post(SECRET, project=str(folder), episode_id="secret")
    sidecar.services.store.settings.set("config.private_projects", [str(folder)])
    sidecar.services.store.settings.set(SEEN + str(folder), str(folder))  # as a session in it is ingested


def crawl(sidecar: Sidecar, *specs: SourceSpec) -> None:
    """One look at these sources, and a run of each; what is read gets its vectors."""
    store = sidecar.services.store
    settings = effective_settings(store).model_copy(update={"log_roots": (sidecar.home / "no-logs",)})
    put_specs(store.settings, specs, built_in(settings), settings.machine)
    look(open_crawler(settings, store, lasting=False), datetime.now(UTC), everything=True)
    ingest_all(open_pipeline(settings, store), [s for s in store.files.sources() if s.kind != "reserved"])
    sidecar.services.poster.embed([item["episode_id"] for item in listed(sidecar)])


def listed(sidecar: Sidecar) -> list[dict[str, Any]]:
    params = {"include_private": "*", "limit": 100}
    items: list[dict[str, Any]] = httpx.get(f"{sidecar.base}/api/episodes", params=params).json()["items"]
    return items


def of_source(sidecar: Sidecar, folder: Path, **spec: Any) -> None:
    (folder / "notes.md").write_text(f"# Quagga and wombat\n\n{SECRET}\n")
    crawl(sidecar, SourceSpec("vault", DOCUMENTS, str(folder), **{"private": True, **spec}))


def of_source_with_project(sidecar: Sidecar, folder: Path) -> None:
    of_source(sidecar, folder, project="acme/money")


KINDS = {"project": of_project, "source": of_source, "source of a project": of_source_with_project}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outside of the home, nothing of which is crawled."""
    (folder := tmp_path_factory.mktemp("crawled") / "vault").mkdir()
    return folder


@pytest.fixture(params=KINDS)
def vault(request: pytest.FixtureRequest, sidecar: Sidecar, folder: Path) -> Vault:
    know_the_unrelated(sidecar.services.store)
    sidecar.post(OPEN, project="x/y", episode_id="open")
    KINDS[request.param](sidecar, folder)
    label = next(item["project"] for item in listed(sidecar) if "wombat" in json.dumps(item))
    return Vault(sidecar, folder, label)


def by_http_search(vault: Vault, place: Place) -> str:
    body = {"query": ASKED, "min_score": 0, "project": place.project}
    return vault.post("/api/episodes/search", body)


def by_list(vault: Vault, place: Place) -> str:
    return vault.get("/api/episodes", **named(place))


def named(place: Place, **both: str) -> dict[str, str]:
    """The fields that a place gives, by these names."""
    given = {"project": place.project, **({both["folder"]: place.folder} if both else {})}
    return {name: value for name, value in given.items() if value}


def by_context(vault: Vault, place: Place) -> str:
    return vault.post("/api/context", {"query": ASKED, **named(place, folder="cwd")})


def by_session_start(vault: Vault, place: Place) -> str:
    return vault.post("/api/context", {"source": "startup", **named(place, folder="cwd")})


def by_hook(vault: Vault, place: Place) -> str:
    event = {"prompt": ASKED, **({"cwd": place.folder} if place.folder else {})}
    asked = [sys.executable, str(HOOK), "prompt", vault.sidecar.base]
    return subprocess.run(asked, input=json.dumps(event), capture_output=True, text=True, check=True).stdout


def by_mcp_search(vault: Vault, place: Place) -> str:
    return vault.client(place).call("search", query=ASKED, **named(place))


def by_mcp_recent(vault: Vault, place: Place) -> str:
    return vault.client(place).call("search", **named(place))


def by_mcp_timeline(vault: Vault, place: Place) -> str:
    return vault.client(place).call("timeline", **named(place))


def by_mcp_status(vault: Vault, place: Place) -> str:
    project = place.project or ("current" if place.folder else None)
    if project == "all":  # a hand-off is of one project
        project = None
    return vault.client(place).call("status", **({"project": project} if project else {}))


def by_mcp_remember(vault: Vault, place: Place) -> str:
    """An id of the private text would be told as one that is much like it."""
    (secret,) = [item["episode_id"] for item in listed(vault.sidecar) if "wombat" in json.dumps(item)]
    return vault.client(place).call("remember", text=SECRET).replace(secret, "wombat")


Way = Callable[[Vault, Place], str]
BY_NAME: tuple[Way, ...] = (
    by_http_search,
    by_list,
    by_context,
    by_session_start,
    by_mcp_search,
    by_mcp_recent,
    by_mcp_timeline,
    by_mcp_status,
)
FROM_FOLDERS: tuple[Way, ...] = (
    by_context,
    by_hook,
    by_session_start,
    by_mcp_search,
    by_mcp_recent,
    by_mcp_timeline,
    by_mcp_status,
)
OF_ALL: tuple[Way, ...] = (by_mcp_search, by_mcp_recent, by_mcp_timeline)
PLAIN: tuple[Way, ...] = (by_http_search, by_list, *FROM_FOLDERS)


def holds(answer: str) -> bool:
    return "wombat" in answer


def test_from_elsewhere_nothing_private_is_shown(vault: Vault) -> None:
    (alike := vault.folder.parent / "other" / "vault").mkdir(parents=True)
    places = [Place(), Place("/srv/other"), Place(str(alike)), Place(str(vault.folder.parent))]
    for place in places:
        assert [way.__name__ for way in PLAIN if holds(way(vault, place))] == [], place
    for folder in ("/srv/other", str(alike)):
        assert [way.__name__ for way in OF_ALL if holds(way(vault, Place(folder, "all")))] == [], folder
    assert "open harbour" in by_mcp_search(vault, Place("/srv/other", "all"))


def test_by_name_what_is_private_is_shown(vault: Vault) -> None:
    for place in (Place(project=vault.label), Place("/srv/other", vault.label)):
        silent = {by_session_start, by_mcp_status}  # they tell what documents hold only if it was written to be told
        assert [way.__name__ for way in BY_NAME if way not in silent and not holds(way(vault, place))] == []


def test_from_inside_what_is_private_is_shown(vault: Vault) -> None:
    (deep := vault.folder / "deep").mkdir()
    ways = (by_context, by_hook, by_mcp_search, by_mcp_recent, by_mcp_timeline)
    for folder in (vault.folder, deep):
        assert [way.__name__ for way in ways if not holds(way(vault, Place(str(folder))))] == []
        assert [way.__name__ for way in OF_ALL if not holds(way(vault, Place(str(folder), "all")))] == []


def test_open_project_is_not_inside_a_private_source(sidecar: Sidecar, folder: Path) -> None:
    know_the_unrelated(sidecar.services.store)
    sidecar.post(OPEN, project="/srv/money", episode_id="open")
    of_source(sidecar, folder, project="/srv/money")
    vault, ways = Vault(sidecar, folder, "/srv/money"), (*FROM_FOLDERS, by_mcp_remember)
    assert [way.__name__ for way in ways if holds(way(vault, Place("/srv/money")))] == []
    assert "open harbour" in by_mcp_search(vault, Place("/srv/money"))
    for way in (by_context, by_mcp_search, by_mcp_timeline):
        assert holds(way(vault, Place("/srv/money", project="/srv/money"))), way
        assert holds(way(vault, Place(str(folder)))), way


def test_pages_and_figures_show_what_is_private_only_on_demand(vault: Vault) -> None:
    for path in ("/api/dashboard/stats", "/dashboard", "/dashboard/episodes", "/dashboard/timeline"):
        assert not holds(vault.get(path)), path
    assert not holds(vault.get("/api/similar", episode_id="open"))
    for path in ("/dashboard/episodes", "/dashboard/timeline"):
        assert holds(vault.get(path, private="on")), path
        assert holds(vault.get(path, project=vault.label)), path


def test_an_id_is_a_name_and_its_neighbours_are_none(vault: Vault) -> None:
    (secret,) = [item["episode_id"] for item in listed(vault.sidecar) if item["project"] == vault.label]
    assert holds(vault.client(Place("/srv/other")).call("read", ids=[secret]))


def test_neighbours_in_a_session_leave_out_what_is_private(sidecar: Sidecar) -> None:
    store = sidecar.services.store
    for minute, (name, project) in enumerate((("before", "x/y"), ("plan", "x/y"), ("wombat", "x/vault"))):
        at = datetime(2026, 3, 1, 10, minute, tzinfo=UTC)
        said = Episode(name, "logs", at, "mac", project, "exchange", f"zeppelin {name}", "", session_id="5e55")
        store.episodes.put([(said, [])])
    store.settings.set("config.private_projects", ["x/vault"])
    client = Client("http", sidecar.port)
    read = client.call("read", ids=["plan"], around=2)
    assert "zeppelin before" in read
    assert not holds(read)
    assert holds(client.call("timeline", session="5e55")), "whoever names the session means it"


def test_a_question_about_what_is_private_is_not_remembered(vault: Vault) -> None:
    by_http_search(vault, Place(project=vault.label))
    assert json.loads(vault.get("/api/queries"))["queries"] == 0


@pytest.mark.parametrize("private", [True, False])
def test_a_removed_source_stays_as_private_as_it_was(sidecar: Sidecar, folder: Path, private: bool) -> None:
    of_source(sidecar, folder, private=private)
    remove_spec(sidecar.services.store.settings, "vault")
    vault = Vault(sidecar, folder, str(folder))
    for way in (by_http_search, by_list, by_mcp_search):
        assert holds(way(vault, Place())) is not private, way
    assert holds(by_http_search(vault, Place(project=str(folder))))


def test_a_source_can_be_named_itself(sidecar: Sidecar, folder: Path) -> None:
    of_source(sidecar, folder)
    vault = Vault(sidecar, folder, str(folder))
    assert holds(vault.get("/api/episodes", include_private="vault"))
    assert not holds(vault.get("/api/episodes", include_private="other"))


def test_a_project_of_the_same_name_is_not_inside_a_private_one(sidecar: Sidecar) -> None:
    sidecar.post("zeppelin wombat", project="acme/api")
    sidecar.services.store.settings.set("config.private_projects", ["acme/api"])
    sidecar.post("zeppelin harbour", project="api")
    client = Client("http", sidecar.port, folder="/srv/api")
    for named in ({}, {"project": "all"}, {"project": "api"}):
        assert not holds(client.call("search", query="zeppelin", **named)), named
    assert "zeppelin wombat" in client.call("search", query="zeppelin", project="acme/api")

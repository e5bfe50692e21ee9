"""Topics and pointers over HTTP and on their page."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.store.base import Store
from anamnesis_tests.sidecar.conftest import TestServices, problem
from anamnesis_tests.support.page_reading import PAGE, SCRIPT, page_of
from anamnesis_tests.support.topics import SHOP, put_pinned, put_topic

BACKUPS = {"keyword": "backups", "category": "infrastructure", "machine": "nas", "path": "/srv/b", "instance": "mac"}


@pytest.fixture
def store(services: TestServices) -> Store:
    held = services.store
    put_topic(
        held,
        "/c/memory/topics/deploys.md",
        f"# Deploys\n\nHow {SCRIPT} goes live.",
        "## Day\n\n- Thursday.<!-- sources: e -->",
    )
    put_topic(held, "/c/memory/topics/lessons.md", "# Lessons\n\n- Port in use\n  - Fixed by: stop it", title="Lessons")
    put_pinned(held, "german", "Answer in German.")
    return held


def pointers(client: TestClient, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/pointers", params=asked).json()["items"]
    return found


def test_topics_of_a_project_come_with_its_index(client: TestClient, store: Store) -> None:
    body = client.get("/api/topics", params={"project": "shop"}).json()
    assert [(each["name"], each["text"], each["project"]) for each in body["topics"]] == [
        ("deploys", None, SHOP),
        ("lessons", None, SHOP),
    ]
    assert [(each["goes_wrong"], each["fixed_by"]) for each in body["lessons"]] == [("Port in use", "stop it")]
    assert [each["text"] for each in body["pinned"]] == ["Answer in German."]
    assert body["index"].startswith("# Memory of acme/shop\n")
    (topic,) = client.get("/api/topics", params={"project": "shop", "name": "deploys"}).json()["topics"]
    assert topic["text"].endswith("## Day\n\n- Thursday.<!-- sources: e -->\n")
    assert client.get("/api/topics", params={"project": "none"}).json()["topics"] == []


def test_pointer_is_merged_by_keyword_and_category(client: TestClient, services: TestServices) -> None:
    made = client.post("/api/pointers", json=BACKUPS | {"extra": {"port": 22}}).json()
    assert (made["project"], made["machine"], made["extra"]) == ("general", "nas", {"port": 22})
    assert client.post("/api/pointers", json=BACKUPS).json()["episode_id"] == made["episode_id"]
    change = {"keyword": "Backups", "category": "infrastructure", "description": "nightly"}
    client.post("/api/pointers", json=change)
    (now,) = pointers(client)
    assert (now["path"], now["extra"], now["description"], now["instance"]) == (
        "/srv/b",
        {"port": 22},
        "nightly",
        services.settings.machine,
    )
    client.post("/api/pointers", json=change | {"category": "technical"})
    client.post("/api/pointers", json=BACKUPS)
    assert len(pointers(client)) == 2
    back = client.post("/api/pointers", json=change | {"description": ""}).json()
    assert (back["description"], back["episode_id"] == made["episode_id"]) == ("", False)


def test_pointers_of_a_project_and_of_all_are_listed(client: TestClient) -> None:
    for project in ("general", "acme/shop", "acme/other"):
        client.post("/api/pointers", json=BACKUPS | {"project": project})
    assert {each["project"] for each in pointers(client, project="shop")} == {"general", "acme/shop"}
    assert len(pointers(client)) == 3


def test_deleted_pointers_are_gone_with_their_versions(client: TestClient, services: TestServices) -> None:
    for path in ("/a", "/b"):
        client.post("/api/pointers", json=BACKUPS | {"path": path})
    client.post("/api/pointers", json=BACKUPS | {"keyword": "vpn"})
    reply = client.delete("/api/pointers", params={"keyword": ["BACKUPS", "none"]})
    assert len(reply.json()["deleted"]) == 1
    assert [each["keyword"] for each in pointers(client)] == ["vpn"]
    assert client.delete("/api/pointers", params={"keyword": "vpn", "category": "personal"}).json() == {"deleted": []}
    problem(client.delete("/api/pointers"), 422)


def test_secret_in_a_pointer_is_masked(client: TestClient) -> None:
    secret = "ghp" + "_" + "q7Zk" * 9
    made = client.post("/api/pointers", json=BACKUPS | {"description": f"token {secret}"})
    assert secret not in made.text


def test_page_shows_what_holds_and_one_topic(client: TestClient, store: Store) -> None:
    client.post("/api/pointers", json=BACKUPS)
    text = page_of(client.get("/dashboard/topics", headers=PAGE)).get_text(" ", strip=True)
    for words in ("Deploys", "Port in use", "Answer in German.", "nas:/srv/b", "/c/memory/topics/deploys.md"):
        assert words in text
    assert "Thursday" not in text
    shown = page_of(client.get("/dashboard/topics", params={"project": SHOP, "name": "deploys"}, headers=PAGE))
    assert "Thursday." in shown.get_text()
    assert SCRIPT in shown.get_text()
    assert "sources:" not in shown.get_text()
    assert not shown.select("main script")
    empty = client.get("/dashboard/topics", params={"project": "none"}, headers=PAGE)
    assert "No topic passes these filters." in empty.text
    assert client.get("/dashboard/topics", params={"project": "x" * 300}, headers=PAGE).status_code == 422

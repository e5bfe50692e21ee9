"""Entities over HTTP and on their page."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, Mention, Relation
from anamnesis_tests.sidecar.conftest import TestServices, problem
from anamnesis_tests.support.mentioned import SHOP, file, touch
from anamnesis_tests.support.page_reading import PAGE, SCRIPT, page_of, problem_of, read

PATH = "/dashboard/entities"
PAY = {"kind": "file", "name": "src/pay.py"}


@pytest.fixture
def store(services: TestServices) -> Store:
    held = services.store
    touch(held, "one", file("src/pay.py"), Entity(EntityKind.ERROR, SCRIPT))
    touch(held, "two", file("src/pay.py"), file("src/billing.py"), minute=5)
    return held


def listed(client: TestClient, **asked: Any) -> list[tuple[str, int]]:
    found = client.get("/api/entities", params=asked).json()["items"]
    return [(each["name"], each["mentions"]) for each in found]


def test_entities_are_listed_with_counts_of_kinds(client: TestClient, store: Store) -> None:
    assert listed(client, kind="file", project="shop") == [("src/pay.py", 2), ("src/billing.py", 1)]
    assert client.get("/api/entities", params={"kind": "file"}).json()["kinds"] == {"file": 2, "error": 1}
    assert listed(client, query="biling.py") == [("src/billing.py", 1)]
    assert listed(client, limit=1) == [("src/pay.py", 2)]
    assert listed(client, project="none") == []
    none = client.get("/api/entities", params={"query": "biling.py", "kind": "url"}).json()
    assert (none["items"], none["is_close"], none["kinds"]) == ([], False, {"file": 1})


def test_timeline_and_graph_of_a_thing(client: TestClient, store: Store) -> None:
    body = client.get("/api/entities/timeline", params={"name": "pay.py"}).json()
    assert body["entity"] == {**PAY, "mentions": 2, "projects": [SHOP], "aliases": []}
    assert [(each["episode_id"], each["relations"]) for each in body["items"]] == [
        ("one", ["edited"]),
        ("two", ["edited"]),
    ]
    graph = client.get("/api/entities/graph", params=PAY).json()
    assert graph["nodes"][0] == {**PAY, "hops": 0}
    assert len(graph["nodes"]) == 3
    assert {(edge["relation"], edge["evidence"]) for edge in graph["edges"]} == {("co_occurs", 1)}
    assert "similar: src/pay.py" in problem(client.get("/api/entities/graph", params={"name": "pya.py"}), 404)["detail"]
    unlike = problem(client.get("/api/entities/timeline", params={"name": "zzzz"}), 404)["detail"]
    assert unlike == "nothing known has this name, nor a similar one"
    nowhere = problem(client.get("/api/entities/timeline", params=PAY | {"project": "none"}), 404)["detail"]
    assert nowhere == "no project has this name"


def test_names_are_decided_and_taken_back(client: TestClient, store: Store) -> None:
    assert client.post("/api/entities/alias", json=PAY | {"alias": "the till"}).json() == PAY
    assert client.get("/api/entities/timeline", params={"name": "The Till"}).json()["entity"]["name"] == "src/pay.py"
    merged = client.post("/api/entities/merge", json=PAY | {"into": "src/billing.py", "project": "shop"}).json()
    assert merged == {"kind": "file", "name": "src/billing.py"}
    assert listed(client, kind="file") == [("src/billing.py", 3)]
    assert problem(client.post("/api/entities/type", json=PAY | {"to": "tool", "project": "none"}), 404)
    assert client.delete("/api/entities/alias", params=PAY).json() == {"project": SHOP}
    assert client.post("/api/entities/type", json=PAY | {"to": "tool"}).json() == {"kind": "tool", "name": "src/pay.py"}
    assert listed(client, kind="tool") == [("src/pay.py", 2)]
    circle = {"kind": "tool", "name": "src/pay.py", "alias": "src/PAY.py"}
    assert "delete that alias first" in problem(client.post("/api/entities/alias", json=circle), 409)["detail"]


def test_secret_in_an_alias_is_masked(client: TestClient, store: Store) -> None:
    client.post("/api/entities/alias", json=PAY | {"alias": "key ghp_Zx8kQ2mN4vB7cD1fG3hJ5kL9pR6tY0wA2sE4"})
    assert "ghp_" not in client.get("/api/entities", params={"query": "src/pay.py"}).text


def test_backlinks_of_an_episode(client: TestClient, store: Store) -> None:
    (found,) = client.get("/api/backlinks", params={"episode_id": "one"}).json()["items"]
    assert (found["episode_id"], found["shared"]) == ("two", [PAY])
    problem(client.get("/api/backlinks", params={"episode_id": "none"}), 404)


def test_groups_of_things(client: TestClient, store: Store) -> None:
    touch(store, "three", *(file(f"web/{name}.ts") for name in "abc"))
    found = client.get("/api/entities/groups", params={"project": "shop"}).json()["groups"]
    assert ["web/a.ts", "web/b.ts", "web/c.ts"] in [[each["name"] for each in group] for group in found]


def test_private_things_are_on_demand_everywhere(client: TestClient, store: Store) -> None:
    touch(store, "hidden", file("diary.md"), file("src/pay.py"), project="me/diary")
    store.settings.set("config.private_projects", ["diary"])
    asked = {"name": "src/pay.py", "groups": "1", "of": "file"}
    for path in ("/api/entities", "/api/entities/timeline", "/api/entities/graph", "/api/entities/groups", PATH):
        reply = client.get(path, params=asked)
        assert reply.status_code == 200
        assert "diary" not in reply.text.replace('name="private"', "")
    assert "diary" not in client.get("/api/backlinks", params={"episode_id": "one"}).text
    assert "diary" not in problem(client.get("/api/entities/graph", params={"name": "diray.md"}), 404)["detail"]
    problem(client.post("/api/entities/alias", json={"kind": "file", "name": "diary.md", "alias": "x"}), 404)
    assert ("diary.md", 1) in listed(client, project="diary")
    assert ("diary.md", 1) in listed(client, include_private="diary")
    assert "diary.md" in client.get(PATH, params={"private": "1"}).text


def test_page_lists_things_and_opens_one(client: TestClient, store: Store) -> None:
    page = read(client, PATH)
    assert [each.get_text(" ", strip=True) for each in page.select(".chips a")] == ["all 3", "file 2", "error 1"]
    link = str(page.select("#things a")[0]["href"])
    opened = page_of(client.get(link, headers=PAGE))
    assert opened.select_one("#thing h2 code").text == "src/pay.py"  # type: ignore[union-attr]
    assert len(opened.select("#timeline li")) == 2
    assert len(opened.select("svg.graph circle")) == 3
    assert {each.text for each in opened.select("#related code")} == {"src/billing.py", SCRIPT}
    assert "nothing known has this name" in problem_of(read(client, PATH, 404, name="nope"))
    assert "kind" in problem_of(read(client, PATH, 422, kind="nope"))


def test_page_edits_names_and_says_why_not(client: TestClient, store: Store) -> None:
    form = {**PAY, "to": "file", "asked": "kind=file&name=src%2Fpay.py", "project": SHOP}
    named = client.post(PATH, data={**form, "action": "alias", "value": "the till"}, headers=PAGE)
    assert "kind=file" in str(named.url)
    assert [each.text for each in page_of(named).select("#aliases code")] == ["the till"]
    refused = client.post(PATH, data={**form, "action": "merge", "value": "nope"}, headers=PAGE)
    assert "Nothing was changed: nothing known has this name" in problem_of(page_of(refused, 404))
    changed = client.post(PATH, data={**form, "action": "type", "to": "tool"}, headers=PAGE)
    assert page_of(changed).select_one("#thing h2 .kind").text == "tool"  # type: ignore[union-attr]
    back = {**form, "kind": "tool", "action": "remove", "value": "src/pay.py"}
    assert client.post(PATH, data=back, headers=PAGE).status_code == 404  # no tool is called so any more
    assert listed(client, kind="tool") == []
    page_of(client.post(PATH, data={**form, "action": "alias", "value": " "}, headers=PAGE), 422)


def test_page_hides_a_deletion_that_waits(client: TestClient, store: Store) -> None:
    client.post("/dashboard/episode/delete", data={"episode_id": "one"})
    page = read(client, PATH, name="src/pay.py")
    assert "Say one" not in page.text


def test_page_of_an_episode_links_its_things(client: TestClient, store: Store) -> None:
    page = read(client, "/dashboard/episodes/one")
    (address,) = (str(each["hx-get"]) for each in page.select("#related"))
    found = page_of(client.get(address, headers=PAGE))
    assert [each.text.strip() for each in found.select("a.tag")] == ["file src/pay.py", f"error {SCRIPT}"]
    assert [each["href"] for each in found.select("li a")] == ["/dashboard/episodes/two"]
    assert read(client, str(found.select("a.tag")[0]["href"])).select_one("#thing") is not None


def test_deciding_the_same_again_changes_nothing(client: TestClient, store: Store) -> None:
    for _ in range(2):
        assert client.post("/api/entities/alias", json=PAY | {"alias": "till"}).json() == PAY
        into = client.post("/api/entities/merge", json=PAY | {"into": "src/billing.py"}).json()
        assert into["name"] == "src/billing.py"
        assert client.delete("/api/entities/alias", params=PAY).status_code == 200
    assert len(store.entities.names().all()) == 1


def test_error_is_shown_as_its_line_but_never_as_a_private_one(client: TestClient, store: Store) -> None:
    for name, project in (("open", SHOP), ("hidden", "me/diary")):
        line = f"fatal: cannot open /{name}/{name}.db: no such file"
        touch(store, name, mention("open such file", line, name, project), project=project)
    store.settings.set("config.private_projects", ["diary"])
    (listed_one,) = client.get("/api/entities", params={"query": "such"}).json()["items"]
    assert (listed_one["label"], listed_one["mentions"]) == ("fatal: cannot open open.db: no such file", 1)
    page = read(client, PATH, name="open such file", of="error")
    assert page.select_one("#thing h2 code").text == "fatal: cannot open open.db: no such file"  # type: ignore[union-attr]
    assert "hidden.db" not in page.text


def mention(name: str, line: str, episode_id: str, project: str) -> Mention:
    return Mention(EntityKind.ERROR, name, Relation.FAILED, episode_id, project, detail=line)


def test_thing_is_not_merged_into_itself(client: TestClient, store: Store) -> None:
    for into in ("src/pay.py", "SRC/pay.py"):
        refused = problem(client.post("/api/entities/merge", json=PAY | {"into": into}), 409)
        assert refused["detail"] == "a thing cannot be merged into itself; name another one"
    client.post("/api/entities/alias", json=PAY | {"alias": "till"})
    problem(client.post("/api/entities/merge", json=PAY | {"into": "till"}), 409)
    assert client.post("/api/entities/merge", json=PAY | {"name": "till", "into": "src/pay.py"}).json() == PAY

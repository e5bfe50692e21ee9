"""Many episodes are changed in one call: what is selected, previewed, done, and fails alone."""

from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from anamnesis_pipeline.services.editing import BulkEditIn
from anamnesis_tests.sidecar.conftest import Post, TestServices, know_the_unrelated

ADD = {"action": "add_tags", "tags": ["blue"]}


def edited(client: TestClient, change: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    reply = client.post("/api/episodes/bulk/edit", json={"change": change, **wanted})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def fields(client: TestClient, name: str) -> tuple[list[str], str]:
    body = client.get(f"/api/episodes/{name}").json()
    return body["tags"], body["status"]


def test_what_a_search_finds_is_tagged_after_a_dry_run(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar burns", episode_id="a")
    post("The lighthouse keeper sleeps", episode_id="b")
    told = edited(client, ADD, query="zeppelin hangar", limit=1)
    assert (told["dry_run"], told["matched"], told["changed"]) == (True, 1, 1)
    assert [(each["episode_id"], each["changes"]) for each in told["shown"]] == [("a", {"tags": ["blue"]})]
    assert fields(client, "a") == ([], "active")
    assert edited(client, ADD, query="zeppelin hangar", limit=1, dry_run=False)["changed"] == 1
    assert (fields(client, "a")[0], fields(client, "b")[0]) == (["blue"], [])
    assert edited(client, ADD, query="zeppelin hangar", limit=1, dry_run=False)["unchanged"] == 1


def test_weak_hits_of_a_search_are_not_edited(client: TestClient, services: TestServices, post: Post) -> None:
    know_the_unrelated(services.store)
    post("The zeppelin hangar burns", episode_id="a")
    post("The lighthouse keeper sleeps", episode_id="b")
    assert edited(client, ADD, query="zeppelin hangar burns")["matched"] == 1


def test_filters_select_page_by_page(client: TestClient, post: Post) -> None:
    for number in range(5):
        post(f"Number {number}", episode_id=f"e{number}", kind="odd", timestamp=f"2026-03-0{number + 1}T12:00:00Z")
    first = edited(client, {"action": "pin"}, kind=["odd"], limit=3, dry_run=False)
    assert (first["matched"], first["selected"], first["changed"]) == (5, 3, 3)
    rest = edited(client, {"action": "pin"}, kind=["odd"], limit=3, cursor=first["next_cursor"], dry_run=False)
    assert (rest["selected"], rest["changed"], rest["next_cursor"]) == (2, 2, None)
    assert [fields(client, f"e{number}")[0] for number in range(5)] == [["pinned"]] * 5


def test_one_that_fails_stops_no_other(client: TestClient, post: Post) -> None:
    post("Full", episode_id="a", tags=[f"t{n}" for n in range(50)])
    post("Free", episode_id="b")
    for dry_run in (True, False):
        told = edited(client, ADD, ids=["a", "gone", "b"], dry_run=dry_run)
        assert (told["changed"], sorted(told["failed"])) == (1, ["a", "gone"])
    assert fields(client, "b")[0] == ["blue"]


def test_statuses_change_with_a_reason_and_come_back(client: TestClient, post: Post) -> None:
    for name in ("a", "b", "new"):
        post(f"We deploy, says {name}", episode_id=name, kind="odd")
    why = {"action": "invalidate", "reason": "measured again"}
    assert edited(client, why, ids=["a", "b"], by="Ada", dry_run=False)["changed"] == 2
    (change,) = client.get("/api/history", params={"episode_id": "a"}).json()["items"]
    assert (change["status"], change["reason"], change["by"]) == ("invalidated", "measured again", "Ada")
    back = {"action": "restore", "reason": "no, it holds"}
    told = edited(client, back, kind=["odd"], dry_run=False)
    assert (told["changed"], told["unchanged"]) == (2, 1)
    over = {"action": "supersede", "superseded_by": "new"}
    told = edited(client, over, ids=["a", "new"], dry_run=False)
    assert (told["changed"], told["failed"]) == (1, {"new": "it cannot stand for itself"})
    assert client.get("/api/episodes/a").json()["superseded_by"] == "new"
    missing = {"change": {**over, "superseded_by": "nowhere"}, "ids": ["b"]}
    assert client.post("/api/episodes/bulk/edit", json=missing).status_code == 404


def test_private_episodes_are_selected_by_name_alone(client: TestClient, services: TestServices, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["secret"])
    post("The safe", episode_id="a", project="secret", kind="odd")
    post("The door", episode_id="b", kind="odd")
    assert edited(client, ADD, kind=["odd"])["matched"] == 1
    assert edited(client, ADD, kind=["odd"], include_private=["*"])["matched"] == 2


@pytest.mark.parametrize("wanted", [{}, {"ids": ["a"], "project": "zoo"}, {"include_superseded": True}, {"ids": []}])
def test_all_that_is_stored_is_never_selected(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="say which episodes"):
        BulkEditIn.model_validate({"change": ADD, **wanted})

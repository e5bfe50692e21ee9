import json
from typing import Any

import pytest
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.web.episodes import PER_PAGE
from anamnesis_tests.sidecar.conftest import Post, TestServices, problem
from anamnesis_tests.support.page_reading import page_of, problem_of, read

PATH = "/dashboard/episodes"


def listed(client: TestClient, code: int = 200, address: str = PATH, **asked: str) -> BeautifulSoup:
    return read(client, address, code, **asked)


def ids(soup: BeautifulSoup) -> list[str]:
    return [str(box["value"]) for box in soup.select("[name=ids]")]


def act(client: TestClient, action: str, *chosen: str, **fields: str) -> tuple[BeautifulSoup, dict[str, Any]]:
    """The list that comes back, and the toast."""
    reply = client.post(PATH, data={"action": action, "ids": list(chosen), **fields}, headers={"HX-Request": "true"})
    return page_of(reply), json.loads(reply.headers["HX-Trigger"])["toast"]


def tags(client: TestClient, episode_id: str) -> list[str]:
    found: list[str] = client.get(f"/api/episodes/{episode_id}").json()["tags"]
    return found


def test_newest_come_first_and_older_ones_page_by_page(client: TestClient, post: Post) -> None:
    assert "anamnesis ingest" in listed(client).select_one(".empty").text
    assert not listed(client).select("[data-bulk]")
    count = PER_PAGE + 3
    for number in range(count):
        post(f"Number {number}", episode_id=f"e{number}", timestamp=f"2026-03-01T12:{number:02}:00Z", kind="odd")
    first = listed(client, kind="odd")
    assert ids(first) == [f"e{number}" for number in reversed(range(3, count))]
    older = str(first.select_one(".pager [rel=next]")["href"])
    assert "kind=odd" in older
    second = listed(client, address=older)
    assert ids(second) == ["e2", "e1", "e0"]
    assert second.select_one(".pager a")["href"] == f"{PATH}?kind=odd"
    assert second.select_one(".pager [rel=next]") is None


def test_what_is_remembered_takes_the_place_of_the_former(client: TestClient) -> None:
    form = listed(client).select_one("#remember")
    assert [each.text for each in form.select("#r-type option")][:2] == ["note", "decision"]

    def remember(**fields: str) -> str:
        reply = client.post(
            str(form.select_one("#remember-it")["hx-post"]), data=fields, headers={"HX-Request": "true"}
        )
        assert reply.status_code == 200
        return page_of(reply).text

    asked = {"type": "decision", "subject": "deploy day", "project": "shop"}
    assert "Would be kept in shop, novelty 1.00" in remember(text="We deploy on Friday", preview="true", **asked)
    assert "Kept in shop" in remember(text="We deploy on Friday", **asked)
    assert "Kept already in shop" in remember(text="We deploy on Friday", **asked)
    assert "in place of 1 former one" in remember(text="We deploy on Monday", **asked)
    assert "Kept in general" in remember(text="Tea is in the left cupboard")
    shown = listed(client, project="shop")
    assert len(ids(shown)) == 1
    assert "Monday" in shown.text
    assert client.post(f"{PATH}/remember", data={"text": "  "}).status_code == 422


def test_filters_narrow_the_list(client: TestClient, post: Post) -> None:
    given: dict[str, dict[str, Any]] = {
        "p": {"project": "other"},
        "i": {"instance": "pi"},
        "k": {"kind": "decision"},
        "t": {"tags": ["red"]},
        "n": {"timestamp": "2026-03-03"},
        "o": {"timestamp": "2026-01-01"},
        "s": {"kind": "old"},
    }
    for name, fields in given.items():
        post(f"Of {name}", episode_id=name, **{"timestamp": "2026-02-01", **fields})
    client.patch("/api/episodes/s", json={"status": "superseded"})
    asked = {
        "project=other": "p",
        "instance=pi": "i",
        "kind=decision": "k",
        "layer=semantic": "k",
        "tag=red": "t",
        "since=2026-03-02": "n",
        "until=2026-01-02": "o",
        "status=all&kind=old": "s",
        "kind=old": "",
        "project=&kind=+decision+": "k",
    }
    for query, found in asked.items():
        soup = listed(client, address=f"{PATH}?{query}")
        assert (ids(soup), bool(soup.select_one(".empty"))) == (list(found), not found), query


@pytest.mark.parametrize("path", [PATH, "/dashboard/timeline"])
@pytest.mark.parametrize(("status", "shown"), [("", {"new"}), ("all", {"old", "new"}), ("superseded", {"old"})])
def test_superseded_are_hidden_shown_or_alone(client: TestClient, post: Post, path: str, status: str, shown: set[str]):
    for name in ("new", "old"):
        post(f"The {name} plan for retries", episode_id=name)
    client.patch("/api/episodes/old", json={"status": "superseded", "superseded_by": "new"})
    page = read(client, path, status=status)
    links = {str(link["href"]).rpartition("/")[2] for link in page.select("main a[href^='/dashboard/episodes/']")}
    assert links == shown
    assert page.select_one("[name=status] option[selected]")["value"] == (status or "active")


def test_private_projects_are_shown_when_asked_for(services: TestServices, client: TestClient, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["diary"])
    post("Dear diary", episode_id="d", project="diary")
    post("Work", episode_id="w")
    assert ids(listed(client)) == ["w"]
    assert set(ids(listed(client, private="1"))) == {"d", "w"}


def test_what_is_not_understood_is_said_beside_the_form(client: TestClient) -> None:
    for asked in ({"since": "yesterday"}, {"cursor": "nonsense"}, {"status": "odd"}, {"layer": "odd"}):
        assert "Not understood" in problem_of(listed(client, 422, **asked))


def test_tags_are_added_removed_and_taken_back(client: TestClient, post: Post) -> None:
    post("One", episode_id="a", tags=["red"])
    post("Two", episode_id="b/c")
    soup, toast = act(client, "add_tags", "a", "b/c", "gone/away", tag=" blue ")
    assert (tags(client, "a"), tags(client, "b/c")) == (["red", "blue"], ["blue"])
    assert toast["text"] == "2 episodes tagged blue. 1 failed."
    failed = soup.select_one(".problem li")
    assert failed.text == "gone/away: it is gone"
    _, toast = act(client, "remove_tags", "a", "b/c", tag="red")
    assert toast["text"] == "1 episode without red."
    assert tags(client, "a") == ["blue"]
    client.post(toast["undo"])
    assert tags(client, "a") == ["red", "blue"]
    _, toast = act(client, "unpin", "a")
    assert toast == {"text": "Nothing to change.", "undo": None}


def test_episode_with_too_many_tags_fails_alone(client: TestClient, post: Post) -> None:
    post("One", episode_id="a", tags=[f"t{n}" for n in range(50)])
    post("Two", episode_id="b", kind="odd")
    here = listed(client, kind="odd").select_one("#chosen [name=asked]")["value"]
    soup, toast = act(client, "pin", "a", "b", asked=str(here))
    assert toast["text"] == "1 episode pinned. 1 failed."
    assert soup.select_one(".problem li a")["href"] == f"{PATH}/a"
    assert tags(client, "b") == ["pinned"]
    assert (ids(soup), len(soup.select("li.is-pinned .tag.pinned"))) == (["b"], 1), "of the same filters"
    assert len(soup.select(".pick[checked]")) == 1  # so that more can be done to the same
    assert soup.select_one("[hx-trigger='undone from:body']")["hx-get"] == f"{PATH}?kind=odd"
    assert client.post(toast["undo"]).json() == {"episodes": 1}
    assert tags(client, "b") == []


def test_deleting_asks_whether_the_text_stays_away(client: TestClient, post: Post) -> None:
    for name in "ab":
        post(f"The {name}{name}", episode_id=name)
    assert listed(client).select_one("#bulk-delete [name=exclude]").has_attr("checked")
    act(client, "delete", "a")
    soup, toast = act(client, "delete", "b", exclude="true")
    assert (ids(soup), toast["text"]) == ([], "1 episode deleted.")
    client.app.state.undo.delete_all()  # type: ignore[attr-defined]
    assert [entry["episode_id"] for entry in client.get("/api/blocklist").json()["items"]] == ["b"]


def test_what_is_missing_is_told(client: TestClient) -> None:
    for action, chosen, told in (
        ("pin", [], "Choose at least one"),
        ("add_tags", ["a"], "Name the tag"),
        ("remove_tags", ["a"], "Name the tag"),
    ):
        reply = client.post(PATH, data={"action": action, "ids": chosen, "tag": " "}, headers={"HX-Request": "true"})
        assert told in problem(reply)["detail"]


def test_failed_deletions_are_told_until_read(client: TestClient, post: Post) -> None:
    post("One", episode_id="a")
    client.app.state.undo._problems.append("a is not deleted: another process writes")  # type: ignore[attr-defined]
    assert "another process writes" in listed(client).select_one(".problem").text
    reply = client.post("/dashboard/deletion-problems", data={"asked": ""})
    assert "another process writes" not in reply.text
    assert ids(page_of(reply)) == ["a"]


def test_what_is_listed_is_downloaded_from_the_page(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a", project="zoo & co", kind="decision")
    post("The lighthouse", episode_id="b", project="zoo & co", kind="fact")
    post("The crane", episode_id="c", project="other", kind="decision")
    links = listed(client, type="decision", project="zoo & co").select("#exports a")
    assert [link.text for link in links] == ["JSON lines", "Markdown"]
    reply = client.get(str(links[0]["href"]))
    assert [json.loads(line)["episode_id"] for line in reply.text.splitlines()] == ["a"]
    assert "memory.jsonl" in reply.headers["content-disposition"]
    text = client.get(str(links[1]["href"]))
    assert text.headers["content-type"].startswith("text/markdown")
    assert text.text.startswith("## The zeppelin hangar\n")
    assert not listed(client, type="lesson").select("#exports a")
    everything = client.get("/api/export", params={"format": "jsonl"}).text.splitlines()
    assert len(everything) == 3


def test_all_listed_are_changed_after_a_preview(client: TestClient, post: Post) -> None:
    for name in "abc":
        post(f"Number {name}", episode_id=name, kind="odd", tags=["blue"] if name == "a" else [])
    post("Another", episode_id="d")
    form = listed(client, kind="odd").select_one("#all")
    fields = {"asked": str(form.select_one("[name=asked]")["value"]), "action": "add_tags", "tag": "blue"}
    address = str(form.select_one("#all-preview")["hx-post"])

    def asked(**more: str) -> tuple[str, str]:
        reply = client.post(address, data=fields | more, headers={"HX-Request": "true"})
        return " ".join(page_of(reply).text.split()), reply.headers.get("HX-Trigger", "")

    assert asked()[0].startswith("2 episodes would be tagged blue; 1 are so already.")
    assert tags(client, "b") == []
    _, trigger = asked(sure="true")
    assert [tags(client, name) for name in "abcd"] == [["blue"], ["blue"], ["blue"], []]
    client.post(json.loads(trigger)["toast"]["undo"])
    assert tags(client, "b") == []
    assert client.post(address, data={**fields, "action": "invalidate"}).status_code == 422
    _, trigger = asked(action="invalidate", reason="the odd ones are wrong", sure="true")
    history = client.get("/api/history", params={"episode_id": "c"}).json()
    assert "the odd ones are wrong" in str(history)
    assert not listed(client, kind="odd").select("[name=ids]")
    client.post(json.loads(trigger)["toast"]["undo"])
    assert ids(listed(client, kind="odd")) == ["c", "b", "a"]

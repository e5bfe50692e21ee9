import json
from typing import Any
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup
from httpx2 import Response
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.sidecar.web import episode as page_of_one
from anamnesis_pipeline.sidecar.web.episode_view import TEXT_BYTES, bars_of, shown_text
from anamnesis_tests.sidecar.conftest import Post, TestServices, problem, raising
from anamnesis_tests.sidecar.test_episodes import POSTED
from anamnesis_tests.support import samples
from anamnesis_tests.support.page_reading import PAGE, page_of, read


def opened(client: TestClient, episode_id: str, status: int = 200) -> BeautifulSoup:
    address = "/dashboard/episodes/" + quote(episode_id, safe="/:")
    reply = client.get(address, headers=PAGE)
    assert len(reply.content) < 200_000
    return page_of(reply, status)


def send(client: TestClient, action: str, episode_id: str, **fields: str) -> Response:
    data = {"episode_id": episode_id, **fields}
    return client.post(f"/dashboard/episode/{action}", data=data, headers={"HX-Request": "true"})


def act(client: TestClient, action: str, episode_id: str, **fields: str) -> tuple[BeautifulSoup, dict[str, Any]]:
    """The page's body that comes back, and the toast."""
    reply = send(client, action, episode_id, **fields)
    return page_of(reply), json.loads(reply.headers["HX-Trigger"])["toast"]


def refused(client: TestClient, action: str, episode_id: str, status: int, **fields: str) -> str:
    return str(problem(send(client, action, episode_id, **fields), status)["detail"])


def stored(client: TestClient, episode_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/episodes/{episode_id}", params={"include": "raw"}).json()
    return found


def form_of(soup: BeautifulSoup) -> dict[str, str]:
    """What the form for edits sends when nobody changes anything."""
    fields = soup.select("#edit [name]:not([name=episode_id])")
    return {str(f["name"]): f.text if f.name == "textarea" else str(f["value"]) for f in fields}


def test_the_page_has_all_that_is_known_of_an_episode(client: TestClient, post: Post) -> None:
    post(
        "The zeppelin hangar", episode_id="a/b?c#d e", raw_exchange="[User]\nWhy?", tags=["red"], metadata={"odd": [1]}
    )
    soup = opened(client, "a/b?c#d e")
    text = soup.select_one("#episode").text
    for told in ("a/b?c#d e", "acme", "mac", "note", "direct", "working", "routing", "active", "red", "odd", "[1]"):
        assert told in text
    assert soup.select_one("#text").text == "[User]\nWhy?"
    assert soup.select_one("#episode-id").text == "a/b?c#d e"
    assert {heading.text for heading in soup.select("h2")} >= {
        "Text",
        "Details",
        "Source",
        "Notes",
        "Similar",
        "Lineage",
        "Access",
        "Metadata",
        "Why it ranks as it does",
    }


def test_reading_the_page_counts_as_use_of_a_search(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a")
    client.post("/api/episodes/search", json={"query": "zeppelin"})
    opened(client, "a")
    assert client.get("/api/queries").json()["used"] == 1


@pytest.mark.parametrize("char", ["x", "'", "ä", "🙂"])
def test_a_long_text_comes_in_part_and_the_rest_when_asked_for(client: TestClient, post: Post, char: str) -> None:
    text = char * 70_000
    post("Long", episode_id="a", raw_exchange=text)
    soup = opened(client, "a")
    shown = soup.select_one("#text").text
    assert 0 < len(shown) < len(text)
    assert f"{len(shown):,} are here" in soup.select_one("#episode details summary").text
    address = str(soup.select_one("#text-part button")["hx-get"])
    whole = read(client, address)
    assert whole.select_one("#text").text == text


def test_as_much_of_a_text_is_shown_as_fits() -> None:
    assert shown_text("<" * 10) == ("<" * 10, True)
    cut, is_whole = shown_text("<" * TEXT_BYTES)
    assert (len(cut), is_whole) == (TEXT_BYTES // len("&lt;"), False)
    assert shown_text("") == ("", True)


def test_similar_episodes_have_a_percentage(
    client: TestClient, post: Post, services: TestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    post("The zeppelin hangar needs a new roof", episode_id="a")
    post("The zeppelin hangar needs a new door", episode_id="b")
    address = str(opened(client, "a").select_one("#similar")["hx-get"])
    soup = read(client, address)
    assert [link["href"] for link in soup.select("a")] == ["/dashboard/episodes/b"], "never the episode itself"
    similarity = client.get("/api/similar", params={"episode_id": "a"}).json()["items"][0]["similarity_score"]
    assert soup.select_one("b").text == f"{similarity:.0%}"
    act(client, "delete", "b")
    assert "Nothing else is near it" in client.get(address).text
    services.store.episodes.put([(samples.episode("new"), samples.passages("text"))])
    assert "still to be made" in client.get("/dashboard/episode/similar?episode_id=new").text
    busy = raising(StoreBusy("another process writes"))
    monkeypatch.setattr(page_of_one, "find_similar", busy)
    assert "another process writes" in client.get(address).text


def test_edit_writes_what_differs_and_can_be_undone(client: TestClient, post: Post) -> None:
    before = post("The zeppelin", episode_id="a", tags=["red", "blue"], metadata={"x": 1})
    form = form_of(opened(client, "a"))
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    _, toast = act(client, "edit", "a", **form | {"summary": f"The airship {secret}", "tags": "blue\r\n green \r\n"})
    after = stored(client, "a")
    assert after["summary"].startswith("The airship [REDACTED")
    assert (after["tags"], after["project"], after["metadata"]["x"]) == (["blue", "green"], "acme", 1)
    hits = client.post("/api/episodes/search", json={"query": "airship", "mode": "exact"}).json()["results"]
    assert [hit["episode_id"] for hit in hits] == ["a"]
    assert client.post(toast["undo"]).status_code == 200
    assert {**stored(client, "a"), "retrieval_count": 0, "last_retrieved": None, "raw_exchange": ""} == {
        **{name: value for name, value in before.items() if name not in POSTED},
        "raw_exchange": "",
    }


def test_edit_that_changes_nothing_or_too_late_writes_nothing(client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a", tags=["red, or blue"])
    form = form_of(opened(client, "a"))
    _, toast = act(client, "edit", "a", **form)
    assert toast == {"text": "Nothing changed.", "undo": None}
    assert client.get("/api/events", params={"kind": "edit"}).json()["counts"]["edit"] == 0
    for fields in ({"summary": " "}, {"project": ""}, {"kind": "k" * 51}, {"tags": "t" * 101}):
        assert refused(client, "edit", "a", 422, **form | fields)
    assert stored(client, "a")["summary"] == "The zeppelin"
    client.patch("/api/episodes/a", json={"summary": "The airship"})
    assert "open it again" in refused(client, "edit", "a", 409, **form | {"summary": "The balloon"})
    assert stored(client, "a")["summary"] == "The airship"


def test_episode_is_pinned_and_unpinned(client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a")
    soup, toast = act(client, "pin", "a")
    assert (stored(client, "a")["tags"], toast["text"]) == (["pinned"], "Pinned: it lasts.")
    assert soup.select_one("#pin")["aria-pressed"] == "true"
    assert "semantic, pinned" in soup.text
    _, toast = act(client, "pin", "a")
    assert (stored(client, "a")["tags"], toast["text"]) == ([], "Unpinned.")
    client.post(toast["undo"])
    assert stored(client, "a")["tags"] == ["pinned"]


def test_a_note_is_added_kept_masked_and_removed(client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a", metadata={"x": 1})
    act(client, "note", "a", note=" First \nline ")
    soup, toast = act(client, "note", "a", note="password=hunter2hunter2X9")
    notes = [each.text for each in soup.select(".note")]
    assert notes[0] == "First \nline"
    assert "hunter2" not in notes[1]
    assert soup.select("#episode time")
    client.post(toast["undo"])
    soup = opened(client, "a")
    assert len(soup.select(".note")) == 1
    hash_now = str(soup.select_one(".note").find_parent("li").select_one("[name=read_hash]")["value"])
    assert refused(client, "note/remove", "a", 422, number="7", read_hash=hash_now)
    soup, _ = act(client, "note/remove", "a", number="0", read_hash=hash_now)
    assert "No notes yet" in soup.text
    assert stored(client, "a")["metadata"] == {"x": 1}
    assert refused(client, "note", "a", 422, note="  ") == "Write the note first."


def test_notes_of_another_form_are_left_alone(client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a", metadata={"notes": "of a client"})
    assert "No notes yet" in opened(client, "a").text
    refused(client, "note", "a", 422, note="mine")
    assert stored(client, "a")["metadata"]["notes"] == "of a client"


def test_successor_is_chosen_supersedes_and_is_taken_back(client: TestClient, post: Post) -> None:
    post("The zeppelin is red", episode_id="old")
    post("The zeppelin is blue", episode_id="new/1")
    field = opened(client, "old").select_one("#successor")
    for question in ("zeppelin", "new/1"):
        soup = read(client, str(field["hx-get"]), q=question, episode_id="old")
        chosen = json.loads(str(soup.select_one("button")["hx-vals"]))
        assert chosen == {"episode_id": "old", "by": "new/1"}
    assert stored(client, "new/1")["retrieval_count"] == 0
    soup, toast = act(client, "supersede", **chosen)
    assert (stored(client, "old")["status"], stored(client, "old")["superseded_by"]) == ("superseded", "new/1")
    assert "Superseded by new/1" in soup.text
    assert "superseded by" in soup.select_one("[aria-labelledby=lineage-title]").text
    assert "supersedes" in opened(client, "new/1").select_one("[aria-labelledby=lineage-title]").text
    client.post(toast["undo"])
    assert stored(client, "old")["status"] == "active"
    act(client, "supersede", **chosen)
    soup, _ = act(client, "restore", "old")
    assert (stored(client, "old")["status"], stored(client, "old")["superseded_by"]) == ("active", None)
    assert soup.select_one("#supersede") is not None


def test_doubt_is_shown_with_its_reason_and_taken_back(client: TestClient, post: Post) -> None:
    post("The zeppelin is red", episode_id="a")
    soup, _ = act(client, "doubt", "a", status="challenged", reason="it was painted")
    assert "Challenged" in soup.select_one(".problem").text
    assert "it was painted" in soup.select_one(".problem").text
    soup, toast = act(client, "doubt", "a", status="invalidated", reason="it is gone")
    assert stored(client, "a")["status"] == "invalidated"
    told = [each.text for each in soup.select("[aria-labelledby=status-history-title] li")]
    assert ["it is gone" in told[0], "it was painted" in told[1]] == [True, True]
    client.post(toast["undo"])
    assert stored(client, "a")["status"] == "challenged"
    soup, _ = act(client, "restore", "a")
    assert soup.select_one(".problem") is None
    wrong = client.post("/dashboard/episode/doubt", data={"episode_id": "a", "status": "superseded"})
    assert wrong.status_code == 422


def test_no_episode_supersedes_itself_in_the_end(client: TestClient, post: Post) -> None:
    for name in "abc":
        post(f"Of {name}", episode_id=name)
    assert "itself" in refused(client, "supersede", "a", 409, by="a")
    act(client, "supersede", "b", by="a")
    act(client, "supersede", "c", by="b")
    assert "itself superseded" in refused(client, "supersede", "a", 409, by="c")
    assert refused(client, "supersede", "a", 404, by="nobody")
    address = "/dashboard/episode/successors?episode_id=a&q="
    assert "Type words to search" in client.get(address).text
    assert "Nothing found" in client.get(f"{address}zeppelin").text


def test_deleting_waits_can_be_taken_back_and_then_is_done(client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a", raw_exchange="text")
    assert opened(client, "a").select_one("#delete-sheet [name=exclude]").has_attr("checked")
    soup, toast = act(client, "delete", "a", exclude="true")
    assert soup.select_one("h1").text == "Being deleted"
    waiting = opened(client, "a")
    assert waiting.select_one("button.main")["hx-post"] == toast["undo"]
    taken_back = client.post(toast["undo"])
    assert taken_back.status_code == 200
    assert "undone" in json.loads(taken_back.headers["HX-Trigger"])
    assert waiting.select_one("[hx-trigger^='undone from:body']")["hx-get"] == "/dashboard/episodes/a"
    assert opened(client, "a").select_one("h1").text == "The zeppelin"
    act(client, "delete", "a", exclude="true")
    client.app.state.undo.delete_all()  # type: ignore[attr-defined]
    opened(client, "a", 404)
    told = client.get("/dashboard/episodes/a", headers={"HX-Request": "true"})
    assert (told.status_code, "Deleted" in told.text) == (200, True), "the page that waited says so"
    assert client.get("/api/episodes/a").status_code == 404
    assert [entry["episode_id"] for entry in client.get("/api/blocklist").json()["items"]] == ["a"]


@pytest.mark.parametrize("action", ["pin", "note", "supersede", "restore", "delete"])
def test_nothing_is_done_to_an_episode_that_is_gone(client: TestClient, action: str) -> None:
    assert "no episode has this id" in refused(client, action, "nobody", 404, note="x", by="y")
    assert "no episode has this id" in opened(client, "nobody", 404).text


def test_the_history_and_the_lineage_of_an_episode_are_shown(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a")
    post("Merged", episode_id="m", metadata={"consolidated_from": ["a", "gone"]})
    client.post("/api/episodes/search", json={"query": "zeppelin hangar", "top_k": 1})
    soup = opened(client, "a")
    assert "1×" in soup.select_one("[aria-labelledby=history-title]").text
    assert [badge.text for badge in soup.select(".history .badge")] == ["read", "write"]
    lineage = opened(client, "m").select_one("[aria-labelledby=lineage-title]")
    assert lineage.a["href"] == "/dashboard/episodes/a"
    assert "(gone)" in lineage.text


def test_ranking_of_an_episode_is_shown_as_bars(services: TestServices, client: TestClient) -> None:
    told = {"value": 4.5, "value_signals": {"correction": 3.0, "decisions": 1.5}}
    one = samples.episode("a", source="logs", tags=("critical",), session_id="s", metadata=told)
    services.store.episodes.put([(one, samples.passages("text"))])
    soup = opened(client, "a")
    bars = {bar["aria-label"]: (bar["value"], bar["max"]) for bar in soup.select(".bars meter")}
    assert bars == {
        "Factor: priority": ("1.5", "2.0"),
        "Value": ("4.5", "4.5"),
        "correction": ("3.0", "4.5"),
        "decisions": ("1.5", "4.5"),
    }
    assert "the user corrected what Claude had said or done" in soup.select_one(".means").text
    for metadata in ({"value": "much"}, {"value": True}, {"value_signals": [1]}, {}):
        assert bars_of(samples.episode("a", metadata=metadata), 0.5) == [], metadata

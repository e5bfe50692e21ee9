"""The page about sources: state, adding and trying, running, removing, patterns, and what was handed in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bs4 import Tag
from starlette.testclient import TestClient

from anamnesis_pipeline.dagster_api.runs import IngestRun, IngestRuns
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sidecar.pages.sources import PATH
from anamnesis_pipeline.steps.host_clock import HostClock, failed, write_clock
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.sidecar.pages.reading import SCRIPT, press, problem_of, read, send
from anamnesis_tests.store.samples import episode, passages

pytestmark = pytest.mark.usefixtures("roots")


def configured(client: TestClient) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in client.get("/api/sources").json()["sources"] if not each["built_in"]}


# --- state -----------------------------------------------------------------------------------------------


def test_built_in_sources_are_there_and_cannot_be_changed(client: TestClient) -> None:
    page = read(client, PATH)
    assert [row.get_text(" ").split()[0] for row in page.select("#state [aria-labelledby=sources-title] tbody th")] == [
        "local-logs", "local-memory",
    ]  # fmt: skip
    assert page.find(id="run-local-logs")
    assert page.find(id="edit-local-logs") is None
    assert page.find(id="remove-local-logs") is None
    assert "Nothing was read yet" in page.text


def test_what_was_read_is_listed_with_its_newest_episode_and_its_partition(
    client: TestClient, services: TestServices
) -> None:
    keys = ["mac--b--1", "mac--a--2"]
    services.store.files.put_sources([Source(key, "mac", "/gone", SCRIPT) for key in keys])
    services.store.episodes.put([(episode("e1", source=keys[1]), passages("text"))])
    rows = read(client, PATH).select("[aria-labelledby=folders-title] tbody tr")
    assert [row.select("td")[2].text for row in rows] == ["1", "0"], "the one with the newest episode first"
    assert SCRIPT in rows[0].th.text  # type: ignore[union-attr]
    assert "not configured any more" in rows[0].text
    assert rows[0].a["href"].endswith("/assets/crawled_files?view=partitions&partition=mac--a--2")  # type: ignore[index]
    assert len(read(client, f"{PATH}?folder=mac--B").select("[aria-labelledby=folders-title] tbody tr")) == 1
    assert "No folder's name holds this" in read(client, f"{PATH}?folder=nowhere").text


def test_what_was_handed_in_leads_to_its_own_asset(client: TestClient, services: TestServices) -> None:
    services.store.episodes.put([(episode("e1", source="chat"), passages("text"))])
    (row,) = read(client, PATH).select("[aria-labelledby=folders-title] tbody tr")
    assert row.a["href"].endswith("/assets/chat_answers")  # type: ignore[index]


def test_runs_are_shown_as_soon_as_dagster_has_answered(client: TestClient, services: TestServices) -> None:
    services.dagster.runs = IngestRuns((IngestRun("r1", "mac--a", "STARTED", 1.0, None),), None)
    assert "Asking Dagster" in read(client, PATH).text
    state = read(client, PATH + "/state")
    assert "reading mac--a" in state.text
    mark = str(state.select_one("[name=seen]")["value"])  # type: ignore[index]
    services.dagster.up = False
    assert "Dagster is away" in client.get(f"{PATH}/state?seen={mark}").text


def test_a_machine_that_is_away_is_told_with_the_reason(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    client.put("/api/sources/far", json={"kind": "documents", "root": "~/n", "host": "ann@nas"})
    clock = failed(HostClock(), datetime.now(UTC), f"ann@nas: its host key is not known {SCRIPT}", 3_600)
    write_clock(services.store.settings, "ann@nas", clock)
    machines = read(client, PATH).select_one("[aria-labelledby=machines-title]")
    assert machines is not None
    assert "away" in machines.text
    assert f"its host key is not known {SCRIPT}" in machines.text
    assert machines.script is None


# --- runs ------------------------------------------------------------------------------------------------


def test_a_look_reads_what_is_new_and_one_source_is_read_alone(
    client: TestClient, services: TestServices, roots: Path
) -> None:
    page = read(client, PATH)
    told = press(client, page, "look")
    assert told.a["href"] == "http://127.0.0.1:3000/runs/b/ingest1"  # type: ignore[index]
    press(client, page, "run-local-logs")
    assert [title for _, title in services.dagster.ingests] == ["Crawl, asked for by hand"] * 2


def test_without_dagster_nothing_is_read_and_the_reason_is_told(client: TestClient, services: TestServices) -> None:
    services.dagster.up = False
    assert "does not answer" in problem_of(press(client, read(client, PATH), "look"))


# --- adding, trying, changing, removing ------------------------------------------------------------------


def test_a_folder_is_tried_added_changed_and_removed(client: TestClient, services: TestServices, roots: Path) -> None:
    typed = {"place": str(roots / "notes"), "kind": "documents", "include": "*.md\r\n\r\n!b.md", "max_mb": "2"}
    tried = send(client, f"{PATH}/try", **typed)
    assert "1 file, 4 B" in tried.text
    assert configured(client) == {}
    added = client.post(f"{PATH}/save", data=typed)
    assert "read now" in added.headers["hx-trigger"]
    source = configured(client)["mac-notes"]
    assert (source["include"], source["max_file_bytes"]) == (["*.md", "!b.md"], 2 << 20)
    assert len(services.dagster.ingests) == 1

    page = read(client, f"{PATH}?edit=mac-notes")
    form = page.select_one("#source-form")
    assert form is not None
    assert "Edit mac-notes" in form.text
    fields = {str(each["name"]): str(each.get("value", "")) for each in form.select("input[name]:not([type=checkbox])")}
    fields |= {str(each["name"]): each.text for each in form.select("textarea")}
    assert fields["include"].split() == ["*.md", "!b.md"]
    changed = client.post(f"{PATH}/save", data={**fields, "kind": "documents", "private": "on", "interval_s": "60"})
    assert changed.headers["hx-replace-url"] == PATH
    source = configured(client)["mac-notes"]
    assert (source["private"], source["interval_s"], source["include"]) == (True, 60, ["*.md", "!b.md"])

    button = page.find(id="remove-mac-notes")
    assert isinstance(button, Tag)
    assert "hx-confirm" in button.attrs
    assert "what was read of it stays" in press(client, page, "remove-mac-notes").text
    assert configured(client) == {}
    assert "no source that can be removed" in problem_of(press(client, page, "remove-mac-notes"))


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"place": "notes"}, "place", "begins with / or ~"),
        ({"place": "/"}, "place", "whole machine"),
        ({"place": "./a b:c"}, "place", "begins with / or ~"),
        ({"place": "ann@nas"}, "place", "ann@nas:~/.claude/projects"),
        ({"place": "C:\\notes"}, "place", "Windows"),
        ({"interval_s": "5"}, "interval_s", "30 to 86,400"),
        ({"interval_s": "soon"}, "interval_s", "whole seconds"),
        ({"max_mb": "much"}, "max_mb", "bytes"),
        ({"name": "a b"}, "name", "letters, digits"),
        ({"name": "local-logs"}, "name", "already"),
        ({"name": "local-x"}, "name", "local-"),
        ({"kind": "pictures"}, "kind", "claude_logs"),
        ({"exclude": "!"}, "include", "pattern"),
    ],
)
def test_a_refusal_is_told_beside_its_field_and_keeps_what_was_typed(
    client: TestClient, roots: Path, typed: dict[str, str], field: str, words: str
) -> None:
    sent = {"place": str(roots / "notes"), "kind": "documents", "project": SCRIPT, **typed}
    form = send(client, f"{PATH}/save", **sent)
    told = form.find(id=f"source-{field}-told")
    assert isinstance(told, Tag), form
    assert words in told.text
    assert form.find(id="source-project")["value"] == SCRIPT  # type: ignore[index]
    assert configured(client) == {}


def test_a_place_that_is_taken_is_refused(client: TestClient, roots: Path) -> None:
    send(client, f"{PATH}/save", place=str(roots / "notes"), kind="documents", name="one")
    again = send(client, f"{PATH}/save", place=str(roots / "notes"), kind="documents", name="two")
    assert "taken by the source 'one'" in again.find(id="source-place-told").text  # type: ignore[union-attr]
    assert list(configured(client)) == ["one"]


def test_trying_says_why_it_does_not_work(client: TestClient, roots: Path) -> None:
    assert "127.0.0.1" in problem_of(send(client, f"{PATH}/try", place="me@127.0.0.1:1:~/n", kind="documents"))
    assert "begins with / or ~" in problem_of(send(client, f"{PATH}/try", place="notes"))
    assert "does not work" in send(client, f"{PATH}/try", place=str(roots / "nowhere"), kind="documents").text
    assert "works" in press(client, read(client, PATH), "try-local-logs").text
    assert "no source nope" in problem_of(send(client, f"{PATH}/source/nope/try"))


def test_folders_that_may_hold_logs_are_offered(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, roots: Path
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(roots / "claude"))
    rows = read(client, PATH + "/log-folders").select("tbody tr")
    (own,) = [row for row in rows if str(roots / "claude" / "projects") in row.text]
    assert own.select_one(".number").text == "1"  # type: ignore[union-attr]
    assert "is read" in own.text


# --- interval and patterns -------------------------------------------------------------------------------


def test_the_interval_is_stored_refused_and_let_go(client: TestClient, services: TestServices) -> None:
    sent = {"crawl_interval_s": "60", "was.crawl_interval_s": "300"}
    saved = send(client, f"{PATH}/interval", **sent)
    assert services.store.settings.get("config.crawl_interval_s") == 60
    assert client.get("/api/crawler/config/interval").json() == {"interval_s": 60, "origin": "stored"}
    refused = send(client, f"{PATH}/interval", **{"crawl_interval_s": "5", "was.crawl_interval_s": "60"})
    assert "30" in problem_of(refused)
    assert "every 1 min" not in read(client, PATH).text
    assert "every 60 s" in read(client, PATH + "/state").text
    press(client, saved, "set-crawl_interval_s-revert")
    assert services.store.settings.get("config.crawl_interval_s") is None


def test_tags_by_pattern_are_added_and_removed(client: TestClient) -> None:
    added = send(client, f"{PATH}/tags/add", match=SCRIPT, tag="incident", field="content", case="on")
    (pattern,) = client.get("/api/crawler/config/doc-tag-patterns").json()["patterns"]
    assert pattern == {"match": SCRIPT, "tag": "incident", "field": "content", "regex": False, "ignorecase": False}
    assert added.select_one("tbody code").text == SCRIPT  # type: ignore[union-attr]
    again = send(client, f"{PATH}/tags/add", match=SCRIPT, tag="incident", field="content", case="on")
    assert "already" in problem_of(again)
    stale = send(client, f"{PATH}/tags/remove", number=0, match="else", tag="incident")
    assert "nothing was removed" in problem_of(stale)
    form = stale.select_one("tbody form")
    assert form is not None
    assert "hx-confirm" in form.attrs
    fields = {str(each["name"]): str(each["value"]) for each in form.select("input")}
    send(client, str(form["hx-post"]), **fields)
    assert client.get("/api/crawler/config/doc-tag-patterns").json()["patterns"] == []


@pytest.mark.parametrize(
    "wrong", [{"match": "("}, {"match": ""}, {"tag": "two words"}, {"tag": ""}, {"field": "smell"}]
)
def test_a_pattern_that_cannot_be_is_refused(client: TestClient, wrong: dict[str, str]) -> None:
    form = send(client, f"{PATH}/tags/add", **{"match": "a", "tag": "b", "field": "filename", "regex": "on", **wrong})
    assert problem_of(form)
    assert client.get("/api/crawler/config/doc-tag-patterns").json()["patterns"] == []


# --- handed in -------------------------------------------------------------------------------------------


def test_what_was_handed_in_is_listed_and_can_be_forgotten(client: TestClient) -> None:
    page = read(client, PATH)
    assert {str(form["data-hand-in"]) for form in page.select("form[data-hand-in]")} == {
        "/api/uploads", "/api/episodes/ingest-url",
    }  # fmt: skip
    assert "Nothing yet" in page.select_one("#uploads").text  # type: ignore[union-attr]
    sent = {"text": "# Storm\nThe hangar roof was lost.\n", "title": SCRIPT, "project": "acme"}
    taken = client.post("/api/uploads", json=sent).json()
    listed = read(client, PATH + "/uploads")
    assert SCRIPT in listed.select_one("tbody th").text  # type: ignore[union-attr]
    button = listed.find(id=f"forget-{taken['upload_id']}")
    assert isinstance(button, Tag)
    assert "hx-confirm" in button.attrs
    assert "Nothing yet" in send(client, str(button["hx-post"])).text
    assert client.get("/api/uploads").json()["items"] == []
    assert "gone already" in client.post(str(button["hx-post"])).headers["hx-trigger"]


def test_with_local_only_no_page_is_offered_to_be_fetched(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "1")
    page = read(client, PATH)
    assert page.find(id="url") is None
    assert "ANAMNESIS_LOCAL_ONLY" in page.text


def test_gone_worktrees_are_joined_and_parted_by_one_click(client: TestClient, services: TestServices) -> None:
    card = f"{PATH}/worktrees"
    assert read(client, PATH).select_one("#worktrees")["hx-get"] == card  # type: ignore[index]
    assert read(client, card).text.strip() == ""
    for name in (SCRIPT, f"~/{SCRIPT}", f"~/{SCRIPT}-worktrees/fix"):
        services.store.episodes.put([(episode(f"e {name}", project=name, kind="exchange"), passages("text"))])
    page = read(client, card)
    assert "seem to be worktrees of" in page.text
    assert SCRIPT in page.text
    page = send(client, f"{card}/join", target=f"~/{SCRIPT}")
    assert page.select_one("form")["hx-post"] == f"{card}/part"  # type: ignore[index]
    assert f"~/{SCRIPT}-worktrees/fix" not in services.store.projects.all()
    send(client, f"{card}/part", target=f"~/{SCRIPT}")
    assert f"~/{SCRIPT}-worktrees/fix" in services.store.projects.all()
    assert "nothing was joined" in send(client, f"{card}/part", target="~/x").select_one("[role=alert]").text  # type: ignore[union-attr]
    assert "no worktrees of" in send(client, f"{card}/join", target="~/x").select_one("[role=alert]").text  # type: ignore[union-attr]

"""The page about sources: state, adding and trying, running, removing, patterns, and what was handed in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bs4 import Tag
from starlette.testclient import TestClient

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.pipeline.host_clock import HostClock, failed, write_clock
from anamnesis_pipeline.services.dagster.runs import IngestRun, IngestRuns
from anamnesis_pipeline.sidecar.web.sources import PATH
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.support.page_reading import SCRIPT, press, problem_of, read, send
from anamnesis_tests.support.samples import episode, passages

pytestmark = pytest.mark.usefixtures("roots")


def configured(client: TestClient) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in client.get("/api/sources").json()["sources"] if not each["built_in"]}


def test_built_in_sources_cannot_be_changed(client: TestClient) -> None:
    page = read(client, PATH)
    rows = page.select("#state [aria-labelledby=sources-title] tbody th")
    assert [row.get_text(" ").split()[0] for row in rows] == ["local-logs", "local-memory"]
    assert page.find(id="run-local-logs")
    assert page.select("#edit-local-logs, #remove-local-logs") == []
    assert "Nothing was read yet" in page.text


def test_what_was_read_leads_to_its_partition(client: TestClient, services: TestServices) -> None:
    def rows(path: str = PATH) -> list[Tag]:
        return read(client, path).select("[aria-labelledby=folders-title] tbody tr")

    keys = ["mac--b--1", "mac--a--2"]
    services.store.files.put_sources([Source(key, "mac", "/gone", SCRIPT) for key in keys])
    services.store.episodes.put([(episode("e1", source=keys[1]), passages("text"))])
    assert [row.select("td")[2].text for row in rows()] == ["1", "0"], "the one with the newest episode first"
    first = rows()[0]
    assert SCRIPT in first.th.text
    assert "not configured any more" in first.text
    assert first.a["href"].endswith("/assets/crawled_files?view=partitions&partition=mac--a--2")
    assert len(rows(f"{PATH}?folder=mac--B")) == 1
    assert "No folder's name holds this" in read(client, f"{PATH}?folder=nowhere").text
    services.store.episodes.put([(episode("e2", minute=9, source="chat"), passages("text"))])
    assert rows()[0].a["href"].endswith("/assets/chat_answers"), "what was handed in has its own asset"


def test_runs_are_shown_once_dagster_has_answered(client: TestClient, services: TestServices) -> None:
    services.dagster.runs = IngestRuns((IngestRun("r1", "mac--a", "STARTED", 1.0, None),), None)
    page = read(client, PATH)
    assert "Asking Dagster" in page.text
    state = read(client, PATH + "/state")
    assert "reading mac--a" in state.text
    services.dagster.up = False
    mark = str(state.select_one("[name=seen]")["value"])
    assert "Dagster is away" in client.get(f"{PATH}/state?seen={mark}").text
    assert "does not answer" in problem_of(press(client, page, "look"))


def test_machine_that_is_away_is_told(client: TestClient, services: TestServices, roots: Path) -> None:
    client.put("/api/sources/far", json={"kind": "documents", "root": "~/n", "host": "ann@nas"})
    clock = failed(HostClock(), datetime.now(UTC), f"ann@nas: its host key is not known {SCRIPT}", 3_600)
    write_clock(services.store.settings, "ann@nas", clock)
    machines = read(client, PATH).select_one("[aria-labelledby=machines-title]")
    assert "away" in machines.text
    assert f"its host key is not known {SCRIPT}" in machines.text


def test_look_reads_all_or_one_source(client: TestClient, services: TestServices, roots: Path) -> None:
    page = read(client, PATH)
    assert press(client, page, "look").a["href"] == "http://127.0.0.1:3000/runs/b/ingest1"
    press(client, page, "run-local-logs")
    assert [title for _, title in services.dagster.ingests] == ["Crawl, asked for by hand"] * 2


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
    assert "Edit mac-notes" in form.text
    fields = {str(each["name"]): str(each.get("value", "")) for each in form.select("input[name]:not([type=checkbox])")}
    fields |= {str(each["name"]): each.text for each in form.select("textarea")}
    assert fields["include"].split() == ["*.md", "!b.md"]
    changed = client.post(f"{PATH}/save", data={**fields, "kind": "documents", "private": "on", "interval_s": "60"})
    assert changed.headers["hx-replace-url"] == PATH
    source = configured(client)["mac-notes"]
    assert (source["private"], source["interval_s"], source["include"]) == (True, 60, ["*.md", "!b.md"])

    assert "hx-confirm" in page.find(id="remove-mac-notes").attrs
    assert "its episodes stay" in press(client, page, "remove-mac-notes").text
    assert configured(client) == {}
    assert "no source that can be removed" in problem_of(press(client, page, "remove-mac-notes"))


def test_bad_field_is_refused_and_what_was_typed_stays(client: TestClient, roots: Path) -> None:
    good = {"place": str(roots / "notes"), "kind": "documents", "project": SCRIPT}
    for name, value, words in (
        ("place", "notes", "begins with / or ~"),
        ("place", "/", "whole machine"),
        ("place", "./a b:c", "begins with / or ~"),
        ("place", "ann@nas", "ann@nas:~/.claude/projects"),
        ("place", "C:\\notes", "Windows"),
        ("interval_s", "5", "30 to 86,400"),
        ("interval_s", "soon", "whole seconds"),
        ("max_mb", "much", "bytes"),
        ("name", "a b", "letters, digits"),
        ("name", "local-logs", "already"),
        ("name", "local-x", "local-"),
        ("kind", "pictures", "claude_logs"),
        ("exclude", "!", "pattern"),
    ):
        form = send(client, f"{PATH}/save", **{**good, name: value})
        field = "include" if name == "exclude" else name
        assert words in form.find(id=f"source-{field}-told").text, (name, value)
        assert form.find(id="source-project")["value"] == SCRIPT
    assert configured(client) == {}
    send(client, f"{PATH}/save", **good, name="one")
    again = send(client, f"{PATH}/save", **good, name="two")
    assert "taken by the source 'one'" in again.find(id="source-place-told").text
    assert list(configured(client)) == ["one"]


def test_trying_says_why_it_does_not_work(client: TestClient, roots: Path) -> None:
    assert "127.0.0.1" in problem_of(send(client, f"{PATH}/try", place="me@127.0.0.1:1:~/n", kind="documents"))
    assert "begins with / or ~" in problem_of(send(client, f"{PATH}/try", place="notes"))
    assert "does not work" in send(client, f"{PATH}/try", place=str(roots / "nowhere"), kind="documents").text
    assert "works" in press(client, read(client, PATH), "try-local-logs").text
    assert "no source nope" in problem_of(send(client, f"{PATH}/source/nope/try"))


def test_folders_with_logs_are_offered(client: TestClient, monkeypatch: pytest.MonkeyPatch, roots: Path) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(roots / "claude"))
    rows = read(client, PATH + "/log-folders").select("tbody tr")
    (own,) = [row for row in rows if str(roots / "claude" / "projects") in row.text]
    assert (own.select_one(".number").text, "is read" in own.text) == ("1", True)


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
    def patterns() -> list[dict[str, Any]]:
        return client.get("/api/crawler/config/doc-tag-patterns").json()["patterns"]

    for wrong in ({"match": "("}, {"match": ""}, {"tag": "two words"}, {"tag": ""}, {"field": "smell"}):
        sent = {"match": "a", "tag": "b", "field": "filename", "regex": "on", **wrong}
        assert problem_of(send(client, f"{PATH}/tags/add", **sent)), wrong
    assert patterns() == []
    wanted = {"match": SCRIPT, "tag": "incident", "field": "content", "case": "on"}
    assert send(client, f"{PATH}/tags/add", **wanted).select_one("tbody code").text == SCRIPT
    made = {"match": SCRIPT, "tag": "incident", "field": "content", "regex": False, "ignorecase": False}
    assert patterns() == [made]
    assert "already" in problem_of(send(client, f"{PATH}/tags/add", **wanted))
    stale = send(client, f"{PATH}/tags/remove", number=0, match="else", tag="incident")
    assert "nothing was removed" in problem_of(stale)
    form = stale.select_one("tbody form")
    assert "hx-confirm" in form.attrs
    send(client, str(form["hx-post"]), **{str(each["name"]): str(each["value"]) for each in form.select("input")})
    assert patterns() == []


def test_what_was_handed_in_is_listed_and_forgotten(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    page = read(client, PATH)
    forms = {str(form["data-hand-in"]) for form in page.select("form[data-hand-in]")}
    assert forms == {"/api/uploads", "/api/episodes/ingest-url"}
    assert "Nothing yet" in page.select_one("#uploads").text
    sent = {"text": "# Storm\nThe hangar roof was lost.\n", "title": SCRIPT, "project": "acme"}
    taken = client.post("/api/uploads", json=sent).json()
    listed = read(client, PATH + "/uploads")
    assert SCRIPT in listed.select_one("tbody th").text
    button = listed.find(id=f"forget-{taken['upload_id']}")
    assert "hx-confirm" in button.attrs
    assert "Nothing yet" in send(client, str(button["hx-post"])).text
    assert client.get("/api/uploads").json()["items"] == []
    assert "deleted already" in client.post(str(button["hx-post"])).headers["hx-trigger"]
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "1")
    page = read(client, PATH)
    assert (page.find(id="url"), "ANAMNESIS_LOCAL_ONLY" in page.text) == (None, True), "no page is to be fetched"


def test_gone_worktrees_are_joined_and_parted_by_one_click(client: TestClient, services: TestServices) -> None:
    card = f"{PATH}/worktrees"
    assert read(client, PATH).select_one("#worktrees")["hx-get"] == card
    assert read(client, card).text.strip() == ""
    for name in (SCRIPT, f"~/{SCRIPT}", f"~/{SCRIPT}-worktrees/fix"):
        services.store.episodes.put([(episode(f"e {name}", project=name, kind="exchange"), passages("text"))])
    page = read(client, card)
    assert "seem to be worktrees of" in page.text
    assert SCRIPT in page.text
    page = send(client, f"{card}/join", target=f"~/{SCRIPT}")
    assert page.select_one("form")["hx-post"] == f"{card}/part"
    assert f"~/{SCRIPT}-worktrees/fix" not in services.store.projects.all()
    send(client, f"{card}/part", target=f"~/{SCRIPT}")
    assert f"~/{SCRIPT}-worktrees/fix" in services.store.projects.all()
    assert "nothing was joined" in problem_of(send(client, f"{card}/part", target="~/x"))
    assert "no worktrees of" in problem_of(send(client, f"{card}/join", target="~/x"))

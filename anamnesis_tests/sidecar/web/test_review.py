from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from bs4 import BeautifulSoup, Tag
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.services.proposals import LAST_RUN
from anamnesis_pipeline.services.topics import TopicChange
from anamnesis_pipeline.sidecar.web import review
from anamnesis_pipeline.sidecar.web.review import PATH, Waits, around, labels_of, shown_of, told_of
from anamnesis_pipeline.store.knowledge_model import Evidence, Kind, State
from anamnesis_tests.sidecar.conftest import TestServices, problem
from anamnesis_tests.support.page_reading import PAGE, SCRIPT, page_of, problem_of, read
from anamnesis_tests.support.proposed import NOTES, STEPS, dream, propose_lesson, propose_procedure, tell

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def dreamt(client: TestClient) -> TestClient:
    """A service with a merge and a superseded note to decide on."""
    tell(client)
    dream(client)
    return client


def titles(page: BeautifulSoup) -> list[str]:
    return [each.text for each in page.select(".proposal h3")]


def card(page: BeautifulSoup, kind: str) -> Tag:
    """The only proposal of a kind, which the words of its heading name."""
    (found,) = [each for each in page.select(".proposal") if each.find_previous("h2").text.endswith(kind)]
    return found


def fields_of(form: Tag) -> list[tuple[str, str]]:
    fields = form.select("input[name], textarea[name]")
    return [
        (str(each["name"]), each.text if each.name == "textarea" else str(each.get("value", ""))) for each in fields
    ]


def send(client: TestClient, form: Tag, **typed: str) -> BeautifulSoup:
    """Send a form as a browser without scripts does."""
    data: dict[str, Any] = {}
    for name, value in fields_of(form):
        data.setdefault(name, []).append(value)
    return page_of(client.post(str(form["action"]), data=data | typed, headers=PAGE))


def form(part: Tag | BeautifulSoup, action: str, number: int = 0) -> Tag:
    found: Tag = part.select(f"form[action$='/{action}']")[number]
    return found


def told(page: BeautifulSoup) -> str:
    found = page.select_one("#done span")
    assert found is not None
    return found.text


def test_proposal_shows_old_and_new_with_marked_quotes(dreamt: TestClient) -> None:
    found = card(read(dreamt, PATH), review.WORDS[Kind.SUPERSEDE])
    assert [each.text for each in found.select("figcaption b")] == ["Older", "Newer"]
    assert [each.text for each in found.select("mark")] == [NOTES["friday"], NOTES["monday"]]
    assert [each["href"] for each in found.select("figcaption a")] == [
        "/dashboard/episodes/friday",
        "/dashboard/episodes/monday",
    ]
    assert "becomes superseded by" in " ".join(found.select_one(".change").text.split())
    assert "confidence" in found.text
    assert "superseded_notes" in found.text


def test_accepting_changes_what_holds_and_undo_puts_back(dreamt: TestClient) -> None:
    found = card(read(dreamt, PATH), review.WORDS[Kind.SUPERSEDE])
    page = send(dreamt, form(found, "accept"))
    assert told(page).startswith("Accepted: We deploy on Mondays")
    assert len(titles(page)) == 1
    assert dreamt.get("/api/episodes/friday").json()["superseded_by"] == "monday"
    page = send(dreamt, form(page.select_one("#done"), "undo"))
    assert told(page).startswith("Undone: ")
    assert page.select("#done form") == []
    assert dreamt.get("/api/episodes/friday").json()["superseded_by"] is None


def test_rejected_proposal_shows_who_when_why_and_opens_again(dreamt: TestClient) -> None:
    found = card(read(dreamt, PATH), review.WORDS[Kind.MERGE])
    send(dreamt, form(found, "reject"), reason="they differ")
    page = read(dreamt, PATH, state="rejected")
    (rejected,) = page.select(".proposal")
    assert "rejected by person" in rejected.text
    assert "they differ" in rejected.text
    assert rejected.select("time[datetime]")
    page = send(dreamt, form(rejected, "undo"))
    assert told(page).startswith("Open again: ")
    assert titles(page) == []
    assert len(titles(read(dreamt, PATH))) == 2


def test_edited_text_is_written_in_place_of_the_proposed(dreamt: TestClient, services: TestServices) -> None:
    propose_procedure(services.store)
    found = card(read(dreamt, PATH), review.WORDS[Kind.PATTERN])
    assert found.select_one("textarea").text.strip() == STEPS
    assert [each.text for each in found.select("ins")] == [f"+ {line}" for line in STEPS.splitlines()]
    edit = form(found, "accept", 1)
    empty = dreamt.post(edit["action"], data={**dict(fields_of(edit)), "entry": " \r\n"})
    assert "Write the text first" in problem(empty)["detail"]
    send(dreamt, edit, entry="1. `make ship`\r\n2. tell the team")
    (kept,) = dreamt.get("/api/episodes", params={"kind": "procedure"}).json()["items"]
    assert dreamt.get(f"/api/episodes/{kept['episode_id']}").json()["summary"] == "1. `make ship` 2. tell the team"


def test_topic_file_is_shown_as_a_diff_and_written(client: TestClient, services: TestServices) -> None:
    tell(client)
    propose_lesson(services.store)
    (found,) = read(client, PATH).select(".proposal")
    assert any(each.text.startswith("+- Start the database before") for each in found.select("ins"))
    send(client, form(found, "accept", 1), entry="Start it first.")
    (written,) = services.settings.topics_dir.rglob("lessons.md")
    assert "- Start it first." in written.read_text()
    (accepted,) = read(client, PATH, state="accepted").select(".proposal")
    assert [each.text for each in accepted.select("ins")] == ["+ Start it first."]
    send(client, form(accepted, "undo"))
    assert not written.exists()


def test_file_of_another_machine_is_not_accepted_here(client: TestClient, services: TestServices) -> None:
    tell(client)
    proposal = propose_lesson(services.store)
    shown = shown_of(proposal, {}, TopicChange("nas", Path("/x/lessons.md"), None, "x", "+x", is_here=False))
    assert (shown.can_accept, shown.can_undo) == (False, False)


def test_one_press_decides_on_a_kind_and_says_how_many(dreamt: TestClient, services: TestServices) -> None:
    for name in ("port", "friday", "monday"):
        propose_procedure(services.store, name)
    assert read(dreamt, PATH).select("form[action$='/bulk']") == []
    page = read(dreamt, PATH, kind="pattern")
    bulk = form(page, "bulk")
    assert [each.text for each in bulk.select("button")] == ["Reject 3", "Accept 3"]
    first = form(page.select(".proposal")[0], "accept")
    dreamt.post(str(first["action"]), data=dict(fields_of(first)))
    page = send(dreamt, bulk, action="reject", reason="not ours")
    assert told(page) == "2 rejected; 1 left as they are."
    page = send(dreamt, form(page.select_one("#done"), "undo"))
    assert told(page) == "2 open again."
    assert len(titles(page)) == 2


def test_busy_store_ends_a_press_on_several(client: TestClient, services: TestServices) -> None:
    tell(client)
    ids = [propose_procedure(services.store, name).proposal_id for name in ("port", "friday", "monday")]
    close, calls = type(services.store.proposals).close, list[str]()

    def busy_from_the_second(self: Any, proposal_id: str, *given: Any) -> Any:
        calls.append(proposal_id)
        if len(calls) > 1:
            raise StoreBusy("busy")
        return close(self, proposal_id, *given)

    with patch.object(type(services.store.proposals), "close", busy_from_the_second):
        page = page_of(client.post(f"{PATH}/bulk", data={"action": "reject", "ids": ids}, headers=PAGE))
        assert told(page) == "Rejected: Procedure: build, ship; 2 left as they are."
        assert len(calls) == 2
        problem(client.post(f"{PATH}/bulk", data={"action": "reject", "ids": ids[1:]}), 503)


def test_filters_keep_state_kind_and_project(dreamt: TestClient) -> None:
    tell_other = {"summary": "x", "raw_exchange": NOTES["port"], "instance": "mac", "project": "garden"}
    dreamt.post("/api/episodes", json={**tell_other, "episode_id": "garden"})
    assert len(titles(read(dreamt, PATH, kind="merge"))) == 1
    assert len(titles(read(dreamt, PATH, project="shop"))) == 2
    assert titles(read(dreamt, PATH, project="garden")) == []
    assert titles(read(dreamt, PATH, state="accepted")) == []
    assert len(titles(read(dreamt, PATH, state="all"))) == 2
    reject = form(read(dreamt, PATH, kind="merge", project="shop").select_one(".proposal"), "reject")
    reply = dreamt.post(str(reject["action"]), data=dict(fields_of(reject)), follow_redirects=False)
    back = reply.headers["location"].partition("&done")[0]
    assert (reply.status_code, back) == (303, f"{PATH}?kind=merge&project=shop")
    assert "Not understood" in problem_of(read(dreamt, PATH, 422, kind="gossip"))


def test_least_confidence_limits_list_and_bulk(client: TestClient, services: TestServices) -> None:
    tell(client)
    for name in ("port", "friday", "monday"):
        propose_procedure(services.store, name)  # of 0.9
    assert len(titles(read(client, PATH, confidence="0.9"))) == 3
    page = read(client, PATH, confidence="0.9", kind="pattern")
    assert form(page, "bulk").button.text == "Reject 3"
    assert page.select_one("#f-confidence")["value"] == "0.9"
    page = read(client, PATH, confidence="0.95", kind="pattern")
    assert (titles(page), page.select("form[action$='/bulk']")) == ([], [])
    assert "Not understood" in problem_of(read(client, PATH, 422, confidence="2"))


def test_pages_of_a_long_list_follow_each_other(client: TestClient, services: TestServices) -> None:
    tell(client)
    for name in NOTES:
        propose_procedure(services.store, name)
    with patch.object(review, "PER_PAGE", 3):
        first = read(client, PATH)
        older = first.select_one("a[rel=next]")
        assert older is not None
        second = page_of(client.get(str(older["href"]), headers=PAGE))
    assert (len(titles(first)), len(titles(second))) == (3, 1)
    shown = {each["id"] for page in (first, second) for each in page.select(".proposal")}
    assert len(shown) == 4


def test_empty_page_says_what_to_do_next(client: TestClient) -> None:
    assert "Press Dream now" in read(client, PATH).select_one(".empty").text
    tell(client)
    page = send(client, form(read(client, PATH), "dream"))
    assert len(titles(page)) == 2
    for each in page.select(".proposal"):
        send(client, form(each, "reject"))
    assert "Nothing waits for you" in read(client, PATH).select_one(".empty").text
    assert "There is no such proposal" in read(client, PATH, id="0123456789").select_one(".empty").text


def test_dream_is_refused_while_one_runs(client: TestClient) -> None:
    with review._dreaming:
        assert "run already" in problem(client.post(f"{PATH}/dream"), 409)["detail"]
        assert form(read(client, PATH), "dream").button.has_attr("disabled")


def test_navigation_shows_how_many_are_open(dreamt: TestClient) -> None:
    page = read(dreamt, PATH)
    send(dreamt, form(card(page, review.WORDS[Kind.MERGE]), "reject"))
    badge = read(dreamt, "/dashboard/episodes").select_one("#open-proposals")
    assert (badge.text, badge.has_attr("hidden")) == ("1 open", False)


def test_overview_warns_a_week_after_the_last_dream(dreamt: TestClient, services: TestServices) -> None:
    assert "2 open proposals" in read(dreamt, "/dashboard").main.text
    assert "today" in read(dreamt, "/dashboard").main.text
    last = services.store.settings.get(LAST_RUN)
    then = (datetime.now(UTC) - timedelta(days=7, hours=1)).isoformat()
    services.store.settings.set(LAST_RUN, {**last, "started_at": then})
    dreamt.app.state.waits.forget()
    for path in ("/dashboard", PATH):
        warning = read(dreamt, path).select_one("main .warn")
        assert warning is not None
        assert "7 days ago" in warning.text


def test_episode_shows_the_proposals_that_quote_it(dreamt: TestClient) -> None:
    page = read(dreamt, "/dashboard/episodes/friday")
    (link,) = page.select("[aria-labelledby=proposals-title] a")
    assert link.find_previous("span").text == "open"
    assert len(titles(page_of(dreamt.get(str(link["href"]), headers=PAGE)))) == 1
    assert read(dreamt, "/dashboard/context").select("[aria-labelledby=proposals-title]") == []


def test_private_project_is_shown_when_it_is_named(dreamt: TestClient, services: TestServices) -> None:
    services.store.settings.set("config.private_projects", ["shop"])
    dreamt.app.state.waits.forget()
    page = read(dreamt, PATH, state="all")
    assert titles(page) == []
    assert "shop" not in page.main.text
    assert page.select_one("#open-proposals").has_attr("hidden")
    assert len(titles(read(dreamt, PATH, project="shop"))) == 2


def test_episode_being_deleted_takes_its_proposals_along(dreamt: TestClient) -> None:
    dreamt.post("/dashboard/episode/delete", data={"episode_id": "friday"})
    assert [each for each in titles(read(dreamt, PATH)) if "deploy" in each] == []


def test_decided_proposal_is_no_more_decided_on(dreamt: TestClient) -> None:
    found = form(card(read(dreamt, PATH), review.WORDS[Kind.MERGE]), "accept")
    send(dreamt, found)
    reply = dreamt.post(str(found["action"]), data=dict(fields_of(found)))
    assert "it must be open" in problem(reply, 409)["detail"]
    gone = dreamt.post(f"{PATH}/reject", data={"proposal_id": "0123456789"}, headers=PAGE)
    assert (gone.status_code, "there is no proposal" in gone.text) == (404, True)


def test_script_in_a_quote_or_a_reason_stays_text(client: TestClient, services: TestServices) -> None:
    note = {"episode_id": "x", "summary": "s", "raw_exchange": SCRIPT, "instance": "mac", "project": "shop"}
    client.post("/api/episodes", json=note)
    found = propose_procedure(services.store, "x")
    services.store.proposals.close(found.proposal_id, State.REJECTED, SCRIPT, NOON, SCRIPT)
    page = read(client, PATH, state="all", done=found.proposal_id[:16])
    assert page.select_one("mark").text == SCRIPT
    assert not page.select("main script")


def test_words_around_a_quote_are_cut_between_words() -> None:
    text = "one two three QUOTE four five six"
    assert around(text, "QUOTE", 8) == ("… three ", " four …")
    assert around(text, "QUOTE") == ("one two three ", " four five six")
    assert around("QUOTE", "QUOTE") == ("", "")


def test_evidence_is_old_and_new_only_in_time() -> None:
    one, two = Evidence("a", "x", at=NOON), Evidence("b", "y", at=NOON + timedelta(days=1))
    assert labels_of([one, two]) == ["Older", "Newer"]
    assert labels_of([one, replace(two, at=NOON)]) == ["1 of 2", "2 of 2"]
    assert labels_of([replace(one, at=None), two]) == ["1 of 2", "2 of 2"]
    assert labels_of([one]) == ["1 of 1"]


def test_days_since_the_last_run_are_whole_days() -> None:
    def after(days: float) -> Waits:
        return Waits({}, datetime.now(UTC) - timedelta(days=days))

    assert [(after(n).days, after(n).is_late) for n in (0.5, 6.9, 7.1)] == [(0, False), (6, False), (7, True)]
    assert (Waits({}, None).days, Waits({}, None).is_late) == (None, False)


def test_expired_proposal_says_why(client: TestClient, services: TestServices) -> None:
    tell(client)
    found = propose_procedure(services.store).decided(State.EXPIRED, NOON, "person", "it holds no longer")
    assert told_of([found], 0) == "Expired: it holds no longer."
    assert (
        told_of([found, found.decided(State.ACCEPTED, NOON, "person")], 2)
        == "1 expired (it holds no longer), 1 accepted; 2 left as they are."
    )

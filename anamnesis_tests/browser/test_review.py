"""Proposals in the browser: decided on by keys, by buttons, and without scripts."""

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from anamnesis_tests.browser.looks import assert_anybody_can_use
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.support.proposed import dream, propose_lesson, propose_procedure, tell

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _proposed(api: httpx.Client, services: TestServices) -> None:
    """Two proposals of detectors, and two that write a text."""
    tell(api)
    dream(api)
    propose_lesson(services.store)
    propose_procedure(services.store)


def states(api: httpx.Client) -> dict[str, str]:
    found = [
        each
        for state in ("open", "accepted", "rejected", "undone")
        for each in api.get("/api/proposals", params={"state": state}).json()["items"]
    ]
    return {each["kind"]: each["state"] for each in found}


def cards(page: Page) -> Locator:
    return page.locator(".proposal")


def badge(page: Page) -> Locator:
    return page.locator("#open-proposals")


def test_proposals_are_decided_and_taken_back_by_keys(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard")
    page.keyboard.press("w")
    page.wait_for_url("**/dashboard/review")
    expect(cards(page)).to_have_count(4)
    expect(badge(page)).to_have_text("4 open")
    page.keyboard.press("a")  # shows which it would be, and does nothing yet
    expect(cards(page).nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(cards(page).nth(1)).to_be_focused()
    kind = "pattern" if "Procedure" in (cards(page).nth(1).text_content() or "") else "merge"
    page.keyboard.press("a")
    expect(page.locator("#done")).to_contain_text("Accepted: ")
    expect(badge(page)).to_have_text("3 open")
    expect(cards(page).nth(1)).to_be_focused()
    assert states(api)[kind] == "accepted"
    page.keyboard.press("u")
    expect(page.locator("#done")).to_contain_text("Undone: ")
    assert states(api)[kind] == "undone"


def test_reason_and_text_are_typed_without_acting(page: Page, api: httpx.Client, services: TestServices) -> None:
    page.goto("/dashboard/review?kind=lesson")
    page.keyboard.press("j")
    page.keyboard.press("e")
    text = page.get_by_label("Text to write")
    expect(text).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("reject jak, or? start it first")
    page.keyboard.press("Escape")
    expect(text).to_be_hidden()
    expect(cards(page).nth(0)).to_be_focused()
    page.keyboard.press("e")
    page.get_by_role("button", name="Accept this text").click()
    expect(page.locator("#done")).to_contain_text("Accepted: Repeated error")
    (written,) = services.settings.topics_dir.rglob("lessons.md")
    assert "- reject jak, or? start it first" in written.read_text()

    page.goto("/dashboard/review?kind=pattern")
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.keyboard.type("just a habit")
    page.keyboard.press("Enter")
    expect(page.locator("#done")).to_contain_text("Rejected: Procedure")
    (rejected,) = api.get("/api/proposals", params={"state": "rejected"}).json()["items"]
    assert rejected["reason"] == "just a habit"


def test_what_is_typed_is_asked_about_before_another_decision(page: Page) -> None:
    page.goto("/dashboard/review")
    lesson = page.locator(".proposal", has_text="Repeated error")
    lesson.locator("summary", has_text="Edit").click()
    lesson.get_by_label("Text to write").fill("Mine")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.locator(".proposal", has_text="Procedure").get_by_role("button", name="Accept", exact=True).click()
    expect(lesson.get_by_label("Text to write")).to_have_value("Mine")
    assert len(asked) == 1
    expect(cards(page)).to_have_count(4)
    lesson.get_by_role("button", name="Accept this text").click()
    expect(cards(page)).to_have_count(3)


def test_whole_kind_is_decided_on_by_one_press(page: Page, api: httpx.Client, services: TestServices) -> None:
    propose_procedure(services.store, "friday")
    page.goto("/dashboard/review")
    page.get_by_role("link", name="Keep a procedure: 2").click()
    page.get_by_label("Reason", exact=True).first.fill("habits")
    page.keyboard.press("Enter")
    expect(page.locator("#done")).to_contain_text("2 rejected.")
    expect(badge(page)).to_have_text("3 open")
    assert states(api)["pattern"] == "rejected"
    page.get_by_role("button", name="Undo all 2").click()
    expect(page.locator("#done")).to_contain_text("2 open again.")
    page.get_by_role("button", name="Accept 2").click()
    expect(page.locator("#done")).to_contain_text("2 accepted.")
    assert states(api)["pattern"] == "accepted"


def test_duplicates_above_a_threshold_are_merged_by_one_click(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/review?kind=merge")
    page.get_by_label("Least confidence").fill("0.95")
    expect(page.locator("#filters output")).to_have_text("0.95")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**/dashboard/review?kind=merge&confidence=0.95")
    expect(page.locator("figcaption b")).to_have_text(["Older", "Newer"])
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(page.locator("#done")).to_contain_text("Accepted: Says the same")
    assert api.get("/api/episodes/port").json()["superseded_by"] == "port-again"
    page.keyboard.press("u")
    expect(page.locator("#done")).to_contain_text("Undone: ")
    assert api.get("/api/episodes/port").json()["superseded_by"] is None


def test_keys_of_the_page_are_in_the_list_of_shortcuts(page: Page) -> None:
    page.goto("/dashboard/review")
    page.keyboard.press("?")
    listed = page.locator("#shortcuts")
    expect(listed).to_contain_text("Next proposal")
    expect(listed).not_to_contain_text("Sources")
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    page.get_by_label("Single letters go to pages").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator(".proposal:focus")).to_have_count(0)


def test_page_works_without_scripts(browser: Browser, api: httpx.Client) -> None:
    context = browser.new_context(base_url=str(api.base_url), java_script_enabled=False)
    page = context.new_page()
    page.goto("/dashboard/review?kind=merge")
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(page.locator("#done")).to_contain_text("Accepted: Says the same")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#done")).to_contain_text("Undone: ")
    page.get_by_role("button", name="Dream now").click()
    expect(page.locator("h1")).to_have_text("Review")
    assert states(api)["merge"] == "undone"
    context.close()


@pytest.mark.screen(dark=True)
def test_anybody_can_use_the_page_in_dark(page: Page) -> None:
    page.goto("/dashboard/review?state=all")
    for summary in page.locator(".proposal summary").all():
        summary.click()
    assert_anybody_can_use(page)


def test_anybody_can_use_the_page(page: Page) -> None:
    page.goto("/dashboard/review?kind=merge")
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(page.locator("#done")).to_be_visible()
    assert_anybody_can_use(page)

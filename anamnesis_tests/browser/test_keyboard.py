"""Whole flows without a mouse: Tab, Enter, Space and letters alone."""

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.support.chat_services import WORDS

pytestmark = pytest.mark.timeout(300)

MAX_TABS = 80


def focused(page: Page) -> str:
    """What somebody hears of the element that has the focus: its label or its words."""
    return str(
        page.evaluate(
            """() => { const at = document.activeElement, label = at.labels && at.labels[0];
            return (at.ariaLabel || (label && label.textContent) || at.textContent || "").trim(); }"""
        )
    )


def tab_to(page: Page, words: str) -> None:
    """Press Tab until what has the focus begins with these words; it must be seen to have it."""
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        if focused(page).startswith(words):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {words!r} cannot be seen"
            return
    pytest.fail(f"{MAX_TABS} times Tab did not lead to {words!r}")


@pytest.mark.parametrize("undo_s", [600.0])
def test_episode_is_found_edited_deleted_and_taken_back(page: Page, post: Post, api: httpx.Client) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.goto("/dashboard")
    page.keyboard.press("/")
    page.keyboard.type("harbour crane")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/search?**")
    tab_to(page, "The harbour crane was moved")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/episodes/crane")

    tab_to(page, "☆ Pin")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="★ Pinned")).to_be_focused()
    tab_to(page, "Edit")
    page.keyboard.press("Enter")
    tab_to(page, "Summary")
    page.keyboard.press("Control+A")
    page.keyboard.type("The crane stays")
    tab_to(page, "Save")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("The crane stays")
    assert api.get("/api/episodes/crane").json()["summary"] == "The crane stays"

    tab_to(page, "Delete")
    page.keyboard.press("Enter")
    tab_to(page, "Delete this episode")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Being deleted")
    tab_to(page, "Take back")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("The crane stays")
    assert api.get("/api/episodes/crane").status_code == 200


@pytest.mark.usefixtures("lasting_toasts")
def test_what_was_done_is_undone_by_ctrl_z_without_letters_too(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.goto("/dashboard/episodes/crane")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    page.get_by_label("Single letters go to pages").uncheck()
    page.locator("#shortcuts").get_by_role("button", name="Close").click()
    expect(page.locator("#shortcuts")).to_be_hidden()
    page.keyboard.press("s")
    tab_to(page, "☆ Pin")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="★ Pinned")).to_be_focused()
    expect(page.locator(".htmx-settling")).to_have_count(0)  # until then nothing hears that it was undone
    page.keyboard.press("u")
    page.keyboard.press("Control+z")
    expect(page.get_by_role("button", name="☆ Pin")).to_be_visible()
    expect(page.locator(".toast")).to_have_text(["Undone."])


def test_keys_and_colours_work_where_the_browser_keeps_nothing(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    refuses = """get() { throw new DOMException("not for this page", "SecurityError"); }"""
    for storage in ("localStorage", "sessionStorage"):
        page.add_init_script(f"""Object.defineProperty(window, "{storage}", {{ {refuses} }});""")
    page.goto("/dashboard")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("?")
    page.get_by_label("Single letters go to pages").uncheck()
    page.get_by_label("Single letters go to pages").check()
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    page.wait_for_url("**/dashboard/search")
    page.locator("#q").fill("crane")
    page.keyboard.press("Enter")
    expect(page.locator("#recent a")).to_have_text("crane")
    page.locator("#recent").get_by_role("button", name="Clear").click()
    expect(page.locator("#recent a")).to_have_count(0)
    page.goto("/chat")
    expect(page.locator("#model optgroup option", has_text="qwen3:4b")).to_be_attached()
    page.locator("#message").fill("Where is the crane?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant .said")).to_contain_text("".join(WORDS))


def test_undo_stays_as_long_as_it_has_the_focus(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.clock.install()
    page.goto("/dashboard/episodes/crane")
    for goes in (False, True):
        tab_to(page, "☆ Pin")
        page.keyboard.press("Space")
        expect(page.get_by_role("button", name="★ Pinned")).to_be_focused()
        tab_to(page, "Undo")
        page.clock.run_for(60_000)
        expect(page.get_by_role("button", name="Undo")).to_be_focused()
        if goes:
            break
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="☆ Pin")).to_be_visible()
        expect(page.get_by_role("button", name="Undo")).to_have_count(0)
        page.wait_for_function("document.activeElement !== document.body")
    page.keyboard.press("Shift+Tab")
    page.clock.run_for(2_000)
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)


def test_a_conversation_is_held_rated_and_deleted(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard")
    page.keyboard.press("c")
    page.wait_for_url("**/chat")
    expect(page.locator("#model option").first).to_be_attached()
    tab_to(page, "Message")
    page.keyboard.type("Where is the crane?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant .said")).to_contain_text("".join(WORDS))
    expect(page.locator("#message")).to_be_focused()
    page.keyboard.press("Escape")
    page.goto(page.url)
    tab_to(page, "Delete")
    page.keyboard.press("Enter")
    expect(page.locator("#delete-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#delete-dialog")).not_to_be_visible()
    expect(page.get_by_role("button", name="Delete").first).to_be_focused()
    tab_to(page, "Good answer")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Good answer")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name="Good answer")).to_be_focused()
    (session,) = api.get("/api/chat/sessions").json()["sessions"]
    (_, answer) = api.get(f"/api/chat/sessions/{session['session_id']}").json()["messages"]
    assert answer["feedback"] == 1

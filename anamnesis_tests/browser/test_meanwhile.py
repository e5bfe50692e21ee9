"""While an answer is on its way: what is said, and what can be done until it is there."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import FilePayload, Locator, Page, Route, expect

from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import PHONE

pytestmark = pytest.mark.timeout(300)


class Held:
    """Requests to some addresses, which wait until they are let go or fail."""

    def __init__(self, page: Page, addresses: str) -> None:
        self.routes: list[Route] = []
        self._end: Callable[[Route], None] | None = None
        page.route(addresses, self._take)

    def let_go(self) -> None:
        """Those that wait, and all that come."""
        self._end_all(Route.continue_)

    def fail(self) -> None:
        """Those that wait, and all that come, as where the server is gone."""
        self._end_all(Route.abort)

    def _end_all(self, end: Callable[[Route], None]) -> None:
        self._end = end
        while self.routes:
            end(self.routes.pop())

    def _take(self, route: Route) -> None:
        if self._end is None:
            self.routes.append(route)
        else:
            self._end(route)


def hold(page: Page, addresses: str, press: Callable[[], object]) -> Held:
    """Press something whose request waits then."""
    held = Held(page, addresses)
    with page.expect_request(addresses):
        press()
    return held


# --- what is said


def test_whoever_waits_for_a_machine_is_told_so(page: Page) -> None:
    page.goto("/dashboard/sources")
    waits = page.locator("#source-form .waits")
    expect(waits).to_have_css("opacity", "0")
    page.get_by_label("Folder", exact=True).fill("/nowhere/at/all")
    for button, address in (("Try it first", "**/sources/try"), ("Add and read it", "**/sources/save")):
        held = hold(page, address, page.get_by_role("button", name=button).click)
        expect(waits).to_have_css("opacity", "1")
        held.let_go()
        expect(waits).to_have_css("opacity", "0")


# --- what is replaced takes nothing until then


CRANE = "The harbour crane was moved to Thursday"


def try_to_type(page: Page, field: Locator) -> None:
    """As whoever sees it does, whether or not it takes what is typed."""
    field.click(force=True)
    page.keyboard.type("harbour")


def test_episode_drawn_anew_takes_nothing_and_keeps_the_focus(page: Page, post: Post, api: httpx.Client) -> None:
    post("crane", CRANE)
    page.goto("/dashboard/episodes/crane")
    page.locator("#edit-sheet > summary").click()
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(asked.url) if asked.method == "POST" else None)
    held = hold(page, "**/dashboard/episode/*", page.locator("#pin").click)
    expect(page.locator("#episode")).to_have_attribute("aria-busy", "true")
    try_to_type(page, page.get_by_label("Summary", exact=True))
    expect(page.locator("#e-summary")).to_have_value(CRANE)
    page.locator("#note-add").click(force=True)
    page.locator("#pin").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#pin")).to_be_focused()
    expect(page.locator("#pin")).to_have_attribute("aria-disabled", "true")
    held.let_go()
    expect(page.get_by_role("button", name="★ Pinned")).to_be_focused()
    expect(page.locator("[inert], [aria-busy], [aria-disabled]")).to_have_count(0)
    assert [address.rpartition("/")[2] for address in sent] == ["pin"]
    assert api.get("/api/episodes/crane").json()["tags"] == ["pinned"]


def test_what_gets_no_answer_can_be_used_again(page: Page, post: Post) -> None:
    post("crane", CRANE)
    page.goto("/dashboard/episodes/crane")
    page.get_by_label("New note").fill("Ask the office")
    held = hold(page, "**/dashboard/episode/*", page.locator("#note-add").click)
    expect(page.locator("#episode")).to_have_attribute("aria-busy", "true")
    held.fail()
    expect(page.locator(".toast.bad")).to_contain_text("The server cannot be reached.")
    expect(page.locator("[inert], [aria-busy], [aria-disabled]")).to_have_count(0)
    expect(page.locator("#note-add")).to_be_focused()
    expect(page.get_by_label("New note")).to_have_value("Ask the office")
    held.let_go()
    page.locator("#note-add").click()
    expect(page.locator(".note")).to_have_text("Ask the office")


def test_field_that_is_sent_from_gets_its_focus_back(page: Page) -> None:
    page.goto("/dashboard/logs")
    dollars = page.get_by_label("Dollars a day")
    dollars.fill("2.5")
    held = hold(page, "**/logs/settings", lambda: page.keyboard.press("Enter"))
    expect(page.locator("#settings")).to_have_attribute("aria-busy", "true")
    page.keyboard.type("99")
    try_to_type(page, page.get_by_label("Time zone"))
    held.let_go()
    expect(page.locator("#set-llm_daily_dollars-from")).to_have_text("set here")
    expect(dollars).to_have_value("2.5")
    expect(dollars).to_be_focused()
    expect(page.get_by_label("Time zone")).not_to_have_value("harbour")


def test_episodes_are_not_chosen_while_others_are_pinned(page: Page, post: Post) -> None:
    post("crane", CRANE)
    post("pump", "The cistern pump was replaced")
    page.goto("/dashboard/episodes")
    page.locator("input.pick[value=crane]").check()
    held = hold(page, "**/dashboard/episodes", page.locator("#bulk-pin").click)
    pump = page.locator("input.pick[value=pump]")
    pump.click(force=True)
    expect(pump).not_to_be_checked()
    held.let_go()
    expect(page.locator(".episode.is-pinned")).to_have_count(1)
    expect(page.locator("#bulk-pin")).to_be_focused()
    pump.check()
    expect(page.locator("#picked")).to_have_text("2 chosen")


def test_a_pattern_is_not_typed_over_while_one_is_added(page: Page) -> None:
    page.goto("/dashboard/sources")
    page.get_by_label("Holds", exact=True).fill("postmortem")
    page.locator("#tag-tag").fill("incident")
    held = hold(page, "**/tags/add", page.locator("#tag-add").click)
    try_to_type(page, page.get_by_label("Holds", exact=True))
    expect(page.get_by_label("Holds", exact=True)).to_have_value("postmortem")
    held.let_go()
    expect(page.get_by_role("button", name="Remove incident")).to_be_visible()


def test_cores_are_not_chosen_while_a_choice_is_under_way(page: Page) -> None:
    page.goto("/dashboard/embedding")
    held = hold(page, "**/embedding/cores", page.get_by_role("button", name="25%").click)
    other = page.get_by_role("button", name="100%", include_hidden=True)
    other.click(force=True)
    expect(other).to_have_css("opacity", "0.55")
    assert len(held.routes) < 2
    held.let_go()
    expect(page.locator("#cores [name=share][aria-pressed=true]")).to_be_focused()
    other.click()
    expect(page.locator("#cores [name=share][aria-pressed=true]")).to_have_text("100%")


def test_what_asks_by_itself_holds_nothing_up(page: Page) -> None:
    page.goto("/dashboard/sources")
    held = hold(page, "**/sources/state*", page.reload)
    expect(page.locator("#state.htmx-request")).to_have_count(1)
    expect(page.locator("[inert], [aria-busy]")).to_have_count(0)
    held.let_go()


def test_button_that_asks_again_keeps_the_focus(page: Page) -> None:
    page.goto("/dashboard/health")
    for name, asked in (("#ask-again", "**/health/resources"), ("#check-again", "**/health/checks")):
        button = page.locator(name)
        expect(button).to_be_visible()
        expect(page.locator(".htmx-request")).to_have_count(0)
        held = hold(page, asked, button.click)
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(button).to_be_focused()
        page.keyboard.press("Enter")
        assert len(held.routes) < 2
        held.let_go()
        expect(button).not_to_have_attribute("aria-disabled", "true")
        expect(button).to_be_focused()


def test_button_that_hands_in_does_so_once(page: Page) -> None:
    page.goto("/dashboard/sources")
    form = page.get_by_role("form", name="A file")
    text = FilePayload(name="tides.md", mimeType="text/markdown", buffer=b"# Tides\n\nHigh water is at noon today.\n")
    form.get_by_label("File, of at most 50 MiB").set_input_files([text])
    button = form.get_by_role("button", name="Hand it in")
    held = hold(page, "**/api/uploads", button.click)
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    assert len(held.routes) < 2
    held.let_go()
    expect(form.locator(".told")).to_contain_text("1 section.")
    expect(button).to_be_focused()


def test_a_text_that_was_loaded_has_the_focus(page: Page, post: Post) -> None:
    post("crane", CRANE, raw_exchange="The harbour crane. " * 5000 + "The last rope is new.")
    page.goto("/dashboard/episodes/crane")
    page.locator("details > summary", has_text="characters").click()
    page.get_by_role("button", name="Load all of it").click()
    expect(page.get_by_role("button", name="Copy text")).to_be_visible()
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator("#text")).to_contain_text("The last rope is new.")


# --- what is drawn anew by itself


def add_source(api: httpx.Client, name: str, folder: Path) -> None:
    reply = api.put(f"/api/sources/{name}", json={"kind": "documents", "root": str(folder)})
    assert reply.status_code == 200, reply.text


def draw_anew(page: Page) -> None:
    """As every few seconds, and after each toast."""
    with page.expect_response("**/sources/state*"):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('toast', { detail: { text: 'Now.' } }))")


@pytest.mark.screen(width=PHONE)
def test_part_drawn_anew_stays_scrolled_and_focused(page: Page, api: httpx.Client, tmp_path: Path) -> None:
    add_source(api, "one", tmp_path / "nowhere")
    page.goto("/dashboard/sources")
    expect(page.locator(".htmx-request")).to_have_count(0)
    table = page.get_by_role("region", name="Table: Configured sources")
    table.evaluate("element => element.scrollTo({ left: 90 })")
    table.focus()
    page.locator("#wrong-one > summary").click()
    for name, focused in (("two", table), ("three", page.locator("#wrong-one > summary"))):
        focused.focus()
        add_source(api, name, tmp_path / name)
        draw_anew(page)
        expect(page.locator(f"#run-{name}")).to_be_attached()
        expect(focused).to_be_focused()
        expect(page.locator("#wrong-one")).to_have_attribute("open", "")
        assert table.evaluate("element => element.scrollLeft") == 90


def test_a_button_that_is_held_down_stays_in_the_page(page: Page, api: httpx.Client, tmp_path: Path) -> None:
    add_source(api, "one", tmp_path)
    page.goto("/dashboard/sources")
    expect(page.locator(".htmx-request")).to_have_count(0)
    add_source(api, "two", tmp_path / "other")
    page.locator("#run-one").hover()
    page.mouse.down()
    draw_anew(page)
    expect(page.locator(".htmx-request")).to_have_count(0)
    page.mouse.up()
    expect(page.locator("#look-told")).to_contain_text("Polled: nothing new.")
    draw_anew(page)
    expect(page.locator("#run-two")).to_be_visible()


def test_folders_that_could_not_be_asked_for_are_asked_for_again(page: Page) -> None:
    page.goto("/dashboard/sources")
    summary = page.locator("#log-folders > summary")
    held = hold(page, "**/sources/log-folders", summary.click)
    held.fail()
    expect(page.locator(".toast.bad")).to_contain_text("The server cannot be reached.")
    held.let_go()
    summary.click()
    expect(page.locator("#log-folders")).not_to_contain_text("Looking …")
    summary.click()
    expect(page.locator("#log-folders")).to_contain_text("None was found.")


def test_taking_back_leaves_what_is_chosen_and_typed_since(page: Page, post: Post) -> None:
    for name in ("crane", "pump"):
        post(name, CRANE)
    page.goto("/dashboard/episodes")
    page.locator("input.pick[value=crane]").check()
    page.locator("#bulk-pin").click()
    expect(page.locator(".is-pinned")).to_have_count(1)
    page.locator("input.pick[value=crane]").uncheck()
    page.locator("input.pick[value=pump]").check()
    page.locator("#bulk-tags > summary").click()
    page.locator("#bulk-tag").fill("checked")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".is-pinned")).to_have_count(0)
    expect(page.locator("#picked")).to_have_text("1 chosen")
    expect(page.locator("input.pick[value=pump]")).to_be_checked()
    expect(page.locator("#bulk-tag")).to_have_value("checked")
    expect(page.locator("#bulk-tag")).to_be_visible()
    page.locator("#bulk-pin").click()
    expect(page.locator(".is-pinned")).to_have_count(1)
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator(".is-pinned")).to_have_count(0)

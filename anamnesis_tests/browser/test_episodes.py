"""Episodes in the browser: chosen, edited, superseded, deleted, and all of it taken back."""

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import assert_anybody_can_use

pytestmark = pytest.mark.timeout(300)
takes_its_time = pytest.mark.parametrize("undo_s", [600.0])
"""What is deleted can be taken back for as long as a busy machine may need."""

CRANE = "The harbour crane was moved to Thursday"


@pytest.fixture(autouse=True)
def _stored(post: Post) -> None:
    post("crane", CRANE, tags=["harbour"])
    post("pump", "The cistern pump was replaced", kind="note", project="garden")
    post("tide", "Tide tables are read from the harbour office", kind="note")


def of(api: httpx.Client, episode_id: str) -> dict[str, object]:
    found: dict[str, object] = api.get(f"/api/episodes/{episode_id}").json()
    return found


def toast(page: Page, text: str) -> Locator:
    return page.locator(".toast", has_text=text)


def undo(page: Page, text: str) -> None:
    """Press the button of the toast that says `text`, and wait for the answer to it."""
    toast(page, text).get_by_role("button", name="Undo").click()
    expect(toast(page, "Undone.").last).to_be_visible()


def listed(page: Page) -> list[str]:
    return [str(box.get_attribute("value")) for box in page.locator("input.pick").all()]


def choose(page: Page, *ids: str) -> None:
    for name in ids:
        page.locator(f"input.pick[value={name}]").check()


# --- one


def test_what_is_typed_is_asked_about_before_it_is_lost(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    note = page.get_by_label("New note")
    note.fill("Ask the harbour office first")
    page.locator("#edit-sheet > summary").click()
    page.get_by_label("Project", exact=True).fill("harbour")
    asked: list[str] = []
    for button in ("Save", "Pin"):
        page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
        page.get_by_role("button", name=button).click()
    assert asked == [
        "What you typed under New note is not saved. Go on without it?",
        "What you typed under Edit and New note is not saved. Go on without it?",
    ]
    page.get_by_label("Project", exact=True).fill("acme")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".note")).to_have_text("Ask the harbour office first")
    page.get_by_role("button", name="Remove the note: Ask the harbour office first").click()
    expect(page.locator("main")).to_contain_text("No notes yet.")
    assert of(api, "crane")["metadata"] == {}
    page.get_by_label("New note").fill("Half a sentence")
    assert "pinned" not in of(api, "crane")["tags"]  # type: ignore[operator]
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Pin").click()
    expect(page.get_by_role("button", name="Pinned")).to_be_visible()


def test_a_key_or_a_link_away_from_what_is_typed_asks_first(page: Page) -> None:
    page.goto("/dashboard/episodes/crane")
    page.locator("#edit-sheet > summary").click()
    page.get_by_label("Summary", exact=True).fill("Half a sentence")
    page.locator("#edit-sheet > summary").focus()
    for leave in (lambda: page.keyboard.press("o"), page.get_by_role("link", name="Overview").click):
        with page.expect_event("dialog") as asked:
            page.once("dialog", lambda dialog: dialog.dismiss())
            leave()
        assert asked.value.type == "beforeunload"
        expect(page.get_by_label("Summary", exact=True)).to_have_value("Half a sentence")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("Half a sentence")
    page.get_by_role("link", name="Overview").click()
    page.wait_for_url("**/dashboard")


@pytest.mark.usefixtures("lasting_toasts")
def test_edit_is_stored_and_undo_puts_the_old_text_back(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    page.locator("#edit-sheet > summary").click()
    page.get_by_label("Summary", exact=True).fill("The crane stays on Wednesday")
    page.get_by_label("Project", exact=True).fill("harbour")
    page.get_by_label("Tags, one a line").fill("harbour\ncrane")
    assert_anybody_can_use(page)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("The crane stays on Wednesday")
    edited = of(api, "crane")
    told = (edited["summary"], edited["project"], edited["tags"])
    assert told == ("The crane stays on Wednesday", "harbour", ["harbour", "crane"])
    undo(page, "Saved.")
    expect(page.locator("h1")).to_have_text(CRANE)
    assert (of(api, "crane")["summary"], of(api, "crane")["tags"]) == (CRANE, ["harbour"])


def test_superseded_episode_comes_back_with_a_button(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    page.locator("#supersede-sheet > summary").click()
    page.locator("#successor").press_sequentially("tide tables")
    page.keyboard.press("Enter")
    expect(page.locator("#successors li").first).to_be_visible()
    assert_anybody_can_use(page)
    page.locator("#successors li", has_text="Tide tables").get_by_role("button", name="By this").click()
    expect(page.locator("main [role=status]").first).to_contain_text("Superseded by tide")
    assert (of(api, "crane")["status"], of(api, "crane")["superseded_by"]) == ("superseded", "tide")
    page.goto("/dashboard/episodes")
    expect(page.locator("input.pick[value=tide]")).to_be_visible()
    assert "crane" not in listed(page)
    page.goto("/dashboard/episodes/crane")
    page.get_by_role("button", name="Make current again").click()
    expect(toast(page, "Current again.")).to_be_visible()
    assert of(api, "crane")["status"] == "active"


@takes_its_time
@pytest.mark.usefixtures("lasting_toasts")
def test_deleted_episode_is_hidden_and_undo_brings_it_back(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    page.locator("#delete-sheet > summary").click()
    page.get_by_role("button", name="Delete this episode").click()
    expect(page.locator("h1")).to_have_text("Being deleted")
    expect(toast(page, "Deleted.")).to_be_visible()
    assert_anybody_can_use(page)
    undo(page, "Deleted.")
    expect(page.locator("h1")).to_have_text(CRANE)
    page.locator("#delete-sheet > summary").click()
    page.get_by_role("button", name="Delete this episode").click()
    page.get_by_role("link", name="To all episodes").click()
    expect(page.locator("input.pick[value=tide]")).to_be_visible()
    assert "crane" not in listed(page)
    page.goto("/dashboard/episodes/crane")
    page.get_by_role("button", name="Take back").click()
    expect(page.locator("h1")).to_have_text(CRANE)
    assert of(api, "crane")["status"] == "active"


@takes_its_time
@pytest.mark.usefixtures("lasting_toasts")
def test_what_nobody_takes_back_is_gone(page: Page, api: httpx.Client, too_late: Callable[[], None]) -> None:
    page.goto("/dashboard/episodes/crane")
    page.locator("#delete-sheet > summary").click()
    page.get_by_role("button", name="Delete this episode").click()
    expect(toast(page, "Deleted.")).to_be_visible()
    assert api.get("/api/episodes/crane").status_code == 200
    too_late()
    assert api.get("/api/episodes/crane").status_code == 404
    toast(page, "Deleted.").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast.bad")).to_contain_text("It is too late")
    page.goto("/dashboard/episodes/crane")
    expect(page.locator("h1")).to_have_text("Not found")


# --- several


def test_chosen_episodes_are_tagged_together_and_stay_chosen(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes")
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_disabled()
    choose(page, "crane", "pump")
    expect(page.locator("#picked")).to_have_text("2 chosen")
    page.locator("#bulk-tags > summary").click()
    page.locator("#bulk-tag").fill("checked")
    assert_anybody_can_use(page)
    page.keyboard.press("Enter")
    expect(toast(page, "2 episodes tagged checked.")).to_be_visible()
    assert [of(api, name)["tags"] for name in ("crane", "pump", "tide")] == [["harbour", "checked"], ["checked"], []]
    expect(page.locator("#picked")).to_have_text("2 chosen")
    page.locator("#bulk-tags > summary").click()
    page.locator("#bulk-tag").fill("checked")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(toast(page, "2 episodes without checked.")).to_be_visible()
    assert of(api, "pump")["tags"] == []


def delete_two(page: Page) -> None:
    """Of the three episodes on the page."""
    page.goto("/dashboard/episodes")
    choose(page, "crane", "tide")
    page.locator("#bulk-delete > summary").click()
    page.get_by_role("button", name="Delete selected").click()
    expect(page.locator("input.pick")).to_have_count(1)


@takes_its_time
@pytest.mark.usefixtures("lasting_toasts")
def test_chosen_episodes_are_deleted_and_taken_back_together(page: Page, api: httpx.Client) -> None:
    delete_two(page)
    expect(page.locator("#episodes")).to_contain_text("2 of them being deleted")
    undo(page, "2 episodes deleted.")
    expect(page.locator("input.pick")).to_have_count(3)
    assert {of(api, name)["status"] for name in ("crane", "tide")} == {"active"}
    delete_two(page)
    page.get_by_role("button", name="Take back").click()
    expect(page.locator(".toast")).to_have_text(["Undone."])  # what the page took back no toast offers any more
    delete_two(page)
    page.goto("/dashboard")
    page.goto("/dashboard/episodes")
    assert_anybody_can_use(page)
    page.get_by_role("button", name="Take back").click()
    expect(page.locator("input.pick")).to_have_count(3)
    assert {of(api, name)["status"] for name in ("crane", "tide")} == {"active"}


@takes_its_time
@pytest.mark.parametrize("chooses", [False, True])
def test_list_tells_of_deletions_that_are_over_and_stays_chosen(
    page: Page, api: httpx.Client, too_late: Callable[[], None], chooses: bool
) -> None:
    page.clock.install()
    delete_two(page)
    expect(page.locator("#episodes")).to_contain_text("2 of them being deleted")
    if chooses:
        choose(page, "pump")
        page.locator("#bulk-tags > summary").click()
        page.locator("#bulk-tag").fill("checked")
    too_late()
    assert api.get("/api/episodes/tide").status_code == api.get("/api/episodes/crane").status_code == 404
    page.clock.fast_forward(12_000)
    expect(page.locator("#in-all")).to_have_text("1 in all")
    expect(page.get_by_role("button", name="Take back")).to_have_count(0)
    expect(page.locator("#picked")).to_have_text("1 chosen" if chooses else "none chosen")
    if chooses:
        expect(page.locator("#bulk-tag")).to_be_focused()
        expect(page.locator("#bulk-tag")).to_have_value("checked")


@takes_its_time
def test_page_all_deleted_shows_the_next(
    page: Page, post: Post, api: httpx.Client, too_late: Callable[[], None]
) -> None:
    for number in range(25):
        post(f"n{number}", f"Note {number}")
    page.clock.install()
    page.goto("/dashboard/episodes")
    page.get_by_label("All on this page").check()
    page.locator("#bulk-delete > summary").click()
    page.get_by_role("button", name="Delete selected").click()
    expect(page.locator(".empty")).to_have_text("All of this page is being deleted.")
    too_late()
    assert len(api.get("/api/episodes?limit=100").json()["items"]) == 3
    page.clock.fast_forward(12_000)
    expect(page.locator("input.pick")).to_have_count(3)

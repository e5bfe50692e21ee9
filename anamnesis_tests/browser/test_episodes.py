"""Episodes in the browser: chosen, edited, pinned, superseded, copied, deleted, and all of it taken back."""

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


def test_what_is_typed_and_not_saved_is_asked_about_before_it_is_lost(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    page.locator("#edit-sheet > summary").click()
    page.get_by_label("Summary", exact=True).fill("Half a sentence")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Pin").click()
    expect(page.get_by_label("Summary", exact=True)).to_have_value("Half a sentence")
    assert asked == ["What you typed under Edit is not saved. Go on without it?"]
    assert "pinned" not in of(api, "crane")["tags"]
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Pin").click()
    expect(page.get_by_role("button", name="Pinned")).to_be_visible()
    assert of(api, "crane")["summary"] == CRANE


def test_a_note_that_is_typed_is_asked_about_before_it_is_lost(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    note = page.get_by_label("New note")
    note.fill("Ask the harbour office first")
    page.locator("#edit-sheet > summary").click()
    page.get_by_label("Project", exact=True).fill("harbour")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Save").click()
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Pin").click()
    assert asked == [
        "What you typed under New note is not saved. Go on without it?",
        "What you typed under Edit and New note is not saved. Go on without it?",
    ]
    page.get_by_label("Project", exact=True).fill("acme")
    with page.expect_event("dialog") as left:
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("link", name="Overview").click()
    assert left.value.type == "beforeunload"
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".note")).to_have_text("Ask the harbour office first")
    page.get_by_role("link", name="Overview").click()
    page.wait_for_url("**/dashboard")
    assert "pinned" not in of(api, "crane")["tags"]  # type: ignore[operator]


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
def test_what_was_edited_is_stored_and_undo_puts_the_old_text_back(page: Page, api: httpx.Client) -> None:
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


def test_saving_what_somebody_else_edited_meanwhile_is_refused_in_words(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    api.patch("/api/episodes/crane", json={"summary": "Moved to Friday"}).raise_for_status()
    page.locator("#edit-sheet > summary").click()
    page.get_by_label("Summary", exact=True).fill("Moved to Saturday")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toast.bad")).to_contain_text("Somebody else edited this meanwhile")
    assert of(api, "crane")["summary"] == "Moved to Friday"
    assert page.get_by_label("Summary", exact=True).input_value() == "Moved to Saturday"


def test_a_pinned_episode_shows_it_and_is_unpinned_by_the_same_button(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    page.get_by_role("button", name="☆ Pin").click()
    pinned = page.get_by_role("button", name="★ Pinned")
    expect(pinned).to_have_attribute("aria-pressed", "true")
    expect(pinned).to_be_focused()
    assert "pinned" in of(api, "crane")["tags"]  # type: ignore[operator]
    pinned.click()
    expect(page.get_by_role("button", name="☆ Pin")).to_be_visible()
    assert of(api, "crane")["tags"] == ["harbour"]


def test_a_note_is_kept_with_the_episode_until_it_is_removed(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes/crane")
    page.get_by_label("New note").fill("Ask the harbour office first")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".note")).to_have_text("Ask the harbour office first")
    (note,) = of(api, "crane")["metadata"]["notes"]  # type: ignore[index]
    assert note["text"] == "Ask the harbour office first"
    page.get_by_role("button", name="Remove the note: Ask the harbour office first").click()
    expect(page.locator("main")).to_contain_text("No notes yet.")
    assert of(api, "crane")["metadata"] == {}


def test_a_superseded_episode_leaves_searches_and_comes_back_with_a_button(page: Page, api: httpx.Client) -> None:
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


def test_id_and_text_are_copied_to_the_clipboard(page: Page) -> None:
    page.goto("/dashboard/episodes/crane")
    for button, copied in {"Copy id": "crane", "Copy text": CRANE}.items():
        page.get_by_role("button", name=button).click()
        expect(toast(page, "Copied.").last).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == copied


def test_a_long_text_is_loaded_whole_by_a_button(page: Page, post: Post) -> None:
    text = "All valves were checked. " * 4_000 + "The last one leaks."
    post("valves", "Valves were checked", raw_exchange=text)
    page.goto("/dashboard/episodes/valves")
    expect(page.locator("#text-title")).to_be_visible()
    assert "The last one leaks." not in page.locator("#text").text_content()  # type: ignore[operator]
    page.locator("details", has=page.locator("#text")).locator("> summary").click()
    page.get_by_role("button", name="Load all of it").click()
    expect(page.locator("#text")).to_contain_text("The last one leaks.")


@takes_its_time
@pytest.mark.usefixtures("lasting_toasts")
def test_a_deleted_episode_is_hidden_everywhere_and_undo_brings_it_back(page: Page, api: httpx.Client) -> None:
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
    expect(toast(page, "2 episodes without checked now.")).to_be_visible()
    assert of(api, "pump")["tags"] == []


@pytest.mark.usefixtures("lasting_toasts")
def test_chosen_episodes_are_pinned_and_unpinned_together_and_undo_takes_it_back(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes")
    page.get_by_label("All on this page").check()
    expect(page.locator("#picked")).to_have_text("3 chosen")
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator(".episode.is-pinned")).to_have_count(3)
    undo(page, "3 episodes pinned.")
    expect(page.locator(".episode.is-pinned")).to_have_count(0)
    assert of(api, "pump")["tags"] == []
    page.get_by_label("All on this page").uncheck()
    choose(page, "pump")
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator(".episode.is-pinned")).to_have_count(1)
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator(".episode.is-pinned")).to_have_count(0)
    assert of(api, "pump")["tags"] == []


def delete_two(page: Page) -> None:
    """Of the three episodes on the page."""
    page.goto("/dashboard/episodes")
    choose(page, "crane", "tide")
    page.locator("#bulk-delete > summary").click()
    page.get_by_role("button", name="Delete what is chosen").click()
    expect(page.locator("input.pick")).to_have_count(1)


@takes_its_time
@pytest.mark.usefixtures("lasting_toasts")
def test_chosen_episodes_are_deleted_together_and_undo_brings_all_back(page: Page, api: httpx.Client) -> None:
    delete_two(page)
    expect(page.locator("#episodes")).to_contain_text("2 of them being deleted")
    undo(page, "2 episodes deleted.")
    expect(page.locator("input.pick")).to_have_count(3)
    assert {of(api, name)["status"] for name in ("crane", "tide")} == {"active"}


@takes_its_time
@pytest.mark.usefixtures("lasting_toasts")
def test_what_a_button_of_the_page_took_back_no_toast_offers_any_more(page: Page) -> None:
    delete_two(page)
    expect(page.locator(".toast").get_by_role("button", name="Undo")).to_be_visible()
    page.get_by_role("button", name="Take back").click()
    expect(page.locator(".toast")).to_have_text(["Undone."])


@takes_its_time
def test_who_went_elsewhere_meanwhile_takes_a_deletion_back_beside_the_list(page: Page, api: httpx.Client) -> None:
    delete_two(page)
    page.goto("/dashboard")
    page.goto("/dashboard/episodes")
    expect(page.locator("#episodes")).to_contain_text("2 of them being deleted")
    assert_anybody_can_use(page)
    page.get_by_role("button", name="Take back").click()
    expect(page.locator("input.pick")).to_have_count(3)
    assert {of(api, name)["status"] for name in ("crane", "tide")} == {"active"}


@takes_its_time
@pytest.mark.parametrize("chooses", [False, True])
def test_a_list_whose_deletions_are_over_says_so_by_itself_and_leaves_what_is_chosen(
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
def test_a_page_of_which_all_was_deleted_shows_what_comes_behind_it(
    page: Page, post: Post, api: httpx.Client, too_late: Callable[[], None]
) -> None:
    for number in range(25):
        post(f"n{number}", f"Note {number}")
    page.clock.install()
    page.goto("/dashboard/episodes")
    page.get_by_label("All on this page").check()
    page.locator("#bulk-delete > summary").click()
    page.get_by_role("button", name="Delete what is chosen").click()
    expect(page.locator(".empty")).to_have_text("All of this page is being deleted.")
    too_late()
    assert len(api.get("/api/episodes?limit=100").json()["items"]) == 3
    page.clock.fast_forward(12_000)
    expect(page.locator("input.pick")).to_have_count(3)


# --- the list


def test_filters_narrow_the_list_stay_in_the_address_and_are_cleared(page: Page) -> None:
    page.goto("/dashboard/episodes")
    page.locator("#filters summary").click()
    page.locator("#filters").get_by_label("Kind").fill("note")
    page.locator("#filters").get_by_label("Project", exact=True).fill("garden")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/dashboard/episodes?project=garden&kind=note")
    assert listed(page) == ["pump"]
    expect(page.locator("#filters .badge")).to_have_text(["project: garden", "kind: note"])
    page.locator("#filters summary").click()
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("input.pick")).to_have_count(3)
    page.goto("/dashboard/episodes?tag=nowhere")
    expect(page.locator(".empty")).to_contain_text("No episode passes these filters.")
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("input.pick")).to_have_count(3)


def test_older_and_newest_lead_through_a_long_list(page: Page, post: Post) -> None:
    for number in range(30):
        post(f"n{number}", f"Note {number}", timestamp=f"2026-03-01T10:{number:02}:00Z")
    page.goto("/dashboard/episodes")
    first = listed(page)
    page.get_by_role("link", name="Older →").click()
    expect(page.locator("#list-title")).to_have_text("Further back")
    assert len(first) == 25
    assert len(listed(page)) == 8
    assert not {*first} & {*listed(page)}
    page.get_by_role("link", name="Newest").click()
    expect(page.locator("#list-title")).to_have_text("Newest first")
    assert listed(page) == first

"""Buttons that are pressed seldom; with those of the other files here no button of any page is left out."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_pipeline.chat_model import ChatMessage, ChatSession
from anamnesis_pipeline.errors import StoreFull
from anamnesis_pipeline.steps.map_file import map_path, save_map
from anamnesis_pipeline.steps.map_picture import COLOURED
from anamnesis_pipeline.steps.memory_map import make_map
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.sidecar.conftest import TestServices, wait_for

pytestmark = pytest.mark.timeout(300)

BEGAN = datetime(2026, 3, 1, 10, tzinfo=UTC)


# --- every page


def test_the_keys_are_shown_and_closed(page: Page) -> None:
    page.goto("/dashboard")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    keys = page.locator("#shortcuts")
    expect(keys).to_be_visible()
    keys.get_by_role("button", name="Close").click()
    expect(keys).to_be_hidden()


# --- chat


def talk(services: TestServices, number: int, turns: int) -> None:
    """A conversation of so many questions with their answers."""
    began, name = BEGAN + timedelta(hours=number), f"s{number}"
    services.store.chat.put_session(ChatSession(name, f"Talk {number}", "ollama", "m", "", began, began))
    for turn in range(turns):
        at = began + timedelta(minutes=turn)
        services.store.chat.add(ChatMessage(f"{name}-q{turn}", name, "user", f"Question {turn}", at))
        services.store.chat.add(ChatMessage(f"{name}-a{turn}", name, "assistant", f"Answer {turn}", at))


def test_older_conversations_and_earlier_messages_are_led_to(page: Page, services: TestServices) -> None:
    for number in range(30):
        talk(services, number, turns=30 if number == 0 else 1)
    page.goto("/chat")
    titles = page.locator("#session-list .name")
    expect(titles.first).to_have_text("Talk 29")
    page.get_by_role("button", name="Older").click()
    expect(titles.first).to_have_text("Talk 4")
    page.get_by_role("button", name="Newest").click()
    expect(titles.first).to_have_text("Talk 29")

    page.goto("/chat/s0")
    expect(page.locator(".turn.user").first).to_contain_text("Question 10")
    page.get_by_role("button", name="Show earlier messages").click()
    expect(page.locator(".turn.user").first).to_contain_text("Question 0")
    expect(page.locator(".turn.user")).to_have_count(30)


def test_renaming_is_called_off_an_export_closed_and_a_file_chosen(
    page: Page, services: TestServices, api: httpx.Client
) -> None:
    talk(services, 0, turns=1)
    page.goto("/chat/s0")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title", exact=True).fill("Another name")
    page.locator("#rename-dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("#rename-dialog")).to_be_hidden()
    assert api.get("/api/chat/sessions/s0").json()["title"] == "Talk 0"
    page.get_by_role("button", name="Export").click()
    page.locator("#export-dialog").get_by_role("button", name="Close").click()
    expect(page.locator("#export-dialog")).to_be_hidden()
    with page.expect_file_chooser() as chosen:
        page.locator("label[for=attach]").click()
    assert chosen.value.is_multiple()


# --- episodes and timeline


@pytest.mark.parametrize("undo_s", [0.2])
def test_deletions_that_failed_are_told_until_somebody_has_read_it(
    page: Page, post: Post, services: TestServices, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.goto("/dashboard/episodes")

    def full(*_: object, **__: object) -> None:
        raise StoreFull("the disk has no room")

    with monkeypatch.context() as broken:
        broken.setattr("anamnesis_pipeline.sidecar.pages.undo.delete_episode", full)
        page.locator("input.pick[value=crane]").check()
        page.locator("#bulk-delete > summary").click()
        page.get_by_role("button", name="Delete what is chosen").click()
        expect(page.locator("input.pick")).to_have_count(0)
        wait_for(lambda: "is not deleted" in api.get("/dashboard/episodes").text)
        page.reload()
        expect(page.locator("[role=alert]")).to_contain_text("Deletions that failed:")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator("[role=alert]")).to_have_count(0)
    assert api.get("/api/episodes/crane").status_code == 200


def test_ranges_of_the_timeline_and_its_older_pages_are_led_to(page: Page, post: Post) -> None:
    for number in range(60):
        post(f"n{number}", f"Note {number}", timestamp=f"2026-03-01T10:{number:02}:00Z")
    page.goto("/dashboard/timeline")
    page.get_by_role("link", name="Older →").click()
    expect(page.locator("#list-title")).to_have_text("Further back")
    page.get_by_role("link", name="Newest", exact=True).click()
    expect(page.locator("#list-title")).to_have_text("Newest first")
    ranges = page.get_by_role("navigation", name="Ranges").get_by_role("link")
    for words in ranges.all_inner_texts():
        ranges.filter(has_text=re.compile(f"^{re.escape(words)}$")).click()
        expect(page.locator("nav[aria-label=Ranges] [aria-current=true]")).to_have_text(words)


# --- map


def test_a_newer_map_is_offered_and_the_lesser_projects_are_shown_together(
    page: Page, post: Post, services: TestServices
) -> None:
    for number in range(40):
        post(f"e{number}", f"Crane number {number} at the harbour", project=f"harbour-{number % (COLOURED + 3)}")
    active = services.store.spaces.active()
    assert active is not None
    drawn = make_map(services.store, active)
    save_map(map_path(services.settings.home), drawn)
    page.goto("/dashboard/map")
    expect(page.locator("#map-wait")).to_be_hidden()
    others = page.get_by_role("button", name=re.compile("3 others"))
    others.click()
    expect(others).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Zoom out").click()
    post("late", "A crane that came late")
    save_map(map_path(services.settings.home), make_map(services.store, active))
    shown = page.get_by_role("link", name="Show it")
    shown.click()
    expect(page.locator("main > p").first).to_contain_text("41 episodes")
    expect(page.locator("#map-newer")).to_be_hidden()


# --- sources


def test_a_source_is_left_as_it_is_read_alone_and_folders_are_filtered(
    page: Page, api: httpx.Client, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "harbour.md").write_text("# Harbour\n\nThe crane was moved to Thursday.\n")
    reply = api.put("/api/sources/harbour-notes", json={"kind": "documents", "root": str(notes)})
    assert reply.status_code == 200, reply.text
    page.goto("/dashboard/sources")
    page.get_by_role("link", name="Add a source").click()
    expect(page).to_have_url(re.compile("#add$"))
    page.get_by_role("link", name="Hand in a document").click()
    expect(page).to_have_url(re.compile("#hand-in$"))
    page.get_by_role("button", name="Read harbour-notes now").click()
    expect(page.locator("#look-told")).to_contain_text("Reading 1 folder.")
    page.get_by_role("link", name="Edit harbour-notes").click()
    expect(page.locator("#source-title")).to_have_text("Edit harbour-notes")
    page.get_by_role("link", name="Cancel").click()
    expect(page.locator("#source-title")).to_have_text("Add a source")
    page.get_by_label("Folder, machine or key holds").fill("nowhere")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("folder=nowhere"))


def test_a_folder_with_logs_that_is_found_is_taken_into_the_form(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tmp_path / "found" / ".claude" / "projects"
    (found / "acme").mkdir(parents=True)
    (found / "acme" / "one.jsonl").write_text("{}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "found"))
    page.goto("/dashboard/sources")
    page.locator("#log-folders > summary").click()
    page.get_by_role("row", name=str(found)).get_by_role("button", name="Add it").click()
    expect(page.get_by_label("Folder", exact=True)).to_have_value(str(found))

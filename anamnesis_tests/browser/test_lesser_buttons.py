"""Buttons that are pressed seldom."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_pipeline.model import ChatMessage, ChatSession
from anamnesis_pipeline.pipeline.memory_map import make_map, map_path, save_map
from anamnesis_pipeline.services.map_picture import COLOURED
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.sidecar.conftest import TestServices

pytestmark = pytest.mark.timeout(300)

BEGAN = datetime(2026, 3, 1, 10, tzinfo=UTC)


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


def test_renaming_is_called_off_and_a_file_chosen(page: Page, services: TestServices, api: httpx.Client) -> None:
    talk(services, 0, turns=1)
    page.goto("/chat/s0")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title", exact=True).fill("Another name")
    page.locator("#rename-dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator("#rename-dialog")).to_be_hidden()
    assert api.get("/api/chat/sessions/s0").json()["title"] == "Talk 0"
    with page.expect_file_chooser() as chosen:
        page.locator("label[for=attach]").click()
    assert chosen.value.is_multiple()


# --- map


def test_newer_map_is_offered_and_lesser_projects_shown(page: Page, post: Post, services: TestServices) -> None:
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


def test_found_folder_with_logs_is_taken_over(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "found" / ".claude" / "projects"
    (found / "acme").mkdir(parents=True)
    (found / "acme" / "one.jsonl").write_text("{}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "found"))
    page.goto("/dashboard/sources")
    page.locator("#log-folders > summary").click()
    page.get_by_role("row", name=str(found)).get_by_role("button", name="Add it").click()
    expect(page.get_by_label("Folder", exact=True)).to_have_value(str(found))

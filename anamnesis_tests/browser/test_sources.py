"""Sources in the browser: a folder that is tried, added, changed and removed, and one that is half typed."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_tests.browser.looks import assert_anybody_can_use

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "harbour.md").write_text("# Harbour\n\nThe crane was moved to Thursday.\n")
    (folder / "draft.txt").write_text("Not yet.\n")
    return folder


def configured(api: httpx.Client) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in api.get("/api/sources").json()["sources"] if not each["built_in"]}


def test_a_folder_is_tried_added_changed_and_removed(page: Page, api: httpx.Client, notes: Path) -> None:
    page.goto("/dashboard/sources")
    page.get_by_label("Folder", exact=True).fill(str(notes))
    page.get_by_role("button", name="Try it first").click()
    trial = page.locator("#trial")
    expect(trial).to_contain_text("2 files")
    expect(trial).to_contain_text("Nothing was stored.")
    assert configured(api) == {}

    page.get_by_label("Name", exact=True).fill("harbour-notes")
    page.get_by_role("button", name="Add and read it").click()
    expect(page.locator("#source-form [role=status]")).to_contain_text("harbour-notes: read now")
    expect(page.get_by_role("button", name="Read harbour-notes now")).to_be_visible()
    assert configured(api)["harbour-notes"]["root"] == str(notes)

    page.get_by_role("link", name="Edit harbour-notes").click()
    expect(page.locator("#source-title")).to_have_text("Edit harbour-notes")
    page.get_by_label("Exclude", exact=True).fill("draft*")
    page.get_by_label("Private: its text goes to no other machine").check()
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_role("row", name=re.compile("harbour-notes")).locator(".badge.warn").first).to_have_text(
        "private"
    )
    spec = configured(api)["harbour-notes"]
    assert (spec["exclude"], spec["private"]) == (["draft*"], True)
    page.get_by_role("button", name="Try harbour-notes").click()
    expect(trial).to_contain_text("1 file,")
    assert_anybody_can_use(page)

    remove = page.get_by_role("button", name="Remove harbour-notes")
    page.once("dialog", lambda asked: asked.dismiss())
    remove.click()
    assert "harbour-notes" in configured(api)
    page.once("dialog", lambda asked: asked.accept())
    remove.click()
    expect(page.locator("#look-told")).to_contain_text("harbour-notes is no longer crawled; its episodes stay.")
    expect(remove).to_have_count(0)
    assert configured(api) == {}


def test_half_typed_source_is_asked_about_before_it_is_lost(page: Page) -> None:
    page.goto("/dashboard/sources")
    page.reload()  # nothing is typed: nobody asks
    page.locator("#source-kind").select_option(index=1)
    with page.expect_event("dialog") as asked:
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("link", name="Search", exact=True).click()
    assert asked.value.type == "beforeunload"
    expect(page).to_have_url(re.compile("/dashboard/sources$"))
    page.locator("#source-kind").select_option(index=0)
    page.get_by_role("link", name="Search", exact=True).click()
    expect(page).to_have_url(re.compile("/dashboard/search$"))

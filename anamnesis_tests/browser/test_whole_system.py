"""One `anamnesis up` in a browser. Of each page: nothing serious for axe, nothing wider than the screen, nothing that
moves while it comes, all of it by keyboard. Of what needs Dagster's runs: watched from start to end.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from anamnesis_pipeline.sidecar.web.html import NAVIGATION
from anamnesis_tests.browser.looks import MAX_SHIFT, PHONE, grave, layout_shift, wider_than_the_screen
from anamnesis_tests.browser.test_watching import point_at_a_dot
from anamnesis_tests.support.live_reembed import post_many
from anamnesis_tests.support.live_system import System

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PATHS = [link.path for link in NAVIGATION]
RUN_MS = 300_000
"""So long a run of Dagster may take, from the click to its end; two cores are shared with other tests."""


@pytest.mark.parametrize("path", PATHS)
def test_nothing_serious_in_light(page: Page, path: str) -> None:
    page.goto(path, wait_until="load")
    assert grave(page) == []


@pytest.mark.screen(dark=True, width=PHONE)
@pytest.mark.parametrize("path", PATHS)
def test_nothing_serious_or_too_wide_in_dark_on_a_phone(page: Page, path: str) -> None:
    page.goto(path, wait_until="load")
    assert grave(page) == []
    assert wider_than_the_screen(page) <= 0


@pytest.mark.parametrize("path", PATHS)
def test_nothing_moves_much_while_a_page_comes(page: Page, path: str) -> None:
    assert page.viewport_size is not None
    for width in (page.viewport_size["width"], PHONE):
        page.set_viewport_size({"width": width, "height": page.viewport_size["height"]})
        page.goto(path, wait_until="load")
        assert layout_shift(page) < MAX_SHIFT


@pytest.mark.parametrize("link", NAVIGATION, ids=lambda link: link.path)
def test_a_key_leads_to_each_page(page: Page, link: object) -> None:
    start = "/dashboard/health" if link.path == "/dashboard" else "/dashboard"  # type: ignore[attr-defined]
    page.goto(start)
    page.keyboard.press(link.key)  # type: ignore[attr-defined]
    page.wait_for_url(f"**{link.path}")  # type: ignore[attr-defined]
    assert page.evaluate("document.querySelector('a, button, input').textContent") == "Skip to content"


def test_slash_focuses_search_and_escape_leaves_it(page: Page) -> None:
    page.goto("/dashboard")
    page.keyboard.press("/")
    page.keyboard.type("webhook")
    assert page.input_value("#find") == "webhook"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keyboard shortcuts").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_the_chosen_colours_stay(page: Page) -> None:
    page.goto("/dashboard")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.goto("/dashboard/health")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_times_are_in_the_zone_of_the_reader(page: Page) -> None:
    page.goto("/dashboard/episodes")
    shown = page.locator("main time").first
    utc = shown.get_attribute("datetime")
    assert utc is not None
    told = page.evaluate(
        "utc => new Intl.DateTimeFormat(undefined, {dateStyle: 'medium', timeStyle: 'short'}).format(new Date(utc))",
        utc,
    )
    assert shown.text_content() == told


def test_a_folder_that_is_added_is_read_and_found(page: Page, system: System, tmp_path: Path) -> None:
    (tmp_path / "tides.md").write_text("# Tides\n\nHigh water at the zeppelin mast is at noon.\n")
    page.goto("/dashboard/sources")
    page.get_by_label("Folder", exact=True).fill(str(tmp_path))
    page.get_by_label("Name", exact=True).fill("tide-notes")
    page.get_by_role("button", name="Add and read it").click()
    expect(page.locator("#source-form [role=status]")).to_contain_text("tide-notes: read now")
    row = page.get_by_role("row", name=re.compile("^tide-notes")).first
    expect(row.locator("td").nth(1)).to_have_text("1", timeout=RUN_MS)
    page.goto("/dashboard/search?q=zeppelin+mast")
    expect(page.locator("#results > li").first).to_contain_text("High water at the zeppelin mast is at noon.")
    assert system.search("zeppelin mast")[0]["source"]["path"].endswith("tides.md")


def test_reading_all_logs_is_started_and_its_end_is_shown(page: Page, system: System) -> None:
    before = system.http.get("/api/jsonl/status").json()["last_run"]
    page.goto("/dashboard/logs")
    page.get_by_role("button", name="Read all now").click()
    expect(page.locator("#run-told")).to_contain_text(re.compile(r"Reading \d+ sources?\."))
    expect(page.locator("#run-told a")).to_have_attribute("href", re.compile(f":{system.dagster_port}/"))
    expect(page.locator("#doing .badge").first).to_have_text("Reading", timeout=RUN_MS)
    expect(page.locator("#doing .badge").first).to_have_text("Idle", timeout=RUN_MS)
    expect(page.locator("#doing")).to_contain_text("success")
    assert system.http.get("/api/jsonl/status").json()["last_run"] != before


def test_map_is_drawn_by_its_job_and_a_dot_opens_an_episode(page: Page, system: System) -> None:
    post_many(system, 50)
    system.wait_until("all passages are embedded", system.is_covered)
    page.goto("/dashboard/map")
    page.locator("#draw").click()
    expect(page.locator("#draw-told")).to_contain_text("The map is being drawn")
    expect(page.locator("#map")).to_be_visible(timeout=RUN_MS)
    at = point_at_a_dot(page)
    expect(page.locator("#map-told a")).to_be_visible()
    page.mouse.click(*at)
    page.wait_for_url("**/dashboard/episodes/**")
    expect(page.get_by_role("button", name="Copy id")).to_be_visible()
    assert system.http.get(f"/api/episodes/{page.url.rpartition('/dashboard/episodes/')[2]}").status_code == 200

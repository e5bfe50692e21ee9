"""What holds for each page: nothing serious for axe, nothing wider than the screen, all of it by keyboard."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from anamnesis_pipeline.sidecar.pages.html import NAVIGATION

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.xdist_group("browser")]

PATHS = [link.path for link in NAVIGATION]
GRAVE = {"serious", "critical"}
PHONE = 360


def grave(page: Page) -> list[str]:
    """What axe finds that keeps people from using a page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']} at {[node['target'] for node in each['nodes']]}: {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in GRAVE
    ]


def wider_than_the_screen(page: Page) -> int:
    """By so many pixels the page can be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("path", PATHS)
def test_nothing_serious_in_light(page: Page, path: str) -> None:
    page.goto(path, wait_until="load")
    assert grave(page) == []


@pytest.mark.screen(dark=True, width=PHONE)
@pytest.mark.parametrize("path", PATHS)
def test_nothing_serious_in_dark_on_a_phone_and_nothing_wider_than_it(page: Page, path: str) -> None:
    page.goto(path, wait_until="load")
    assert grave(page) == []
    assert wider_than_the_screen(page) <= 0


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

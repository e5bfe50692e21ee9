"""Entities in the browser: opened by chips, list and graph; named, merged and retyped; in both colours."""

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from anamnesis_pipeline.store.entity_model import Entity, EntityKind
from anamnesis_tests.browser.looks import assert_anybody_can_use
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.support.mentioned import file, touch

pytestmark = pytest.mark.timeout(300)

PATH = "/dashboard/entities"


@pytest.fixture(autouse=True)
def _touched(services: TestServices) -> None:
    error = Entity(EntityKind.ERROR, "port <n> in use")
    touch(services.store, "one", file("src/pay.py"), file("src/billing.py"), error)
    touch(services.store, "two", file("src/pay.py"), Entity(EntityKind.COMMAND, "npm test"), minute=5)


def title(page: Page) -> str:
    return str(page.locator("#thing h2 code").text_content())


def test_chip_filters_and_a_click_opens_the_inspector(page: Page) -> None:
    page.goto("/dashboard")
    page.keyboard.press("g")
    page.wait_for_url(f"**{PATH}")
    expect(page.locator(".chips a")).to_have_text(["all 4", "file 2", "command 1", "error 1"])
    page.get_by_role("link", name="file 2").click()
    expect(page.locator("#things li")).to_have_count(2)
    page.get_by_role("link", name="file src/pay.py").click()
    expect(page.locator("#timeline li")).to_have_count(2)
    assert title(page) == "src/pay.py"


def test_graph_leads_from_one_thing_to_the_next(page: Page) -> None:
    page.goto(f"{PATH}?name=src/billing.py")
    expect(page.locator("svg.graph circle")).to_have_count(4)
    page.locator("svg.graph a", has_text="error port").click()
    expect(page.locator("#thing h2 code")).to_have_text("port <n> in use")
    page.locator("#related a").first.click()
    expect(page.locator("#related tbody tr").first).to_be_visible()


def test_names_and_types_that_are_edited_last(page: Page, api: httpx.Client) -> None:
    page.goto(f"{PATH}?name=src/pay.py")
    page.get_by_label("Another name").fill("the till")
    page.get_by_role("button", name="Add name").click()
    expect(page.locator("#aliases code")).to_have_text("the till")
    page.get_by_label("Type", exact=True).select_option("symbol")
    page.get_by_role("button", name="Change type").click()
    expect(page.locator("#thing h2 .kind")).to_have_text("symbol")
    page.goto(f"{PATH}?query=the+till")
    expect(page.locator("#things a")).to_have_text("symbol src/pay.py")
    page.goto(f"{PATH}?name=the+till")
    page.get_by_label("The same as").fill("src/billing.py")
    page.get_by_label("Of type").select_option("file")
    page.get_by_role("button", name="Merge into it").click()
    expect(page.locator("#thing h2 code")).to_have_text("src/billing.py")
    page.get_by_role("button", name="Remove symbol src/pay.py").click()
    expect(page.locator("#aliases")).to_have_count(0)
    assert api.get("/api/entities", params={"query": "billing"}).json()["items"][0]["mentions"] == 1


def test_page_works_without_scripts(browser: Browser, api: httpx.Client) -> None:
    context = browser.new_context(base_url=str(api.base_url), java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{PATH}?name=src/pay.py&groups=1")
    expect(page.locator("#groups li").first).to_be_visible()
    page.get_by_label("Another name").fill("the till")
    page.get_by_role("button", name="Add name").click()
    expect(page.locator("#aliases code")).to_have_text("the till")
    context.close()


@pytest.mark.screen(dark=True)
def test_anybody_can_use_the_page_in_dark(page: Page) -> None:
    page.goto(f"{PATH}?name=src/pay.py&groups=1")
    assert_anybody_can_use(page)


def test_anybody_can_use_the_page(page: Page) -> None:
    page.goto(f"{PATH}?name=src/pay.py&groups=1")
    page.get_by_label("Another name").fill("the till")
    page.get_by_role("button", name="Add name").click()
    expect(page.locator("#aliases code")).to_be_visible()
    assert_anybody_can_use(page)

"""What everybody needs of a page, whatever it shows just now: nothing serious for axe, nothing wider than a phone."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

GRAVE = {"serious", "critical"}
PHONE = 360
MAX_SHIFT = 0.1
"""Of the layout, as web.dev/cls counts it: less is good."""
SETTLED_MS = 1_500
"""So long after the last answer: what is live says so within a second."""


def grave(page: Page) -> list[str]:
    """What axe finds that keeps people from using a page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']} at {[node['target'] for node in each['nodes']]}: {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in GRAVE
    ]


def layout_shift(page: Page) -> float:
    """How much of what was there moved by itself since the page came, once nothing more is on its way."""
    expect(page.locator(".htmx-request")).to_have_count(0)
    page.wait_for_timeout(SETTLED_MS)
    shifts = page.evaluate(
        """() => new Promise((told) => {
          new PerformanceObserver((list) => told(list.getEntries())).observe({ type: "layout-shift", buffered: true });
          setTimeout(() => told([]), 200); // none is told of where there was none
        }).then((all) => all.filter((each) => !each.hadRecentInput).map((each) => each.value))"""
    )
    return sum(map(float, shifts))


def wider_than_the_screen(page: Page) -> int:
    """By so many pixels the page can be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def assert_anybody_can_use(page: Page) -> None:
    """As it is now, on this screen and on a phone's."""
    assert grave(page) == []
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": PHONE, "height": size["height"]})
    assert wider_than_the_screen(page) <= 0, too_wide(page)
    page.set_viewport_size(size)


def too_wide(page: Page) -> list[str]:
    """What reaches beyond the screen, and is in nothing that scrolls by itself."""
    found = page.evaluate(
        """() => [...document.querySelectorAll("main *")]
        .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
        .filter((each) => !each.parentElement.closest(".scroll"))
        .map((each) => each.outerHTML.slice(0, 120))"""
    )
    return [str(each) for each in found]

"""While an answer is on its way: what is said, and what can be done until it is there."""

import pytest
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.timeout(300)


class Held:
    """Requests to some addresses, which wait until they are let go."""

    def __init__(self, page: Page, addresses: str) -> None:
        self.routes: list[Route] = []
        self._waits = True
        page.route(addresses, self._take)

    def let_go(self) -> None:
        """Those that wait, and all that come."""
        self._waits = False
        while self.routes:
            self.routes.pop().continue_()

    def fail(self) -> None:
        """Those that wait, as where the server is gone."""
        while self.routes:
            self.routes.pop().abort()

    def _take(self, route: Route) -> None:
        if self._waits:
            self.routes.append(route)
        else:
            route.continue_()


# --- what is said


def test_whoever_waits_for_a_machine_is_told_so(page: Page) -> None:
    page.goto("/dashboard/sources")
    waits = page.locator("#source-form .waits")
    expect(waits).to_have_css("opacity", "0")
    page.get_by_label("Folder", exact=True).fill("/nowhere/at/all")
    for button, address in (("Try it first", "**/sources/try"), ("Add and read it", "**/sources/save")):
        held = Held(page, address)
        with page.expect_request(address):
            page.get_by_role("button", name=button).click()
        expect(waits).to_have_css("opacity", "1")
        held.let_go()
        expect(waits).to_have_css("opacity", "0")


def test_whoever_waits_for_a_model_is_told_so(page: Page) -> None:
    page.goto("/dashboard/embedding")
    page.get_by_label("Hub id, path, or name of a service's model").fill("/nowhere/at/all")
    held = Held(page, "**/embedding/model")
    with page.expect_request("**/embedding/model"):
        page.get_by_role("button", name="Use this model").click()
    expect(page.locator("#models .waits")).to_have_css("opacity", "1")
    held.let_go()
    expect(page.locator("#model-problem")).to_be_visible()

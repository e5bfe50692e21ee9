"""A browser before a running system: `anamnesis up` on the example logs, Debian's Chromium, one page per test.

A page fails its test when it breaks the Content-Security-Policy, asks another host, or has an error in a script.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from anamnesis_tests.live_system import System

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REFUSED = "Failed to load resource"
"""How the console tells an answer of 400 and above, which a test may provoke."""


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for all tests of the browser; each makes what it changes itself."""
    system = System(tmp_path_factory.mktemp("browser"))
    system.start()
    try:
        system.wait_until("the sidecar is ready", system.is_ready)
        system.wait_until("all passages are embedded", system.is_covered)
        yield system
    finally:
        system.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with the module: Playwright runs an event loop in this thread, beside which `asyncio.run` refuses."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        # Root has no sandbox in Debian's Chromium; what is shown is our own pages alone.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, system: System, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window of its own: `screen(width=..., dark=...)` as a marker says how large, and in which colours."""
    wish = request.node.get_closest_marker("screen")
    asked = dict(wish.kwargs) if wish else {}
    context = browser.new_context(
        base_url=str(system.http.base_url),
        viewport={"width": asked.get("width", 1280), "height": 900},
        color_scheme="dark" if asked.get("dark") else "light",
        permissions=["clipboard-read", "clipboard-write"],
        timezone_id="America/New_York",
        locale="en-GB",
    )
    page = context.new_page()
    page.set_default_timeout(15_000)
    problems: list[str] = []
    page.on("console", lambda message: _note(problems, message))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda asked: _note_foreign(problems, asked, str(system.http.base_url)))
    yield page
    context.close()
    assert problems == []


def screenshot(page: Page, folder: Path, name: str) -> Path:
    """The whole page as a picture."""
    path = folder / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path


def _note(problems: list[str], message: ConsoleMessage) -> None:
    if message.type == "error" and not message.text.startswith(REFUSED):
        problems.append(message.text)


def _note_foreign(problems: list[str], asked: Request, own: str) -> None:
    if not asked.url.startswith((own, "data:", "blob:")):
        problems.append(f"asks {asked.url}")

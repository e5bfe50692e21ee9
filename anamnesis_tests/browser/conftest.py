"""Debian's Chromium, one window per test, before a running service.

Tests marked `e2e` share one `anamnesis up` on the example logs; all others get a service of their own in this process,
in which only the model that embeds is a small one. A window fails its test when a page breaks the
Content-Security-Policy, asks another host, or has an error in a script.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Route, expect, sync_playwright

from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.web.undo import WAIT_S, Undo
from anamnesis_tests.sidecar.conftest import TestServices, open_services, wait_for
from anamnesis_tests.support.chat_services import ChatServer
from anamnesis_tests.support.live_system import System, free_ports
from anamnesis_tests.support.tiny_models import random_model

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REFUSED = ("Failed to load resource", "Response Status Error Code", "htmx:")
"""How the browser and htmx tell an answer of 400 and above, or none, which a test may provoke."""

WAIT_MS = 15_000
"""Generous: two cores, shared with whatever else the machine does."""
expect.set_options(timeout=WAIT_MS)

Post = Callable[..., dict[str, Any]]


# --- what is looked at


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One for all tests of the browser; each makes what it changes itself. A new space answers once a page says so."""
    folder = tmp_path_factory.mktemp("browser")
    model = random_model(folder / "first-model")
    system = System(folder, ANAMNESIS_MODEL=str(model), ANAMNESIS_SWITCH="ask", ANAMNESIS_CHECKPOINT_EVERY="5")
    system.start()
    try:
        system.wait_until("the sidecar is ready", system.is_ready)
        system.wait_until("all passages are embedded", system.is_covered)
        yield system
    finally:
        system.end()


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    """Answers as Ollama does."""
    with ChatServer().running() as server:
        yield server


@pytest.fixture
def undo_s() -> float:
    """So long a deletion can be taken back: as in use, where a test does not take its time."""
    return WAIT_S


@pytest.fixture
def lasting_toasts(page: Page) -> None:
    """An Undo can be pressed for ten minutes: a busy machine may take longer than ten seconds to get there."""

    def lasting(route: Route) -> None:
        answer = route.fetch()
        script = answer.text()
        assert "UNDO_MS = 10_000;" in script
        route.fulfill(response=answer, body=script.replace("UNDO_MS = 10_000;", "UNDO_MS = 600_000;"))

    page.route("**/app.js*", lasting)


@pytest.fixture
def too_late(server: uvicorn.Server) -> Callable[[], None]:
    """The time is over in which deletions can be taken back."""
    undo: Undo = server.config.app.state.undo  # type: ignore[union-attr]
    return undo.delete_all


@pytest.fixture
def token() -> str | None:
    """What callers of the service have to know."""
    return None


@pytest.fixture
def services(
    tmp_path: Path, chat_server: ChatServer, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> TestServices:
    """Nothing of the user's own settings; the logs are in `logs`, where none are yet."""
    for name in [name for name in os.environ if name.startswith("ANAMNESIS_")]:
        monkeypatch.delenv(name)
    given = {"HOME": tmp_path / "home", "OLLAMA_URLS": chat_server.url, "LOG_ROOTS": tmp_path / "logs"}
    for name, value in given.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    (tmp_path / "home").mkdir()
    return open_services(tmp_path / "home", api_token=token)


@pytest.fixture
def server(services: TestServices, undo_s: float) -> Iterator[uvicorn.Server]:
    """The service, which answers until `should_exit`."""
    app = create_app(services)
    app.state.undo = Undo(services, undo_s)
    (port,) = free_ports(1)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started and services.pool.ready, 30)
    yield server
    server.should_exit = True
    thread.join()


@pytest.fixture
def api(server: uvicorn.Server, token: str | None) -> Iterator[httpx.Client]:
    """A client of its API."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = f"http://127.0.0.1:{server.config.port}"
    with httpx.Client(base_url=base, timeout=30, trust_env=False, headers=headers) as client:
        yield client


@pytest.fixture
def post(api: httpx.Client) -> Post:
    """Stores an episode with sensible fields."""

    def post(episode_id: str, summary: str, **fields: Any) -> dict[str, Any]:
        known = {"raw_exchange": summary, "instance": "mac", "project": "acme", **fields}
        reply = api.post("/api/episodes", json={"episode_id": episode_id, "summary": summary, **known})
        assert reply.status_code == 201, reply.text
        body: dict[str, Any] = reply.json()
        return body

    return post


# --- who looks


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
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window of its own: `screen(width=..., dark=..., touch=...)` as a marker says how large, in which
    colours, and whether fingers point at it."""
    is_whole = request.node.get_closest_marker("e2e") is not None
    looked_at: httpx.Client = request.getfixturevalue("system").http if is_whole else request.getfixturevalue("api")
    base = str(looked_at.base_url)
    problems: list[str] = []
    context = _window(browser, base, request.node.get_closest_marker("screen"))
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("console", lambda message: _note(problems, message))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda asked: _note_foreign(problems, asked, base))
    yield page
    context.close()
    assert problems == []


def _window(browser: Browser, base: str, wish: pytest.Mark | None) -> BrowserContext:
    asked = dict(wish.kwargs) if wish else {}
    is_touched = asked.get("touch", False)
    return browser.new_context(
        base_url=base,
        viewport={"width": asked.get("width", 1280), "height": 900},
        has_touch=is_touched,
        is_mobile=is_touched,
        color_scheme="dark" if asked.get("dark") else "light",
        permissions=["clipboard-read", "clipboard-write"],
        timezone_id="America/New_York",
        locale="en-GB",
    )


def _note(problems: list[str], message: ConsoleMessage) -> None:
    if message.type == "error" and not message.text.startswith(REFUSED):
        problems.append(message.text)


def _note_foreign(problems: list[str], asked: Request, own: str) -> None:
    if not asked.url.startswith((own, "data:", "blob:")):
        problems.append(f"asks {asked.url}")

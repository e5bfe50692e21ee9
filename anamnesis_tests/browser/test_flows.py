"""What people do first: search, open, read; and what holds whatever is stored or out of reach."""

import logging
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from playwright.sync_api import Page, expect
from starlette.routing import Match

from anamnesis_pipeline.pipeline.memory_map import MIN_EPISODES, make_map, map_path, save_map
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.sidecar.web import html
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.support.chat_services import ChatServer

pytestmark = pytest.mark.timeout(300)

SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">"

NOTHING_YET = {
    "/dashboard": "Nothing is stored yet.",
    "/dashboard/search": "Ask in your own words",
    "/dashboard/episodes": "Nothing is stored yet.",
    "/dashboard/sessions": "No session is stored yet.",
    "/dashboard/timeline": "Nothing is stored yet.",
    "/dashboard/topics": "No topic yet.",
    "/dashboard/entities": "Nothing is known yet.",
    "/dashboard/review": "No session was looked at yet.",
    "/dashboard/map": "A map needs 30 episodes that are embedded, and there are 0",
    "/dashboard/context": "Enter a project",
    "/dashboard/sources": "Nothing was read yet.",
    "/dashboard/logs": "None yet: read the logs first.",
    "/dashboard/drift": "No text claims anything yet",
    "/dashboard/embedding": "Nothing is stored yet",
    "/dashboard/health": "None yet.",
    "/dashboard/events": "happened yet.",
    "/chat": "The first one begins with your message.",
    "/docs": "JSON in and out",
}
"""Path -> what it says before anything is stored."""


def test_each_button_asks_an_address_of_the_service() -> None:
    app = create_app(cast(Services, SimpleNamespace(settings=Settings())))
    templates = "".join(file.read_text() for file in Path(html.__file__).with_name("templates").glob("*.html"))
    posted = set(re.findall(r'\bhx-post="(/[^"?]*)', re.sub(r"\{\{.*?\}\}", "x", templates)))
    assert len(posted) > 30

    def is_known(path: str) -> bool:
        scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": []}
        return any(route.matches(scope)[0] is Match.FULL for route in app.routes)

    assert [path for path in posted if not is_known(path)] == []


def test_every_page_says_what_to_do_while_nothing_is_stored(page: Page) -> None:
    assert NOTHING_YET.keys() == {link.path for link in html.NAVIGATION}
    for path, told in NOTHING_YET.items():
        page.goto(path, wait_until="load")
        expect(page.locator("main")).to_contain_text(told)


def test_a_stored_script_stays_text_wherever_it_is_shown(
    page: Page, post: Post, api: httpx.Client, services: TestServices, tmp_path: Path
) -> None:
    for number in range(MIN_EPISODES):
        post(f"script{number}", f"{SCRIPT} {number}", tags=[SCRIPT[:100]], project=SCRIPT)
    active = services.store.spaces.active()
    assert active is not None
    save_map(map_path(services.settings.home), make_map(services.store, active))
    (folder := tmp_path / SCRIPT.replace("/", "_")).mkdir()
    api.put("/api/sources/notes", json={"kind": "documents", "root": str(folder)}).raise_for_status()
    logging.getLogger("anamnesis_pipeline.harbour").error(SCRIPT)
    shown = {
        "": "main",
        "/search?q=document": "main",
        "/episodes/script1": "main",
        "/episodes": "main",
        "/timeline": "main",
        "/events": "main",
        "/context?query=document+taken+over": "#L3",
        "/map": "main",
        "/sources": "main",
        "/logs": "#tail",
    }
    for path, place in shown.items():
        page.goto(f"/dashboard{path}", wait_until="load")
        expect(page.locator(place)).to_contain_text("<script>document.title")
        assert page.title() != "taken over"


def test_a_script_in_a_conversation_stays_text(page: Page, chat_server: ChatServer, post: Post) -> None:
    post("script", SCRIPT, project=SCRIPT)
    chat_server.words = (SCRIPT,)
    page.goto("/chat")
    expect(page.locator("#model option").first).to_be_attached()
    page.locator("#message").fill(SCRIPT)
    page.keyboard.press("Enter")
    answer = page.locator(".turn.assistant")
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    for _ in ("as it comes", "as it is kept"):
        for place in (answer, page.locator(".turn.user"), page.locator("h1"), page.locator("#session-list")):
            expect(place).to_contain_text("<script>document.title")
        expect(page.locator("main img")).to_have_count(0)
        assert page.title() != "taken over"
        page.reload()


def test_server_that_went_away_is_told_at_a_button(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.clock.install()
    page.goto("/dashboard/episodes/crane")
    page.locator("#delete-sheet > summary").click()
    page.get_by_role("button", name="Delete this episode").click()
    expect(page.locator(".toast").get_by_role("button", name="Undo")).to_be_visible()
    now_ms = page.evaluate("Date.now()")
    page.clock.pause_at(datetime.fromtimestamp(now_ms / 1_000 + 1, UTC))  # what can be pressed goes away after 10 s
    page.context.set_offline(True)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast.bad")).to_have_text("The server cannot be reached. Is it running?")
    expect(page.locator(".toast").get_by_role("button", name="Undo")).to_be_visible()


def test_page_tells_once_that_the_server_is_away(page: Page) -> None:
    page.clock.install()
    page.goto("/dashboard/embedding")
    expect(page.locator("#progress")).to_contain_text("of 0 passages embedded")
    page.context.set_offline(True)
    page.clock.run_for(60_000)
    expect(page.locator(".toast")).to_have_text("The server cannot be reached. Is it running?")
    page.clock.run_for(60_000)
    expect(page.locator(".toast")).to_have_count(1)
    page.context.set_offline(False)
    page.clock.run_for(2_000)
    expect(page.locator(".toast")).to_have_count(0)


def test_a_toast_stays_while_somebody_points_at_it(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.clock.install()
    page.goto("/dashboard/episodes/crane")
    page.get_by_role("button", name="Pin").click()
    page.locator(".toast").hover()
    page.clock.run_for(60_000)
    expect(page.locator(".toast").get_by_role("button", name="Undo")).to_be_visible()
    page.mouse.move(0, 0)
    page.clock.run_for(2_000)
    expect(page.locator(".toast")).to_have_count(0)

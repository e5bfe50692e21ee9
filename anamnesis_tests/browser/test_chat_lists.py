"""The lists beside a conversation keep what was chosen, typed and focused in them when they come anew."""

from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, Route, expect

from anamnesis_tests.browser.chatting import QUESTION, ask
from anamnesis_tests.chat.services import ChatServer
from anamnesis_tests.summaries.loopback import json_answer

pytestmark = pytest.mark.timeout(300)

MODELS, SESSIONS = "**/chat/parts/models?*", "**/chat/parts/sessions?*"


@pytest.fixture
def two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is none that anybody gets without choosing it."""
    names = ("qwen3:4b", "gemma3:4b")
    tags, own = json_answer({"models": [{"name": name, "model": name} for name in names]}), ChatServer.answer
    monkeypatch.setattr(
        ChatServer, "answer", lambda self, asked: tags if asked.path == "/api/tags" else own(self, asked)
    )


def test_what_was_chosen_for_an_open_conversation_stays_chosen_when_models_are_looked_for_again(
    page: Page, chat_server: ChatServer, two_models: None
) -> None:
    page.goto("/chat")
    ask(page)
    page.get_by_label("Answered by").select_option(label="gemma3:4b")
    page.locator("#backends-away summary").click()
    with page.expect_response(MODELS):
        page.get_by_role("button", name="Look again").press("Enter")
    expect(page.get_by_role("button", name="Look again")).to_be_hidden()
    expect(page.get_by_label("Answered by")).to_be_focused()
    expect(page.locator("#model option:checked")).to_have_text("gemma3:4b")
    ask(page, "And the winch?")
    assert [each["model"] for each in chat_server.prompts] == ["qwen3:4b", "gemma3:4b"]


def test_a_first_message_that_is_faster_than_the_list_goes_to_the_model_that_was_chosen_last(
    page: Page, chat_server: ChatServer, two_models: None
) -> None:
    page.goto("/chat")
    page.get_by_label("Answered by").select_option(label="gemma3:4b")
    held = list[Route]()
    page.route(MODELS, lambda route: held.extend([route]))
    page.goto("/chat")
    page.locator("#message").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert [each["model"] for each in chat_server.prompts] == ["gemma3:4b"]
    for route in held:
        route.continue_()
    expect(page.locator("#any-model")).to_be_attached()


def test_the_filter_holds_whatever_comes_first(page: Page) -> None:
    page.goto("/chat")
    ask(page)
    held = list[Route]()
    page.route(SESSIONS, lambda route: held.extend([route]))
    with page.expect_request(SESSIONS):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('sessions'))")
    with page.expect_request(SESSIONS):
        page.get_by_label("Search titles of conversations").press_sequentially("zeppelin")
    for route in held:
        with suppress(Error), page.expect_response(SESSIONS, timeout=3_000):  # one that was given up has none
            route.continue_()
    expect(page.locator("#session-list")).to_contain_text("No title holds “zeppelin”.")
    page.unroute(SESSIONS)
    with page.expect_response(SESSIONS):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('sessions'))")
    expect(page.locator("#session-list")).to_contain_text("No title holds “zeppelin”.")


def test_a_list_that_comes_anew_keeps_the_focus_on_its_conversation(page: Page) -> None:
    page.goto("/chat")
    ask(page)
    link = page.locator("#session-list a")
    expect(link).to_have_attribute("aria-current", "page")
    link.focus()
    page.evaluate("document.querySelector('#session-list a').dataset.old = 'yes'")
    page.evaluate("document.body.dispatchEvent(new CustomEvent('sessions'))")
    expect(page.locator("#session-list a[data-old]")).to_have_count(0)
    expect(link).to_be_focused()

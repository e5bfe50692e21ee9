"""Stop in the browser: at any moment, also before the server has said which conversation it is."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from anamnesis_pipeline.sidecar import chat_routes
from anamnesis_tests.browser.chatting import ANSWER, QUESTION, ask, conversations, messages, send
from anamnesis_tests.chat.services import ChatServer

pytestmark = pytest.mark.timeout(300)

STOP = "**/api/chat/sessions/*/stop"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Answers are prepared until this is set; before, nobody is told of the conversation."""
    may_begin, prepare = threading.Event(), chat_routes._turn

    def late(*given: Any) -> Any:
        assert may_begin.wait(60)
        return prepare(*given)

    monkeypatch.setattr(chat_routes, "_turn", late)
    yield may_begin
    may_begin.set()


def assert_stopped_and_known(page: Page, api: httpx.Client) -> None:
    """The page is in the conversation that the server keeps, in which the next message goes on."""
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    (session,) = conversations(api)
    expect(page).to_have_url(re.compile(f"/chat/{session['session_id']}$"))
    expect(page.locator("#session-list [aria-current] .name")).to_have_text(QUESTION)
    assert [each["stopped"] for each in messages(api)] == [False, True]


def test_an_answer_is_stopped_while_it_is_prepared(
    page: Page, api: httpx.Client, chat_server: ChatServer, prepared: threading.Event
) -> None:
    page.goto("/chat")
    send(page)
    with page.expect_response(STOP):
        page.get_by_role("button", name="Stop").click()
    prepared.set()
    assert_stopped_and_known(page, api)
    assert chat_server.prompts == []
    ask(page, "And the winch?")
    assert len(conversations(api)) == 1


def test_a_stop_that_is_faster_than_its_message_ends_the_answer(
    page: Page, api: httpx.Client, chat_server: ChatServer
) -> None:
    chat_server.after = "stall"
    held = list[Route]()
    page.route("**/api/chat/stream", lambda route: held.extend([route]))
    page.goto("/chat")
    send(page)
    with page.expect_response(STOP):
        page.get_by_role("button", name="Stop").click()
    held[0].continue_()
    assert_stopped_and_known(page, api)


def test_where_the_server_does_not_take_the_stop_what_was_said_is_there_all_the_same(
    page: Page, api: httpx.Client, chat_server: ChatServer
) -> None:
    chat_server.after = "stall"
    page.route(STOP, lambda route: route.fulfill(status=503))  # the connection is closed instead
    page.goto("/chat")
    answer = send(page)
    expect(answer).to_contain_text(ANSWER)
    page.get_by_role("button", name="Stop").click()
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert_stopped_and_known(page, api)

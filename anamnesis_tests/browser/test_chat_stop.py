"""Stop in the browser: at any moment, also before the server has said which conversation it is."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from anamnesis_pipeline.sidecar.routes import chat as chat_routes
from anamnesis_tests.browser.chatting import ANSWER, QUESTION, ask, conversations, messages, send
from anamnesis_tests.support.chat_services import ChatServer

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


def test_stop_faster_than_its_message_ends_the_answer(page: Page, api: httpx.Client, chat_server: ChatServer) -> None:
    chat_server.after = "stall"
    held = list[Route]()
    page.route("**/api/chat/stream", lambda route: held.extend([route]))
    page.goto("/chat")
    send(page)
    with page.expect_response(STOP):
        page.get_by_role("button", name="Stop").click()
    held[0].continue_()
    assert_stopped_and_known(page, api)


def test_refused_stop_keeps_what_was_said(page: Page, api: httpx.Client, chat_server: ChatServer) -> None:
    chat_server.after = "stall"
    page.route(STOP, lambda route: route.fulfill(status=503))  # the connection is closed instead
    page.goto("/chat")
    answer = send(page)
    expect(answer).to_contain_text(ANSWER)
    page.get_by_role("button", name="Stop").click()
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert_stopped_and_known(page, api)


def test_another_window_stops_the_answer_too(page: Page, api: httpx.Client, chat_server: ChatServer) -> None:
    page.goto("/chat")
    ask(page)
    late = page.context.new_page()  # opened before the answer begins: nothing tells it of that one
    late.goto(page.url)
    chat_server.after = "stall"
    expect(send(page, "And the winch?")).to_contain_text(ANSWER)
    other = page.context.new_page()
    other.goto(page.url)
    answer = other.locator(".turn.assistant").last
    expect(answer).to_contain_text("Being written")
    refused = send(late, "And the rope?").locator(".problem")
    expect(refused).to_contain_text("stop it, or wait for it")
    refused.get_by_role("button", name="Stop the other answer").click()
    expect(refused.get_by_role("button", name="Try again")).to_be_focused()
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert messages(api)[-1]["stopped"]
    late.reload()
    expect(late.locator("#message")).to_have_value("And the rope?")


def test_answer_written_elsewhere_is_stopped_here(page: Page, api: httpx.Client, chat_server: ChatServer) -> None:
    chat_server.after = "stall"
    page.goto("/chat")
    expect(send(page)).to_contain_text(ANSWER)
    other = page.context.new_page()
    other.goto(page.url)
    answer = other.locator(".turn.assistant")
    answer.get_by_role("button", name="Stop").focus()
    with other.expect_response("**/answer?known=true"):  # looked for again, it keeps the focus
        pass
    expect(answer.get_by_role("button", name="Stop")).to_be_focused()
    other.keyboard.press("Enter")
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert messages(api)[1]["stopped"]


def test_next_message_waits_in_the_box_while_one_is_written(page: Page, chat_server: ChatServer) -> None:
    chat_server.after = "stall"
    page.goto("/chat")
    expect(send(page)).to_contain_text(ANSWER)
    page.locator("#message").fill("And the winch?")
    for _ in range(2):
        page.locator("#message").press("Enter")
    expect(page.locator(".toast", has_text="still being written")).to_have_count(1)
    expect(page.locator("#message")).to_have_value("And the winch?")
    expect(page.locator(".turn.user")).to_have_count(1)


def test_next_message_goes_while_the_answer_is_still_loaded(page: Page, api: httpx.Client) -> None:
    held = list[Route]()
    page.route("**/chat/messages/*", lambda route: held.extend([route]), times=1)
    page.goto("/chat")
    with page.expect_request("**/chat/messages/*"):
        send(page)
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    second = ask(page, "And the winch?")
    expect(second).to_contain_text(ANSWER)
    held[0].continue_()
    expect(page.get_by_role("button", name="Copy", exact=True)).to_have_count(2)
    assert [each["role"] for each in messages(api)] == ["user", "assistant"] * 2


def test_asked_again_the_focus_is_on_stop(page: Page, chat_server: ChatServer, prepared: threading.Event) -> None:
    prepared.set()
    chat_server.after = "stall"
    page.goto("/chat")
    expect(send(page)).to_contain_text(ANSWER)
    page.get_by_role("button", name="Stop").click()
    prepared.clear()
    page.get_by_role("button", name="Try again").press("Enter")
    expect(page.get_by_role("button", name="Stop")).to_be_focused()
    chat_server.after = "end"
    prepared.set()
    expect(page.locator("#message")).to_be_focused()

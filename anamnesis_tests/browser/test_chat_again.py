"""A question that failed is asked again in the browser: with its files while the page has them, and after a reload."""

import pytest
from playwright.sync_api import FilePayload, Page, expect

from anamnesis_tests.chat.services import WORDS, ChatServer
from anamnesis_tests.summaries.loopback import json_answer

pytestmark = pytest.mark.timeout(300)

ANSWER = "".join(WORDS)
NOTE = FilePayload(name="note.txt", mimeType="text/plain", buffer=b"The crane stands at pier 4.")


def fail(page: Page, chat_server: ChatServer) -> None:
    """Ask with a file while the model refuses."""
    page.goto("/chat")
    expect(page.locator("#model option").nth(1)).to_be_attached()
    chat_server.respond(json_answer({"error": "out of order"}, 500))
    page.locator("#attach").set_input_files(NOTE)
    page.locator("#message").fill("Where is the crane?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant .problem")).to_be_visible()
    expect(page.locator(".turn.user .files")).to_have_text("note.txt")


def test_asked_again_a_question_takes_its_files_along_and_stands_there_once(
    page: Page, chat_server: ChatServer
) -> None:
    fail(page, chat_server)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".turn.assistant").get_by_role("button", name="Copy")).to_be_visible()
    expect(page.locator(".turn.assistant .said")).to_have_text(ANSWER)
    expect(page.locator(".turn.user")).to_have_count(1)
    assert "pier 4" in chat_server.prompts[-1]["messages"][-1]["content"]
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)


def test_after_a_reload_the_failure_is_there_still_and_the_files_are_asked_for(
    page: Page, chat_server: ChatServer
) -> None:
    fail(page, chat_server)
    page.reload()
    expect(page.locator(".turn.assistant .problem")).to_be_visible()
    expect(page.locator(".turn.user .files")).to_have_text("note.txt")
    asked = len(chat_server.prompts)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#message")).to_have_value("Where is the crane?")
    expect(page.locator("#toasts")).to_contain_text("Attach note.txt again")
    assert len(chat_server.prompts) == asked

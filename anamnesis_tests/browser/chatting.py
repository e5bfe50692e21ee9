"""What somebody does on the page of the chat, and what the service keeps of it."""

from typing import Any

import httpx
from playwright.sync_api import Locator, Page, expect

from anamnesis_tests.support.chat_services import WORDS

ANSWER = "".join(WORDS)
QUESTION = "Where is the crane?"


def send(page: Page, text: str = QUESTION) -> Locator:
    """Send a message from a page of the chat whose models are there; the answer that begins."""
    expect(page.locator("#any-model")).to_be_attached()
    page.locator("#message").fill(text)
    page.keyboard.press("Enter")
    return page.locator(".turn.assistant").last


def ask(page: Page, text: str = QUESTION) -> Locator:
    """Send a message; the answer once it is stored."""
    answer = send(page, text)
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    return answer


def conversations(api: httpx.Client) -> list[dict[str, Any]]:
    """The newest first."""
    found: list[dict[str, Any]] = api.get("/api/chat/sessions").json()["sessions"]
    return found


def messages(api: httpx.Client) -> list[dict[str, Any]]:
    """Of the only conversation."""
    (session,) = conversations(api)
    found: list[dict[str, Any]] = api.get(f"/api/chat/sessions/{session['session_id']}").json()["messages"]
    return found

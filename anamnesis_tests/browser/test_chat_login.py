"""A login that expires while somebody writes in the chat."""

from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_tests.browser.chatting import QUESTION, conversations, send

pytestmark = pytest.mark.timeout(300)

TOKEN = "correct horse battery staple"


@pytest.fixture
def token() -> str:
    return TOKEN


def log_in(page: Page) -> None:
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")


def test_a_message_that_wants_a_login_first_is_in_the_box_after_it(page: Page, api: httpx.Client) -> None:
    asked = list[str]()
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.goto(f"/login?next={quote('/chat')}")
    log_in(page)
    expect(page.locator("#any-model")).to_be_attached()
    page.context.clear_cookies()
    send(page)
    page.wait_for_url("**/login?next=*")
    assert asked == [], "nobody is asked whether to leave"
    log_in(page)
    expect(page.locator("#message")).to_have_value(QUESTION)
    assert conversations(api) == []

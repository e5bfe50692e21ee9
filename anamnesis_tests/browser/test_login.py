"""Where a token is set, the browser asks for it, keeps a cookie of it, and forgets that on demand."""

import re
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_pipeline.sidecar.security import COOKIE
from anamnesis_tests.browser.chatting import QUESTION, conversations, send
from anamnesis_tests.browser.conftest import Post

pytestmark = pytest.mark.timeout(300)

TOKEN = "correct horse battery staple"


@pytest.fixture
def token() -> str:
    return TOKEN


def log_in(page: Page, typed: str = TOKEN) -> None:
    page.get_by_label("Token").fill(typed)
    page.keyboard.press("Enter")


def test_token_opens_the_wanted_page_and_a_log_out_closes_all(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/episodes?status=all")
    expect(page.get_by_label("Token")).to_be_focused()
    log_in(page, "something else")
    expect(page.locator("#problem")).to_contain_text("That is not the token.")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile(r":\d+/dashboard/episodes\?status=all$"))
    (cookie,) = [each for each in page.context.cookies() if each["name"] == COOKIE]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert TOKEN not in cookie["value"]
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/chat")
    page.wait_for_url("**/login?next=/chat")
    assert api.get("/api/episodes").status_code == 200
    assert httpx.get(f"{api.base_url}/api/episodes", trust_env=False, timeout=60).status_code == 401


def test_who_logs_in_again_comes_back_to_the_same_filters(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    address = "/dashboard/episodes?instance=mac&status=all"
    page.goto(f"/login?next={quote(address)}")
    log_in(page)
    page.get_by_label("All on this page").check()
    page.context.clear_cookies()
    page.get_by_role("button", name="Pin", exact=True).click()
    page.wait_for_url("**/login?next=*")
    log_in(page)
    page.wait_for_url(f"**{address}")


@pytest.mark.parametrize("name", ["embedding", "logs", "events?kind=edit"])
def test_page_whose_cookie_goes_leads_to_the_form_and_back(page: Page, name: str) -> None:
    wanted = re.compile(rf":\d+/dashboard/{re.escape(name)}$")
    page.route("**/dashboard/events/stream*", lambda route: route.abort(), times=1)  # begun again, it has to log in
    page.goto(f"/login?next={quote(f'/dashboard/{name}')}")
    log_in(page)
    page.wait_for_url(wanted)
    page.context.clear_cookies()
    page.wait_for_url("**/login?next=*")
    log_in(page)
    page.wait_for_url(wanted)


def test_what_is_typed_stays_where_a_login_has_ended(page: Page, post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")
    page.goto(f"/login?next={quote('/dashboard/episodes/crane')}")
    log_in(page)
    page.get_by_label("New note").fill("The rope is new.")
    page.context.clear_cookies()
    page.get_by_role("button", name="Add note").click()
    told = page.locator(".toast", has_text="Your login has ended, and nothing was saved.")
    with page.expect_popup() as beside:
        told.get_by_role("link", name="Log in again").click()
    log_in(beside.value)
    beside.value.wait_for_url("**/dashboard")
    expect(page.get_by_label("New note")).to_have_value("The rope is new.")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator("#episode")).to_contain_text("The rope is new.")


def test_message_that_wants_a_login_first_is_in_the_box_after_it(page: Page, api: httpx.Client) -> None:
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

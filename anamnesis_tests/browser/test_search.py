"""Search in the browser: filters, what explains an answer, what is copied, and what was asked before."""

import httpx
import pytest
from playwright.sync_api import Page, expect

from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import assert_anybody_can_use

pytestmark = pytest.mark.timeout(300)

CRANE = "The harbour crane was moved to Thursday"


@pytest.fixture(autouse=True)
def _stored(post: Post) -> None:
    post("crane", CRANE, tags=["harbour"])
    post("winch", "The harbour winch was oiled on Monday", project="garden", kind="note")


def found(page: Page) -> list[str]:
    return [str(link.text_content()) for link in page.locator("#results > li > a").all()]


def test_filters_narrow_an_answer_and_are_named_above_it(page: Page) -> None:
    page.goto("/dashboard/search?q=harbour")
    assert len(found(page)) == 2
    page.locator("#search summary").click()
    assert_anybody_can_use(page)
    page.locator("#search").get_by_label("Project", exact=True).fill("garden")
    page.locator("#search").get_by_label("Search by").select_option("exact")
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_url("**/dashboard/search?q=harbour&mode=exact&project=garden")
    assert found(page) == ["The harbour winch was oiled on Monday"]
    expect(page.locator("#search .badge")).to_have_text(["search by: exact", "project: garden"])
    page.locator("#search summary").click()
    page.get_by_role("link", name="Clear filters").click()
    expect(page.locator("#results > li")).to_have_count(2)


def test_explain_shows_every_stage_and_counts_nothing_as_found(page: Page, api: httpx.Client) -> None:
    page.goto("/dashboard/search?q=harbour+crane&explain=1")
    expect(page.get_by_role("region", name="Lists that were searched")).to_contain_text("Words")
    expect(page.get_by_role("region", name="Stages after the lists")).to_contain_text("Below the floor")
    page.locator("summary", has_text="Why it is here").first.click()
    expect(page.get_by_role("region", name="Stages of result 1")).to_contain_text("All factors")
    assert_anybody_can_use(page)
    assert api.get("/api/episodes/crane").json()["retrieval_count"] == 0
    page.get_by_role("link", name="Stop explaining").click()
    expect(page.locator(".explained")).to_have_count(0)
    expect(page.get_by_role("link", name="Explain")).to_be_visible()


def test_excerpt_and_id_of_a_result_are_copied(page: Page) -> None:
    page.goto("/dashboard/search?q=harbour+crane+Thursday")
    first = page.locator("#results > li").first
    for button, copied in {"Copy excerpt": CRANE, "Copy id": "crane"}.items():
        first.get_by_role("button", name=button).click()
        expect(page.locator(".toast", has_text="Copied.").last).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == copied


def test_recent_searches_are_offered_until_cleared(page: Page) -> None:
    page.goto("/dashboard/search?q=harbour+crane")
    page.goto("/dashboard/search?q=winch")
    assert page.locator("#recent a").all_text_contents() == ["winch", "harbour crane"]
    page.locator("#recent a", has_text="harbour crane").click()
    page.wait_for_url("**/dashboard/search?q=harbour%20crane")
    assert page.locator("#recent a").all_text_contents() == ["harbour crane", "winch"]
    page.locator("#recent").get_by_role("button", name="Clear").click()
    expect(page.locator("#recent a")).to_have_count(0)
    page.goto("/dashboard/search")
    expect(page.locator("#recent")).to_contain_text("Your recent searches appear here")

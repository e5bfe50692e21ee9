"""Logs and Embedding in the browser, as far as no run of Dagster is needed: settings, cores, models, the log."""

import logging
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from anamnesis_pipeline.services.log_ingest import known_llm_models
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import assert_anybody_can_use

pytestmark = pytest.mark.timeout(300)


def settings(api: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/api/jsonl/settings").json()
    return found


def test_letting_a_value_go_asks_first(page: Page, api: httpx.Client) -> None:
    api.put("/api/jsonl/settings", json={"private_projects": ["acme", "b-corp"]}).raise_for_status()
    page.goto("/dashboard/logs")
    page.get_by_label("Dollars a day").fill("2.5")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.locator("#set-private_projects-revert").click()
    told = "Private projects: none (default) instead of acme, b-corp? The stored value is removed."
    assert asked == [told]
    assert settings(api)["private_projects"] == ["acme", "b-corp"]
    page.once("dialog", lambda dialog: dialog.accept())
    page.locator("#set-private_projects-revert").click()
    expect(page.locator("#set-private_projects-revert")).to_have_count(0)
    assert settings(api)["private_projects"] == []
    expect(page.get_by_label("Dollars a day")).to_have_value("2.5")
    page.locator("#settings-save").click()
    expect(page.locator("#set-llm_daily_dollars-from")).to_have_text("set here")
    assert settings(api)["llm_daily_dollars"] == 2.5


def test_saving_waits_for_no_note_about_an_llm(page: Page, api: httpx.Client) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/llm-note*", hold)
    page.goto("/dashboard/logs")
    with page.expect_request("**/llm-note*"):
        page.get_by_label("Summaries by").select_option("ollama")
    page.locator("#settings-save").click()
    expect(page.locator(".toast", has_text="Saved; it counts from the next run on.")).to_be_visible()
    assert settings(api)["summarizer"] == "ollama"
    assert len(held) == 1
    held[0].abort()


def test_note_about_an_llm_is_of_the_model_stored_or_typed(page: Page, api: httpx.Client) -> None:
    paid = [each for each in known_llm_models() if each["backend"] == "anthropic" and not each["default"]]
    stored, typed = (each["model"] for each in paid[:2])
    api.put("/api/jsonl/settings", json={"summary_model": stored}).raise_for_status()
    page.goto("/dashboard/logs")
    note = page.locator("#set-summarizer-note")
    page.get_by_label("Summaries by").select_option("anthropic")
    expect(note).to_contain_text(f"{stored}: $")
    page.get_by_label("Model", exact=True).fill(typed)
    page.keyboard.press("Tab")
    expect(note).to_contain_text(f"{typed}: $")


def test_value_that_cannot_be_is_told_beside_its_field(page: Page, api: httpx.Client) -> None:
    before = settings(api)
    page.goto("/dashboard/logs")
    page.get_by_label("Time zone").fill("Atlantis/Harbour")
    page.get_by_label("Hour").fill("4")
    page.locator("#settings-save").click()
    expect(page.locator("#set-timezone-problem")).to_be_visible()
    expect(page.get_by_label("Time zone")).to_be_focused()
    assert page.get_by_label("Time zone").input_value() == "Atlantis/Harbour"
    assert settings(api) == before


def test_log_goes_on_and_shows_the_level_asked_for(page: Page) -> None:
    page.goto("/dashboard/logs")
    log = logging.getLogger("anamnesis_pipeline.harbour")
    log.warning("the crane is stuck")
    log.error("the crane fell over")
    expect(page.locator("#tail")).to_contain_text("the crane fell over")
    expect(page.locator("#tail .warning", has_text="the crane is stuck")).to_be_visible()
    assert_anybody_can_use(page)
    page.get_by_label("Level").select_option("error")
    expect(page.locator("#tail .warning", has_text="the crane is stuck")).not_to_be_visible()
    expect(page.locator("#tail .error", has_text="the crane fell over")).to_be_visible()


def test_how_much_is_embedded_is_told_and_grows_with_what_comes(page: Page, post: Post) -> None:
    page.goto("/dashboard/embedding")
    expect(page.locator("#progress")).to_contain_text("of 0 passages embedded")
    post("crane", "The harbour crane was moved to Thursday")
    expect(page.locator(".figure", has_text="passages embedded")).to_contain_text(
        re.compile(r"100%\s*of\s*1\s*passages")
    )
    expect(page.locator("#progress tbody .badge")).to_have_text("answers")

"""The page that shows what a session would be told, level by level; nobody is told anything by looking."""

import pytest
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import RetryLater
from anamnesis_pipeline.model import MEMORY_BEGINS
from anamnesis_pipeline.services.context import LeftOut
from anamnesis_pipeline.sidecar.web.context import PATH, WHY_LEFT_OUT
from anamnesis_tests.sidecar.conftest import Post, TestServices, know_the_unrelated, raising
from anamnesis_tests.support.page_reading import SCRIPT, read

WHY = "why did the quagga retry charge twice"


@pytest.fixture(autouse=True)
def measured(services: TestServices) -> None:
    know_the_unrelated(services.store)


@pytest.fixture
def quagga(post: Post) -> None:
    post(
        "The quagga retry did charge twice, since no idempotency key was sent.",
        episode_id="q",
        timestamp="2026-03-05T10:00:00Z",
        kind="decision",
    )
    post("The zebra report is printed on Mondays.", episode_id="z", timestamp="2026-03-04T10:00:00Z")


def text_of(page: BeautifulSoup, level: str) -> str:
    block = page.select_one(f"#{level}-text")
    return "" if block is None else block.text


def tokens_of(page: BeautifulSoup) -> dict[str, int]:
    rows = [[cell.text for cell in row.select("th, td")] for row in page.select("table.levels tbody tr")]
    return {row[0]: int(row[2].replace(",", "")) for row in rows}


def test_page_without_a_question_says_what_to_give(client: TestClient):
    page = read(client, PATH)
    assert not page.select(".level")
    assert "Enter a project" in page.select_one(".empty").text


@pytest.mark.usefixtures("quagga")
def test_every_level_has_the_tokens_and_the_text_that_scripts_get(client: TestClient):
    page = read(client, PATH, project="acme", query=WHY)
    given = {"project": "acme", "max_tokens": 800}
    start = client.post("/api/context", json=given).json()
    prompt = client.post("/api/context", json={**given, "query": WHY}).json()
    handoff = client.get("/api/handoff", params={"project": "acme"}).json()
    search = client.post("/api/episodes/search", json={"query": WHY, "project": "acme", "top_k": 10}).json()
    wanted = {
        "L0": start["tokens"],
        "L1": handoff["tokens"],
        "L2": prompt["tokens"],
        "L3": search["total_tokens"],
    }
    assert tokens_of(page) == wanted
    assert min(wanted.values()) > 0
    assert text_of(page, "L0") == start["text"]
    assert text_of(page, "L1") == handoff["text"]
    assert text_of(page, "L2") == prompt["text"]
    assert text_of(page, "L2").startswith(MEMORY_BEGINS)
    assert "No lesson or procedure: no lesson and no procedure is known." in page.select_one("#L2").text


@pytest.mark.usefixtures("quagga")
def test_quote_is_dated_attributed_and_leads_to_its_episode(client: TestClient):
    row = read(client, PATH, project="acme", query=WHY).select("#L2 .quotes tbody tr")[0]
    assert row.select_one("time")["datetime"] == "2026-03-05T10:00:00Z"
    assert row.select_one("a")["href"] == "/dashboard/episodes/q"
    assert "a client that posted it" in row.text
    assert "semantic" in row.text


def reasons(page: BeautifulSoup, level: str) -> list[str]:
    return [row.select("td")[-1].text for row in page.select(f"{level} details .quotes tbody tr")]


@pytest.mark.usefixtures("quagga")
def test_what_is_left_out_comes_with_the_reason(client: TestClient, post: Post):
    for n, animal in enumerate(("okapi", "tapir", "gnu", "serval")):
        post(f"The {animal} of pen {n} eats at noon and never before it rains", kind="decision")
    page = read(client, PATH, project="acme", query=WHY, max_tokens=80)
    assert WHY_LEFT_OUT[LeftOut.BUDGET] in reasons(page, "#L0")
    assert WHY_LEFT_OUT[LeftOut.FLOOR] in reasons(page, "#L2")


@pytest.mark.usefixtures("quagga")
def test_nothing_counts_as_found_or_shown(client: TestClient, services: TestServices):
    for _ in range(2):
        assert "quagga" in text_of(read(client, PATH, project="acme", query=WHY), "L2")
    heads = services.store.episodes.heads(["q", "z"])
    assert {head.retrieval_count for head in heads.values()} == {0}
    assert "read" not in [event.kind for event in services.store.events.latest(100)]
    assert services.store.queries.latest((), 10) == []


@pytest.mark.usefixtures("quagga")
def test_levels_that_are_empty_say_why(client: TestClient):
    page = read(client, PATH, project="acme")
    assert text_of(page, "L0")
    assert text_of(page, "L1")
    assert [level.text for level in page.select("#L2 .empty, #L3 .empty")] == ["This needs a prompt."] * 2
    assert "there is no room for a quote" in read(client, PATH, project="acme", max_tokens=10).text
    page = read(client, PATH, project="nowhere")
    assert "Nothing is remembered of nowhere" in page.text
    tokens = tokens_of(page)
    assert (tokens["L0"], tokens["L2"], tokens["L3"]) == (0, 0, 0)
    assert "Nothing is known of this project yet." in text_of(page, "L1")


@pytest.mark.parametrize("tokens", ["many", "-1", "8001", "99999999999999999999"])
def test_budget_that_is_none_is_refused(client: TestClient, tokens: str):
    assert "max_tokens" in read(client, PATH, 422, project="acme", max_tokens=tokens).select_one(".problem").text


def test_stored_text_stays_text(client: TestClient, post: Post):
    post(f"The quagga retry did charge twice {SCRIPT}", kind="decision", project="acme", episode_id="q")
    page = read(client, PATH, project="acme", query=f"{WHY} {SCRIPT}")
    assert SCRIPT in text_of(page, "L3")
    assert SCRIPT in page.select_one("textarea").text


@pytest.mark.usefixtures("quagga")
def test_what_cannot_answer_now_is_named(client: TestClient, services: TestServices):
    away = raising(RetryLater("model is loading"))
    services.engine._embed_query = away  # type: ignore[method-assign]
    assert "model is loading" in read(client, PATH, project="acme", query=WHY).select(".problem")[0].text

"""Questions by thing over HTTP, and on the page Search."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.knowledge.dream import observe
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.support.archived_logs import OTHER, SESSION, Home
from anamnesis_tests.support.page_reading import read
from anamnesis_tests.support.worked_sessions import REFUSED, work

RESUME = f"claude --resume {SESSION}"


@pytest.fixture
def worked(services: TestServices, tmp_path: Path) -> None:
    work(Home(tmp_path, services.store))


@pytest.mark.usefixtures("worked")
def test_routes_answer_who_what_ended_and_how(client: TestClient) -> None:
    (blamed,) = client.get("/api/blame", params={"path": "prices.py"}).json()["items"]
    (fixed,) = client.get("/api/fix", params={"error": REFUSED}).json()["items"]
    (run,) = client.get("/api/how", params={"task": "pytest", "limit": 1}).json()["items"]
    assert (blamed["resume"], fixed["session_id"], run["script"]) == (RESUME, OTHER, "pytest -q tests/test_prices.py")
    for path, asked in (("blame", "path"), ("fix", "error"), ("how", "task")):
        body = client.get(f"/api/{path}", params={asked: "pytest", "project": "none"}).json()
        assert (body["items"], body["nothing"]) == ([], "No project has this name.")


@pytest.mark.usefixtures("worked")
def test_hits_name_how_to_go_on_with_their_session(client: TestClient) -> None:
    hits = client.post("/api/episodes/search", json={"query": "round the invoice", "mode": "exact", "min_score": 0})
    source = hits.json()["results"][0]["source"]
    assert (source["resume"], source["folder"], source["machine"]) == (RESUME, "/code/shop", "box")


@pytest.mark.usefixtures("worked")
def test_page_shows_answers_and_says_if_nothing_is_known(client: TestClient) -> None:
    told = read(client, "/dashboard/search", q="blame: src/prices.py").select_one("#told").text
    assert "round the prices of an order to cents" in told
    assert RESUME in told
    assert "docker compose up -d db" in read(client, "/dashboard/search", q=f"fix: {REFUSED}").select_one("#told").text
    nothing = read(client, "/dashboard/search", q="how: launch the rocket").select_one("#told").text
    assert "Nothing is recorded of this: no run of it succeeded. " in nothing
    assert RESUME in read(client, "/dashboard/search", q="round the invoice").select_one("#results").text


@pytest.mark.usefixtures("worked")
def test_action_is_told_what_was_said_about_it(services: TestServices, client: TestClient) -> None:
    observe(services.store)
    edit = {"path": "/code/shop/src/prices.py", "before": "total", "after": "round(total)", "cwd": "/code/shop"}
    told = client.post("/api/context/action", json=edit).json()
    assert "never round in prices.py" in told["text"]
    assert (told["tokens"] <= 150, len(told["episodes"])) == (True, 1)
    assert client.post("/api/context/action", json={"command": "ls", "cwd": "/code/shop"}).json()["text"] == ""
    assert client.post("/api/context/action", json={**edit, "command": "ls"}).status_code == 422


def test_tokenizer_is_loaded_before_the_first_hook(services: TestServices) -> None:
    minilm_pieces.cache_clear()
    with TestClient(create_app(services)):
        assert minilm_pieces.cache_info().currsize == 1

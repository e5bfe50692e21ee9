"""The page about embedding: what it shows, and that its buttons do what the API does."""

from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.web.embedding import PATH, _share_of
from anamnesis_tests.sidecar.conftest import (
    ABSENT,
    BASE,
    SPACE,
    Post,
    TestServices,
    embed_all,
    open_services,
    raising,
    stored,
)
from anamnesis_tests.support.page_reading import press, problem_of, read, send


def test_page_shows_model_spaces_cores_and_their_origin(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar")
    page = read(client, PATH)
    assert "Ready" in page.text
    row = page.select_one("#progress tbody tr")
    assert "hashing-1" in row.text
    assert "1 of 1" in row.text
    assert "256 B" in row.text, "two vectors of 64 numbers, two bytes each"
    assert page.select_one("#model-from").text == "default"
    assert [b["id"] for b in page.select("#cores [id^=core-]")] == [f"core-{core}" for core in available_cores()]
    assert page.select("#cores-revert, #model-revert") == []


def test_progress_that_stays_the_same_is_not_sent_again(client: TestClient, post: Post) -> None:
    empty = read(client, PATH + "/progress")
    assert "anamnesis ingest" in empty.text
    mark = str(empty.select_one("[name=seen]")["value"])
    assert client.get(f"{PATH}/progress?seen={mark}").status_code == 204
    post("The zeppelin hangar")
    assert client.get(f"{PATH}/progress?seen={mark}").status_code == 200


def test_a_model_that_loads_or_failed_is_told(tmp_path: Path) -> None:
    broken = raising(OSError("weights are gone"))
    with TestClient(create_app(open_services(tmp_path, broken)), base_url=BASE) as client:
        text = read(client, PATH).text
    assert "Loading" in text or "Failed" in text
    assert "words alone" in text or "only words are searched" in text


@pytest.mark.usefixtures("first_model_is_there")
def test_reembed_from_start_to_switch(client: TestClient, services: TestServices, model: str, post: Post) -> None:
    post("The zeppelin hangar")
    services.store.settings.set("config.switch", "ask")
    reply = client.post(f"{PATH}/model", data={"model_id": "other", "other": model})
    assert "1 passage to embed" in reply.headers["hx-trigger"]
    ((space, *_),) = services.dagster.launched
    running = read(client, PATH + "/progress")
    assert "0 of 1" in running.text
    assert running.select_one("progress")["value"] == "0"
    assert running.select_one("dl a")["href"] == "http://127.0.0.1:3000/runs/b/backfill1"

    assert "Paused" in press(client, running, "reembed-toggle").text
    assert client.get("/api/episodes/reembed/status").json()["state"] == "paused"
    paused = read(client, PATH + "/progress")
    assert "Resumed." in press(client, paused, "reembed-toggle").text
    assert client.get("/api/episodes/reembed/status").json()["state"] == "running"

    embed_all(services, space)
    done = read(client, PATH + "/progress")
    assert "waits for your yes" in done.text
    assert "answers the searches" in press(client, done, "reembed-switch").text
    assert services.store.spaces.active().key == space

    back = read(client, PATH + "/progress")
    assert "answers the searches" in press(client, back, f"use-{SPACE.key}").text
    assert services.store.spaces.active().key == SPACE.key
    assert "hx-confirm" in back.find(id="reembed-again").attrs


@pytest.mark.usefixtures("first_model_is_there")
def test_reembed_can_be_given_up(client: TestClient, services: TestServices, model: str, post: Post) -> None:
    post("The zeppelin hangar")
    send(client, f"{PATH}/model", model_id="other", other=model)
    assert "is being built" in problem_of(send(client, f"{PATH}/anew"))
    running = read(client, PATH + "/progress")
    assert "hx-confirm" in running.find(id="reembed-stay").attrs
    assert "is built no further" in press(client, running, "reembed-stay").text
    assert services.dagster.cancelled == ["backfill1"]
    after = read(client, PATH + "/progress")
    ((space, *_),) = services.dagster.launched
    assert "is forgotten" in press(client, after, f"drop-{space}").text
    assert [each.key for each in services.store.spaces.all()] == [SPACE.key]


def test_dagster_that_is_away_is_told(client: TestClient, services: TestServices, model: str, post: Post) -> None:
    post("The zeppelin hangar")
    services.dagster.up = False
    form = send(client, f"{PATH}/model", model_id="other", other=model)
    assert "does not answer" in problem_of(form)
    field = form.find(id="other")
    assert (field["value"], field["aria-invalid"]) == (model, "true")
    assert "model-problem" in str(field["aria-describedby"])
    assert stored(services) == {}
    assert read(client, PATH).select_one("h1") is not None


def test_bad_model_is_refused(client: TestClient, services: TestServices) -> None:
    for model, other, words in (
        ("other", "/no/such/folder", "/no/such/folder"),
        ("other", " ", "Choose a model"),
        ("voyage-3.5", "", "LOCAL_ONLY"),
        ("BAAI/bge-large-en-v1.5", "", "none may be downloaded"),
    ):
        sent = {"model_id": model, **({"other": other} if other else {})}
        assert words.lower() in problem_of(send(client, f"{PATH}/model", **sent)).lower(), model
    assert stored(services) == {}


@pytest.mark.usefixtures("first_model_is_there")
def test_a_stored_model_can_be_let_go(
    client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    monkeypatch.setenv("ANAMNESIS_MODEL", SPACE.model_id)
    form = send(client, f"{PATH}/model", model_id="other", other=model)
    assert stored(services)["config.model"] == model
    assert "is built no further" in client.post(form.find(id="model-revert")["hx-post"]).headers["hx-trigger"]
    assert stored(services) == {}
    assert read(client, PATH).select_one("#model-from").text == "from the environment"


def pressed(page: BeautifulSoup) -> list[str]:
    return [str(each["id"]) for each in page.select("#cores [aria-pressed=true]")]


@pytest.mark.skipif(len(available_cores()) < 2, reason="one core cannot be chosen from")
def test_a_click_takes_a_core_out_and_another_puts_it_back(client: TestClient, services: TestServices) -> None:
    send(client, f"{PATH}/cores", share=100)
    every, last = available_cores(), available_cores()[-1]
    after = press(client, read(client, PATH), f"core-{last}")
    assert f"core-{last}" not in pressed(after)
    assert stored(services)["config.embed_cores"] == every[:-1]
    assert services.pool.pool is not None
    assert list(services.pool.pool.cores) == every[:-1]
    assert pressed(press(client, after, f"core-{last}"))[-len(every) :] == [f"core-{core}" for core in every]


@pytest.mark.parametrize("share", [25, 50])
def test_shares_are_chosen_by_click_and_let_go(client: TestClient, services: TestServices, share: int) -> None:
    after = press(client, read(client, PATH), f"share-{share}")
    assert client.get("/api/embedding/config").json()["cpu_pct"] == share
    assert [name for name in pressed(after) if name.startswith("share-")] == [f"share-{share}"]
    press(client, after, "cores-revert")
    assert stored(services) == {}


def test_share_of_few_cores_is_the_chosen_or_the_least() -> None:
    by_share = {25: [0], 50: [0], 100: [0, 1]}
    config: Any = {"cores": [0], "cpu_pct": 50, "origin": {"embed_cores": "stored", "embed_cpu_pct": "stored"}}
    assert _share_of(config, by_share) == 50
    config["origin"]["embed_cpu_pct"] = "default"
    assert _share_of(config, by_share) == 25, "of a core that was chosen itself the least"
    assert _share_of({**config, "cores": [1]}, by_share) is None


def test_bad_core_is_refused(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    only = available_cores()[0]
    client.post("/api/embedding/cpu", json={"cores": [only]})
    before = stored(services)
    assert "the only one" in problem_of(send(client, f"{PATH}/cores", core=only))
    assert str(ABSENT) in problem_of(send(client, f"{PATH}/cores", core=ABSENT))
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    monkeypatch.setenv("ANAMNESIS_EMBED_CPU_PCT", "100")
    assert "ANAMNESIS_LOCK_ENV" in problem_of(send(client, f"{PATH}/cores", share=50))
    assert stored(services) == before

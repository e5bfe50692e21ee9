"""On which cores the sidecar embeds, over HTTP."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import (
    ABSENT,
    BASE,
    Post,
    TestServices,
    open_services,
    stored,
    wait_for,
)


def test_other_cores_are_taken_at_once_without_loading_the_model_again(
    client: TestClient, services: TestServices
) -> None:
    pool, last = services.pool.pool, available_cores()[-1]
    assert pool is not None
    reply = client.post("/api/embedding/cpu", json={"cores": [last]})
    assert reply.status_code == 200
    assert (reply.json()["cores"], reply.json()["workers"]) == ([last], 1)
    assert services.pool.pool is pool
    assert list(pool.cores) == [last]
    assert stored(services) == {"config.embed_cores": [last]}


def test_a_share_and_a_list_of_cores_replace_each_other(client: TestClient, services: TestServices) -> None:
    client.post("/api/embedding/cpu", json={"cores": [available_cores()[-1]]})
    body = client.post("/api/embedding/cpu", json={"cpu_pct": 1}).json()
    assert stored(services) == {"config.embed_cpu_pct": 1}
    assert (body["cores"], body["origin"]["embed_cpu_pct"]) == (available_cores()[:1], "stored")
    client.post("/api/embedding/cpu", json={"cores": available_cores()})
    assert stored(services) == {"config.embed_cores": available_cores()}


def test_a_share_counts_also_where_the_environment_lists_cores(
    client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_EMBED_CORES", str(available_cores()[-1]))
    assert client.post("/api/embedding/cpu", json={"cpu_pct": 100}).json()["cores"] == available_cores()


def test_what_the_environment_has_locked_is_refused_not_ignored(
    client: TestClient, services: TestServices, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    monkeypatch.setenv("ANAMNESIS_EMBED_CPU_PCT", "50")
    monkeypatch.setenv("ANAMNESIS_MODEL", "all-MiniLM-L6-v2")
    for path, body in (("cpu", {"cpu_pct": 100}), ("model", {"model_id": model})):
        reply = client.post(f"/api/embedding/{path}", json=body)
        assert reply.status_code == 422
        assert "ANAMNESIS_LOCK_ENV" in reply.json()["detail"]
    assert stored(services) == {}


def test_a_core_that_the_machine_lacks_is_refused_with_those_it_has(client: TestClient, services: TestServices) -> None:
    reply = client.post("/api/embedding/cpu", json={"cores": [available_cores()[0], ABSENT]})
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["path"] == "cores"
    assert str(ABSENT) in reply.json()["detail"]
    assert all(str(core) in reply.json()["detail"] for core in available_cores())
    assert stored(services) == {}


@pytest.mark.parametrize(
    "body",
    [{}, {"cpu_pct": 0}, {"cpu_pct": 101}, {"cores": []}, {"cores": [-1]}, {"cpu_pct": 50, "cores": [0]}, {"cpus": 1}],
)
def test_a_wish_for_cores_that_makes_no_sense_is_refused(
    client: TestClient, services: TestServices, body: dict[str, Any]
) -> None:
    assert client.post("/api/embedding/cpu", json=body).status_code == 422
    assert stored(services) == {}


def test_stored_cores_that_the_machine_lacks_now_are_named_and_the_old_ones_stay(
    client: TestClient, services: TestServices
) -> None:
    services.store.settings.set("config.embed_cores", [ABSENT])
    services.pool.follow_cores()
    body = client.get("/api/embedding/config").json()
    assert str(ABSENT) in body["problem"]
    assert body["cores"] == available_cores()[:1]


def test_cores_that_another_process_stored_are_taken_over_when_something_is_embedded(
    client: TestClient, services: TestServices, post: Post
) -> None:
    last = available_cores()[-1]
    services.store.settings.set("config.embed_cores", [str(last)])  # as `anamnesis config set` does

    def moved() -> bool:
        client.post("/api/episodes/search", json={"query": "zeppelin"})
        pool = services.pool.pool
        return pool is not None and list(pool.cores) == [last]

    wait_for(moved)


def test_model_and_cores_survive_a_restart(tmp_path: Path, model: str) -> None:
    last = available_cores()[-1]
    with TestClient(create_app(open_services(tmp_path)), base_url=BASE) as client:
        assert client.put("/api/embedding/config", json={"model_id": model, "cores": [last]}).status_code == 200
    services = open_services(tmp_path)
    with TestClient(create_app(services), base_url=BASE) as client:
        wait_for(lambda: services.pool.ready)
        client.post("/api/episodes/search", json={"query": "zeppelin"})
        body = client.get("/api/embedding/config").json()
    assert (body["model"], body["model_id"], body["cores"]) == (model, model, [last])

"""Models, spaces and cores over HTTP."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.dagster_api.backfills import EmbeddingBackfill
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.hashing import HashingEmbedder
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar import embedding_control
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.embedding_control import EmbeddingControl
from anamnesis_pipeline.steps.embeddings import embed_sources
from anamnesis_pipeline.steps.spaces import index_space
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.sidecar.conftest import BASE, SPACE, Post, TestServices, model_folder, open_services, wait_for

ABSENT = 4096
"""A core that no machine of these tests has."""


def embed_all(services: TestServices, space: str) -> None:
    """What the backfill's runs and the index do."""
    embed_sources(services.store, space, RESERVED_SOURCES, HashingEmbedder(SPACE.dim, token_dims=64), 25)
    index_space(services.store, space)


def stored(services: TestServices) -> dict[str, Any]:
    return services.store.settings.all("config.")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return model_folder(tmp_path / "tiny")


def put_back_hashing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model of the first space, which has no files, look as if it had those that made its vectors."""
    find = embedding_control.model_files

    def found(settings: Settings, model_id: str, store: Store | None = None) -> object:
        made_it = SimpleNamespace(space=lambda generation: SPACE)
        return made_it if model_id == SPACE.model_id else find(settings, model_id, store)

    monkeypatch.setattr(embedding_control, "model_files", found)


# --- what is ---------------------------------------------------------------------------------------------


def test_the_config_tells_model_space_cores_and_where_they_come_from(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar")
    body = client.get("/api/embedding/config").json()
    assert body["model"] == "all-MiniLM-L6-v2"
    assert (body["space"], body["model_id"], body["dims"]) == ("hashing-1", "hashing-64", 64)
    assert body["origin"] == {"model": "default", "embed_cpu_pct": "default", "embed_cores": "default"}
    assert body["available_cores"] == available_cores()
    assert body["workers"] == len(body["cores"]) > 0
    assert body["computes_in"] == "fp32"
    assert body["problem"] is None
    assert body["spaces"] == [
        {
            "key": "hashing-1", "model_id": "hashing-64", "dims": 64, "generation": 1, "status": "active",
            "precision": "fp32", "fidelity": None, "token_dims": 0, "token_bytes": 0,
            "vector_bytes": 2 * 64 * 2,
            "embedded": 1, "stored": 1,
        }
    ]  # fmt: skip
    known = {model["model_id"]: model for model in body["known_models"]}
    assert known["all-MiniLM-L6-v2"]["dims"] == 384
    assert known["BAAI/bge-large-en-v1.5"]["dims"] == 1024


def test_every_space_is_listed_with_its_coverage(client: TestClient, model: str, post: Post) -> None:
    post("The zeppelin hangar")
    started = client.post("/api/embedding/model", json={"model_id": model}).json()
    spaces = client.get("/api/embedding/spaces").json()["spaces"]
    assert [(space["key"], space["status"], space["embedded"], space["stored"]) for space in spaces] == [
        ("hashing-1", "active", 1, 1),
        (started["space"], "building", 0, 1),
    ]


# --- cores -----------------------------------------------------------------------------------------------


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


# --- models ----------------------------------------------------------------------------------------------


def test_a_model_that_has_to_embed_first_is_a_backfill_with_a_link(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    reply = client.post("/api/embedding/model", json={"model_id": model})
    assert reply.status_code == 202
    body = reply.json()
    assert body == {
        "space": body["space"], "model_id": model, "total": 1, "missing": 1, "active": False,
        "backfill_id": "backfill1", "link": "http://127.0.0.1:3000/runs/b/backfill1", "stopped": None,
    }  # fmt: skip
    [(space, sources, title, tags)] = services.dagster.launched
    assert (space, sources, tags) == (body["space"], ("direct",), {"anamnesis/embed": body["space"]})
    assert body["space"] in title
    assert stored(services) == {"config.model": model}
    active = services.store.spaces.active()
    assert active is not None
    assert active.key == SPACE.key


def test_a_re_embed_has_the_tags_that_the_deployment_wants(
    client: TestClient, services: TestServices, model: str, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post("The zeppelin hangar")
    monkeypatch.setenv("ANAMNESIS_EMBED_RUN_TAGS", '{"pool": "gpu", "anamnesis/embed": "another"}')
    space = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    assert services.dagster.launched[0][3] == {"pool": "gpu", "anamnesis/embed": space}


def test_a_model_whose_space_is_complete_answers_at_once_and_so_does_the_way_back(
    client: TestClient, services: TestServices, model: str, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post("The zeppelin hangar")
    new = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    embed_all(services, new)
    assert client.get("/api/embedding/config").json()["space"] == new
    put_back_hashing_model(monkeypatch)
    back = client.post(f"/api/embedding/spaces/{SPACE.key}/use")
    assert (back.status_code, back.json()["active"], back.json()["link"]) == (200, True, None)
    assert client.get("/api/embedding/config").json()["space"] == SPACE.key
    again = client.post("/api/embedding/model", json={"model_id": model})
    assert (again.status_code, again.json()["active"]) == (200, True)
    assert len(services.dagster.launched) == 1


def test_an_unknown_model_is_refused_with_the_choices_and_the_running_one_stays(
    client: TestClient, services: TestServices
) -> None:
    for path in ("/api/embedding/model", "/api/episodes/reembed"):
        reply = client.post(path, json={"model_id": "nobody/no-such-model"})
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["path"] == "model_id"
        assert "nobody/no-such-model" in reply.json()["detail"]
        assert "bge" in reply.json()["detail"]
    assert (stored(services), len(services.store.spaces.all())) == ({}, 1)


def test_while_dagster_does_not_answer_nothing_changes(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    services.dagster.up = False
    for path, body in (("/api/embedding/model", {"model_id": model}), ("/api/episodes/reembed", {"model_id": model})):
        reply = client.post(path, json=body)
        assert reply.status_code == 503
        assert "Dagster does not answer" in reply.json()["detail"]
        assert reply.headers["retry-after"]
    assert [space.key for space in services.store.spaces.all()] == [SPACE.key]
    assert stored(services) == {}
    assert client.get("/api/episodes/reembed/status").json()["state"] == "idle"


def test_a_second_model_has_to_wait_for_the_first(
    client: TestClient, services: TestServices, model: str, tmp_path: Path, post: Post
) -> None:
    post("The zeppelin hangar")
    first = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    other = model_folder(tmp_path / "other", seed=1)
    for name in (other, model):
        reply = client.post("/api/embedding/model", json={"model_id": name})
        assert reply.status_code == 409
        assert first in reply.json()["detail"]
    assert stored(services) == {"config.model": model}
    assert len(services.dagster.launched) == 1


def test_a_backfill_that_was_launched_by_hand_for_the_space_is_taken_over_not_doubled(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    space = EmbeddingControl(services.store).add(model).key
    services.dagster.by_hand = [EmbeddingBackfill("byhand", frozenset({space, SPACE.key}))]
    body = client.post("/api/embedding/model", json={"model_id": model}).json()
    assert (body["backfill_id"], services.dagster.launched) == ("byhand", [])


@pytest.mark.parametrize("path", ["/api/embedding/model", "/api/episodes/reembed"])
def test_nothing_is_started_beside_a_backfill_that_was_launched_by_hand_for_another_space(
    client: TestClient, services: TestServices, model: str, tmp_path: Path, post: Post, path: str
) -> None:
    post("The zeppelin hangar")
    space = EmbeddingControl(services.store).add(model).key
    services.dagster.by_hand = [EmbeddingBackfill("byhand", frozenset({space}))]
    reply = client.post(path, json={"model_id": model_folder(tmp_path / "other", seed=1)})
    assert reply.status_code == 409
    assert space in reply.json()["detail"]
    assert "http://127.0.0.1:3000/runs/b/byhand" in reply.json()["detail"]
    assert (stored(services), services.dagster.launched) == ({}, [])
    assert {each.key: each.status for each in services.store.spaces.all()} == {SPACE.key: "active", space: "added"}


def test_a_backfill_of_the_active_or_of_a_dropped_space_is_in_nobodys_way(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    services.dagster.by_hand = [EmbeddingBackfill("byhand", frozenset({SPACE.key, "dropped"}))]
    assert client.post("/api/embedding/model", json={"model_id": model}).json()["backfill_id"] == "backfill1"


def test_a_backfill_that_was_given_up_is_neither_taken_over_nor_in_the_way(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    space = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    client.post(f"/api/embedding/spaces/{SPACE.key}/use")
    services.dagster.by_hand = [EmbeddingBackfill("backfill1", frozenset({space}))]
    assert client.post("/api/embedding/model", json={"model_id": model}).json()["backfill_id"] == "backfill2"


def test_using_the_active_space_gives_up_the_re_embed_and_cancels_its_backfill(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    building = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    reply = client.post(f"/api/embedding/spaces/{SPACE.key}/use")
    assert (reply.status_code, reply.json()["active"], reply.json()["stopped"]) == (200, True, building)
    assert services.dagster.cancelled == ["backfill1"]
    assert stored(services) == {"config.model": SPACE.model_id}
    assert [each.status for each in services.store.spaces.all()] == ["active", "added"]


def test_cores_and_model_can_be_put_together(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    reply = client.put("/api/embedding/config", json={"model_id": model, "cpu_pct": 1})
    assert reply.status_code == 202
    assert reply.json()["started"]["backfill_id"] == "backfill1"
    assert reply.json()["cores"] == available_cores()[:1]
    assert client.put("/api/embedding/config", json={"cpu_pct": 100}).json()["started"] is None


@pytest.mark.parametrize("changes", [{"cores": [ABSENT]}, {"model_id": "nobody/no-such-model"}])
def test_when_cores_or_model_are_refused_neither_changes(
    client: TestClient, services: TestServices, model: str, changes: dict[str, Any]
) -> None:
    body = {"model_id": model, "cores": [available_cores()[-1]], **changes}
    assert client.put("/api/embedding/config", json=body).status_code == 422
    assert (stored(services), len(services.store.spaces.all())) == ({}, 1)


@pytest.mark.parametrize("body", [{}, {"cpu_pct": 5, "cores": [0]}, {"model_id": ""}, {"dims": 3}])
def test_a_config_that_makes_no_sense_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    assert client.put("/api/embedding/config", json=body).status_code == 422


# --- dropping --------------------------------------------------------------------------------------------


def test_dropping_the_space_that_is_built_ends_its_backfill_and_the_wish_for_its_model(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    key = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    assert client.delete(f"/api/embedding/spaces/{key}").status_code == 204
    assert services.dagster.cancelled == ["backfill1"]
    assert [space.key for space in services.store.spaces.all()] == [SPACE.key]
    assert stored(services)["config.model"] == SPACE.model_id
    assert client.get("/api/episodes/reembed/status").json()["state"] == "idle"


def test_a_space_is_dropped_also_while_dagster_does_not_answer(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    key = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    services.dagster.up = False
    assert client.delete(f"/api/embedding/spaces/{key}").status_code == 204


def test_the_active_space_cannot_be_dropped(client: TestClient) -> None:
    reply = client.delete(f"/api/embedding/spaces/{SPACE.key}")
    assert reply.status_code == 409
    assert SPACE.key in reply.json()["detail"]


@pytest.mark.parametrize(("method", "path"), [("DELETE", "nope-1"), ("POST", "nope-1/use")])
def test_an_unknown_space_is_404(client: TestClient, method: str, path: str) -> None:
    reply = client.request(method, f"/api/embedding/spaces/{path}")
    assert reply.status_code == 404
    assert "nope-1" in reply.json()["detail"]


def test_a_complete_space_whose_model_is_gone_is_not_switched_to(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    new = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    embed_all(services, new)
    reply = client.post(f"/api/embedding/spaces/{SPACE.key}/use")  # `hashing-64` is nowhere on the disk
    assert reply.status_code == 422
    assert "hashing-64" in reply.json()["detail"]
    assert client.get("/api/embedding/config").json()["space"] == new
    assert stored(services) == {"config.model": model}

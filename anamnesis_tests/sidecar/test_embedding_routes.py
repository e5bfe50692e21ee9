"""Models and spaces over HTTP; the cores have a file of their own."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.dagster_api.backfills import EmbeddingBackfill
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.sidecar.embedding_control import EmbeddingControl
from anamnesis_pipeline.steps.spaces import index_space
from anamnesis_tests.sidecar.conftest import (
    ABSENT,
    SPACE,
    Post,
    TestServices,
    embed_all,
    model_folder,
    stored,
)

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


@pytest.mark.usefixtures("first_model_is_there")
def test_a_model_whose_space_is_complete_answers_at_once_and_so_does_the_way_back(
    client: TestClient, services: TestServices, model: str, post: Post
) -> None:
    post("The zeppelin hangar")
    new = client.post("/api/embedding/model", json={"model_id": model}).json()["space"]
    embed_all(services, new)
    index_space(services.store, new)
    assert client.get("/api/embedding/config").json()["space"] == new
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
    index_space(services.store, new)
    reply = client.post(f"/api/embedding/spaces/{SPACE.key}/use")  # `hashing-64` is nowhere on the disk
    assert reply.status_code == 422
    assert "hashing-64" in reply.json()["detail"]
    assert client.get("/api/embedding/config").json()["space"] == new
    assert stored(services) == {"config.model": model}

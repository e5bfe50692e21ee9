"""Models, spaces, cores and the re-embed over HTTP; what the runs of a backfill do is called by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.errors import InvalidVectors
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.pipeline.index import add_model, index_space
from anamnesis_pipeline.pipeline.reembed_state import is_paused
from anamnesis_pipeline.services.dagster.backfills import EmbeddingBackfill
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import (
    ABSENT,
    BASE,
    SPACE,
    Post,
    TestServices,
    embed_all,
    model_folder,
    open_services,
    problem,
    stored,
    wait_for,
)
from anamnesis_tests.support.hashing_embedder import HashingEmbedder

CONFIG, MODEL, CPU = "/api/embedding/config", "/api/embedding/model", "/api/embedding/cpu"
REEMBED = "/api/episodes/reembed"


@pytest.fixture
def posted(post: Post) -> None:
    post("The zeppelin hangar")


def start(client: TestClient, model: str) -> dict[str, Any]:
    body: dict[str, Any] = client.post(MODEL, json={"model_id": model}).json()
    return body


def status(client: TestClient) -> dict[str, Any]:
    body: dict[str, Any] = client.get(f"{REEMBED}/status").json()
    return body


# --- models and spaces -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("posted")
def test_config_tells_model_space_cores_and_their_origin(client: TestClient) -> None:
    body = client.get(CONFIG).json()
    assert body["model"] == "all-MiniLM-L6-v2"
    assert (body["space"], body["model_id"], body["dims"]) == ("hashing-1", "hashing-64", 64)
    assert body["origin"] == {"model": "default", "embed_cpu_pct": "default", "embed_cores": "default"}
    assert body["available_cores"] == available_cores()
    assert body["workers"] == len(body["cores"]) > 0
    assert (body["computes_in"], body["problem"]) == ("fp32", None)
    assert body["spaces"] == [
        {
            "key": "hashing-1",
            "model_id": "hashing-64",
            "dims": 64,
            "generation": 1,
            "status": "active",
            "precision": "fp32",
            "fidelity": None,
            "token_dims": 0,
            "token_bytes": 0,
            "vector_bytes": 2 * 64 * 2,
            "embedded": 1,
            "stored": 1,
        }
    ]
    known = {model["model_id"]: model["dims"] for model in body["known_models"]}
    assert (known["all-MiniLM-L6-v2"], known["BAAI/bge-large-en-v1.5"]) == (384, 1024)


@pytest.mark.usefixtures("posted")
def test_model_that_has_to_embed_first_is_a_backfill(
    client: TestClient, services: TestServices, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_EMBED_RUN_TAGS", '{"pool": "gpu", "anamnesis/embed": "another"}')
    reply = client.post(MODEL, json={"model_id": model})
    body = reply.json()
    assert (reply.status_code, body) == (
        202,
        {
            "space": body["space"],
            "model_id": model,
            "total": 1,
            "missing": 1,
            "active": False,
            "backfill_id": "backfill1",
            "link": "http://127.0.0.1:3000/runs/b/backfill1",
            "stopped": None,
        },
    )
    [(space, sources, title, tags)] = services.dagster.launched
    assert (space, sources, tags) == (body["space"], ("direct",), {"pool": "gpu", "anamnesis/embed": space})
    assert space in title
    assert stored(services) == {"config.model": model}
    spaces = client.get("/api/embedding/spaces").json()["spaces"]
    assert [(each["key"], each["status"], each["embedded"], each["stored"]) for each in spaces] == [
        ("hashing-1", "active", 1, 1),
        (space, "building", 0, 1),
    ]


@pytest.mark.usefixtures("first_model_is_there", "posted")
def test_complete_space_answers_at_once(client: TestClient, services: TestServices, model: str) -> None:
    new = start(client, model)["space"]
    embed_all(services, new)
    index_space(services.store, new)
    assert client.get(CONFIG).json()["space"] == new
    back = client.post(f"/api/embedding/spaces/{SPACE.key}/use")
    assert (back.status_code, back.json()["active"], back.json()["link"]) == (200, True, None)
    assert client.get(CONFIG).json()["space"] == SPACE.key
    again = client.post(MODEL, json={"model_id": model})
    assert (again.status_code, again.json()["active"], len(services.dagster.launched)) == (200, True, 1)


@pytest.mark.usefixtures("posted")
def test_space_whose_model_is_gone_is_not_used(client: TestClient, services: TestServices, model: str) -> None:
    new = start(client, model)["space"]
    embed_all(services, new)
    index_space(services.store, new)
    use = client.post(f"/api/embedding/spaces/{SPACE.key}/use")  # `hashing-64` is nowhere on the disk
    assert "hashing-64" in problem(use)["detail"]
    assert (client.get(CONFIG).json()["space"], stored(services)) == (new, {"config.model": model})


@pytest.mark.usefixtures("posted")
@pytest.mark.parametrize("path", [MODEL, REEMBED])
def test_refused_model_changes_nothing(client: TestClient, services: TestServices, model: str, path: str) -> None:
    refused = problem(client.post(path, json={"model_id": "nobody/no-such-model"}))
    assert refused["errors"][0]["path"] == "model_id"
    assert "nobody/no-such-model" in refused["detail"]
    assert "bge" in refused["detail"]
    services.dagster.up = False
    reply = client.post(path, json={"model_id": model})
    assert "Dagster does not answer" in problem(reply, 503)["detail"]
    assert reply.headers["retry-after"]
    assert ([space.key for space in services.store.spaces.all()], stored(services)) == ([SPACE.key], {})
    assert status(client)["state"] == "idle"


@pytest.mark.usefixtures("posted")
def test_second_model_waits_for_first(client: TestClient, services: TestServices, model: str, tmp_path: Path) -> None:
    first = start(client, model)["space"]
    for name in (model_folder(tmp_path / "other", seed=1), model):
        assert first in problem(client.post(MODEL, json={"model_id": name}), 409)["detail"]
    assert (stored(services), len(services.dagster.launched)) == ({"config.model": model}, 1)


@pytest.mark.usefixtures("posted")
def test_backfill_launched_by_hand_is_taken_over(client: TestClient, services: TestServices, model: str) -> None:
    space = EmbeddingControl(services.store).add(model).key
    services.dagster.by_hand = [EmbeddingBackfill("byhand", frozenset({space, SPACE.key}))]
    assert (start(client, model)["backfill_id"], services.dagster.launched) == ("byhand", [])


@pytest.mark.usefixtures("posted")
@pytest.mark.parametrize("path", [MODEL, REEMBED])
def test_backfill_by_hand_of_another_space_is_in_the_way(
    client: TestClient, services: TestServices, model: str, tmp_path: Path, path: str
) -> None:
    space = EmbeddingControl(services.store).add(model).key
    services.dagster.by_hand = [EmbeddingBackfill("byhand", frozenset({space}))]
    told = problem(client.post(path, json={"model_id": model_folder(tmp_path / "other", seed=1)}), 409)["detail"]
    assert space in told
    assert "http://127.0.0.1:3000/runs/b/byhand" in told
    assert (stored(services), services.dagster.launched) == ({}, [])
    assert {each.key: each.status for each in services.store.spaces.all()} == {SPACE.key: "active", space: "added"}


@pytest.mark.usefixtures("posted")
def test_backfill_of_no_built_space_is_no_bar(client: TestClient, services: TestServices, model: str) -> None:
    services.dagster.by_hand = [EmbeddingBackfill("byhand", frozenset({SPACE.key, "dropped"}))]
    assert start(client, model)["backfill_id"] == "backfill1"


@pytest.mark.usefixtures("posted")
def test_using_the_active_space_gives_up_the_reembed(client: TestClient, services: TestServices, model: str) -> None:
    building = start(client, model)["space"]
    reply = client.post(f"/api/embedding/spaces/{SPACE.key}/use")
    assert (reply.status_code, reply.json()["active"], reply.json()["stopped"]) == (200, True, building)
    assert services.dagster.cancelled == ["backfill1"]
    assert stored(services) == {"config.model": SPACE.model_id}
    assert [each.status for each in services.store.spaces.all()] == ["active", "added"]
    services.dagster.by_hand = [EmbeddingBackfill("backfill1", frozenset({building}))]
    assert start(client, model)["backfill_id"] == "backfill2", "the one that was given up is not taken over"


@pytest.mark.usefixtures("posted")
@pytest.mark.parametrize("dagster_is_up", [True, False])
def test_drop_ends_the_backfill(client: TestClient, services: TestServices, model: str, dagster_is_up: bool) -> None:
    key = start(client, model)["space"]
    services.dagster.up = dagster_is_up
    assert client.delete(f"/api/embedding/spaces/{key}").status_code == 204
    assert services.dagster.cancelled == ["backfill1"] * dagster_is_up
    assert [space.key for space in services.store.spaces.all()] == [SPACE.key]
    assert stored(services)["config.model"] == SPACE.model_id
    assert status(client)["state"] == "idle"


@pytest.mark.parametrize(
    ("method", "path", "code"), [("DELETE", SPACE.key, 409), ("DELETE", "nope-1", 404), ("POST", "nope-1/use", 404)]
)
def test_active_or_unknown_space_is_refused_by_name(client: TestClient, method: str, path: str, code: int) -> None:
    told = problem(client.request(method, f"/api/embedding/spaces/{path}"), code)["detail"]
    assert path.partition("/")[0] in told


# --- cores -----------------------------------------------------------------------------------------------


def test_other_cores_are_taken_without_loading_the_model(client: TestClient, services: TestServices) -> None:
    pool, last = services.pool.pool, available_cores()[-1]
    body = client.post(CPU, json={"cores": [last]}).json()
    assert (body["cores"], body["workers"], list(pool.cores)) == ([last], 1, [last])
    assert services.pool.pool is pool
    assert stored(services) == {"config.embed_cores": [last]}
    body = client.post(CPU, json={"cpu_pct": 1}).json()
    assert stored(services) == {"config.embed_cpu_pct": 1}, "a share and a list replace each other"
    assert (body["cores"], body["origin"]["embed_cpu_pct"]) == (available_cores()[:1], "stored")
    client.post(CPU, json={"cores": available_cores()})
    assert stored(services) == {"config.embed_cores": available_cores()}


def test_share_counts_where_the_environment_lists_cores(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_EMBED_CORES", str(available_cores()[-1]))
    assert client.post(CPU, json={"cpu_pct": 100}).json()["cores"] == available_cores()


def test_what_the_environment_locks_is_refused(
    client: TestClient, services: TestServices, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LOCK_ENV": "1", "EMBED_CPU_PCT": "50", "MODEL": "all-MiniLM-L6-v2"}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    for path, body in ((CPU, {"cpu_pct": 100}), (MODEL, {"model_id": model})):
        assert "ANAMNESIS_LOCK_ENV" in problem(client.post(path, json=body))["detail"]
    assert stored(services) == {}


def test_core_that_the_machine_lacks_is_refused_and_named(client: TestClient, services: TestServices) -> None:
    refused = problem(client.post(CPU, json={"cores": [available_cores()[0], ABSENT]}))
    assert refused["errors"][0]["path"] == "cores"
    assert all(str(core) in refused["detail"] for core in (ABSENT, *available_cores()))
    assert stored(services) == {}
    services.store.settings.set("config.embed_cores", [ABSENT])
    services.pool.follow_cores()
    body = client.get(CONFIG).json()
    assert (str(ABSENT) in body["problem"], body["cores"]) == (True, available_cores()[:1]), "the old ones stay"


@pytest.mark.parametrize(
    "body",
    [{}, {"cpu_pct": 0}, {"cpu_pct": 101}, {"cores": []}, {"cores": [-1]}, {"cpu_pct": 50, "cores": [0]}, {"cpus": 1}],
)
def test_cores_that_cannot_be_are_refused(client: TestClient, services: TestServices, body: dict[str, Any]) -> None:
    problem(client.post(CPU, json=body))
    problem(client.put(CONFIG, json=body))
    assert stored(services) == {}


def test_cores_stored_by_another_process_are_taken_over(client: TestClient, services: TestServices) -> None:
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
        assert client.put(CONFIG, json={"model_id": model, "cores": [last]}).status_code == 200
    services = open_services(tmp_path)
    with TestClient(create_app(services), base_url=BASE) as client:
        wait_for(lambda: services.pool.ready)
        client.post("/api/episodes/search", json={"query": "zeppelin"})
        body = client.get(CONFIG).json()
    assert (body["model"], body["model_id"], body["cores"]) == (model, model, [last])


@pytest.mark.usefixtures("posted")
def test_cores_and_model_can_be_put_together(client: TestClient, model: str) -> None:
    reply = client.put(CONFIG, json={"model_id": model, "cpu_pct": 1})
    assert (reply.status_code, reply.json()["started"]["backfill_id"]) == (202, "backfill1")
    assert reply.json()["cores"] == available_cores()[:1]
    assert client.put(CONFIG, json={"cpu_pct": 100}).json()["started"] is None


@pytest.mark.parametrize("changes", [{"cores": [ABSENT]}, {"model_id": "nobody/no-such-model"}, {"model_id": ""}])
def test_cores_and_model_change_both_or_neither(
    client: TestClient, services: TestServices, model: str, changes: dict[str, Any]
) -> None:
    problem(client.put(CONFIG, json={"model_id": model, "cores": [available_cores()[-1]], **changes}))
    assert (stored(services), len(services.store.spaces.all())) == ({}, 1)


# --- the re-embed ----------------------------------------------------------------------------------------


@pytest.fixture
def notes(model: str, services: TestServices, client: TestClient, post: Post) -> list[str]:
    """Ids of five episodes, posted once a model with files answers."""
    space = add_model(services.store, find_model(model), "fp32")
    services.store.spaces.activate(space.key)
    services.store.spaces.drop(SPACE.key)
    (active,) = services.store.spaces.all()
    wait_for(lambda: services.pool.space_for(active) == active)
    return [post(f"Note {n} on the zeppelin hangar", episode_id=f"note-{n}")["episode_id"] for n in range(5)]


class Failing:
    model_id, dim = SPACE.model_id, SPACE.dim

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return self.embed_with_tokens(texts, role).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        raise InvalidVectors("the model answers with NaN; take another precision")


def embed_two(services: TestServices, space: str) -> None:
    """One checkpoint of two episodes."""
    rounds, embedder = iter([False, True]), HashingEmbedder(SPACE.dim, token_dims=64)
    embed_sources(services.store, space, RESERVED_SOURCES, embedder, 2, should_pause=lambda: next(rounds))


def test_pause_and_resume_of_no_reembed_change_nothing(client: TestClient, services: TestServices) -> None:
    body = status(client)
    assert (body["state"], body["active_space"], body["active_model_id"]) == ("idle", SPACE.key, SPACE.model_id)
    assert (body["space"], body["checkpoint"], body["backfill"], body["eta_s"]) == (None, None, None, None)
    for asked in ("pause", "resume"):
        assert client.post(f"{REEMBED}/{asked}").json()["state"] == "idle"
    assert (services.dagster.launched, is_paused(services.store)) == ([], False)


@pytest.mark.parametrize("body", [None, {}, {"model_id": "the active one"}])
def test_active_model_makes_a_new_generation(
    client: TestClient, services: TestServices, notes: list[str], model: str, body: dict[str, Any] | None
) -> None:
    reply = client.post(REEMBED, **({} if body is None else {"json": dict.fromkeys(body, model)}))
    started = reply.json()
    assert (reply.status_code, started["space"].endswith("-g2")) == (202, True)
    assert (started["model_id"], started["total"], started["backfill_id"]) == (model, 5, "backfill1")
    assert services.dagster.launched[0][:2] == (started["space"], ("direct",))
    problem(client.post(REEMBED, json={}), 409)
    client.post(f"{REEMBED}/pause")
    problem(client.post(REEMBED, json={}), 409)
    assert len(services.dagster.launched) == 1


def test_status_follows_the_reembed(client: TestClient, services: TestServices, notes: list[str], model: str) -> None:
    old = status(client)["active_space"]
    new = client.post(REEMBED, json={}).json()["space"]
    begun = status(client)
    assert (begun["state"], begun["done"], begun["total"], begun["episodes_total"]) == ("running", 0, 5, 5)
    assert begun["backfill"] == {
        "backfill_id": "backfill1",
        "link": "http://127.0.0.1:3000/runs/b/backfill1",
        "status": "REQUESTED",
        "sources": 1,
        "sources_done": 0,
        "sources_failed": 0,
    }
    embed_two(services, new)
    half = status(client)
    assert (half["done"], half["episodes_done"], half["active_space"]) == (2, 2, old)
    assert half["rate_per_s"] > 0
    assert half["eta_s"] is not None
    checkpoint = half["checkpoint"]
    assert checkpoint["last_id"] in notes
    assert (checkpoint["done"], checkpoint["total"], checkpoint["model_id"]) == (2, 5, model)
    assert client.post("/api/episodes/search", json={"query": "zeppelin hangar"}).json()["results"]
    embed_all(services, new)
    index_space(services.store, new)
    over = status(client)
    assert (over["state"], over["done"], over["total"], over["active_space"]) == ("complete", 5, 5, new)
    assert client.post("/api/episodes/search", json={"query": "zeppelin hangar"}).json()["results"]


def test_post_meanwhile_is_found(client: TestClient, services: TestServices, notes: list[str], post: Post) -> None:
    old = status(client)["active_space"]
    new = client.post(REEMBED, json={}).json()["space"]
    post("A dog barked at the postman", episode_id="dog")
    found = client.post("/api/episodes/search", json={"query": "dog barked", "mode": "semantic"}).json()["results"]
    assert found[0]["episode_id"] == "dog"
    assert services.store.vectors.pending_sources(old) == {}
    assert services.store.vectors.pending_sources(new) == {"direct": 6}, "the run makes its vector"


def test_reembed_is_paused_and_resumed(client: TestClient, services: TestServices, notes: list[str]) -> None:
    new = client.post(REEMBED, json={}).json()["space"]
    embed_two(services, new)
    paused = client.post(f"{REEMBED}/pause").json()
    assert (paused["state"], paused["done"], is_paused(services.store)) == ("paused", 2, True)
    services.dagster.up = False
    reply = client.post(f"{REEMBED}/resume")
    assert "Dagster does not answer" in problem(reply, 503)["detail"]
    body = status(client)
    assert (body["state"], body["backfill"]["status"]) == ("paused", None)
    assert body["backfill"]["link"] == "http://127.0.0.1:3000/runs/b/backfill1"
    assert client.post(f"{REEMBED}/pause").json()["state"] == "paused"
    services.dagster.up = True
    resumed = client.post(f"{REEMBED}/resume").json()
    assert (resumed["state"], resumed["done"], resumed["backfill"]["backfill_id"]) == ("running", 2, "backfill2")
    assert not is_paused(services.store)


def test_pause_holds_without_dagster(client: TestClient, services: TestServices, notes: list[str]) -> None:
    client.post(REEMBED, json={})
    services.dagster.up = False
    assert client.post(f"{REEMBED}/pause").json()["state"] == "paused"


def test_failures_are_told_and_tried_again(client: TestClient, services: TestServices, notes: list[str]) -> None:
    new = client.post(REEMBED, json={}).json()["space"]
    for _ in range(3):
        with pytest.raises(InvalidVectors):
            embed_sources(services.store, new, RESERVED_SOURCES, Failing(), 25)
    failed = status(client)
    assert (failed["state"], failed["errors"], failed["done"], "NaN" in failed["last_error"]) == ("failed", 3, 0, True)
    assert client.post(f"{REEMBED}/resume").json()["state"] == "running"
    assert status(client)["errors"] == 0

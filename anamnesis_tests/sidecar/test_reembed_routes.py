"""The re-embed over HTTP. The runs of a backfill are what `embed_sources` and `index_space` do, called by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.hashing import HashingEmbedder
from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.errors import InvalidVectors
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.steps.embeddings import embed_sources
from anamnesis_pipeline.steps.reembed_state import is_paused
from anamnesis_pipeline.steps.spaces import add_model, index_space
from anamnesis_tests.sidecar.conftest import SPACE, Post, TestServices, model_folder, wait_for

STATUS = "/api/episodes/reembed/status"


@pytest.fixture
def model(tmp_path: Path, services: TestServices) -> str:
    """A model with files, whose space is active."""
    model = model_folder(tmp_path / "tiny")
    space = add_model(services.store, find_model(model), "fp32")
    services.store.spaces.activate(space.key)
    services.store.spaces.drop(SPACE.key)
    return model


@pytest.fixture
def notes(model: str, services: TestServices, client: TestClient, post: Post) -> list[str]:
    """Ids of five episodes, posted once the model answers."""
    active = services.store.spaces.active()
    assert active is not None
    assert active.model_id == model
    wait_for(lambda: services.pool.space_for(active) == active)
    return [post(f"Note {n} on the zeppelin hangar", episode_id=f"note-{n}")["episode_id"] for n in range(5)]


class Failing:
    model_id, dim = SPACE.model_id, SPACE.dim

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return self.embed_with_tokens(texts, role).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        raise InvalidVectors("the model answers with NaN; take another precision")


def status(client: TestClient) -> dict[str, Any]:
    body: dict[str, Any] = client.get(STATUS).json()
    return body


def embed_some(services: TestServices, space: str, episodes: int) -> None:
    """One checkpoint of so many episodes."""
    rounds = iter([False, True])
    embed_sources(
        services.store,
        space,
        RESERVED_SOURCES,
        HashingEmbedder(SPACE.dim, token_dims=64),
        episodes,
        should_pause=lambda: next(rounds),
    )


def test_before_the_first_reembed_the_status_is_idle(client: TestClient) -> None:
    body = status(client)
    assert body["state"] == "idle"
    assert (body["active_space"], body["active_model_id"]) == (SPACE.key, SPACE.model_id)
    assert (body["space"], body["checkpoint"], body["backfill"], body["eta_s"]) == (None, None, None, None)


@pytest.mark.parametrize("body", [None, {}])
def test_without_a_model_the_active_one_makes_a_new_generation(
    client: TestClient, services: TestServices, notes: list[str], model: str, body: dict[str, Any] | None
) -> None:
    reply = (
        client.post("/api/episodes/reembed", json=body) if body is not None else client.post("/api/episodes/reembed")
    )
    assert reply.status_code == 202
    started = reply.json()
    assert started["space"].endswith("-g2")
    assert (started["model_id"], started["total"], started["backfill_id"]) == (model, 5, "backfill1")
    assert services.dagster.launched[0][:2] == (started["space"], ("direct",))


def test_naming_the_active_model_embeds_it_anew_too(client: TestClient, notes: list[str], model: str) -> None:
    assert client.post("/api/episodes/reembed", json={"model_id": model}).json()["space"].endswith("-g2")


def test_a_second_reembed_is_409_while_one_runs_or_is_paused(
    client: TestClient, services: TestServices, notes: list[str]
) -> None:
    assert client.post("/api/episodes/reembed", json={}).status_code == 202
    assert client.post("/api/episodes/reembed", json={}).status_code == 409
    client.post("/api/episodes/reembed/pause")
    assert client.post("/api/episodes/reembed", json={}).status_code == 409
    assert len(services.dagster.launched) == 1


def test_the_status_follows_the_work_to_its_end_and_searches_are_answered_throughout(
    client: TestClient, services: TestServices, notes: list[str], model: str
) -> None:
    old = status(client)["active_space"]
    new = client.post("/api/episodes/reembed", json={}).json()["space"]
    begun = status(client)
    assert (begun["state"], begun["done"], begun["total"], begun["episodes_total"]) == ("running", 0, 5, 5)
    assert begun["backfill"] == {
        "backfill_id": "backfill1", "link": "http://127.0.0.1:3000/runs/b/backfill1", "status": "REQUESTED",
        "sources": 1, "sources_done": 0, "sources_failed": 0,
    }  # fmt: skip
    embed_some(services, new, 2)
    half = status(client)
    assert (half["done"], half["episodes_done"], half["active_space"]) == (2, 2, old)
    assert half["rate_per_s"] > 0
    assert half["eta_s"] is not None
    assert half["checkpoint"]["last_id"] in notes
    assert {name: half["checkpoint"][name] for name in ("done", "total", "model_id")} == {
        "done": 2, "total": 5, "model_id": model,
    }  # fmt: skip
    assert client.post("/api/episodes/search", json={"query": "zeppelin hangar"}).json()["results"]
    embed_sources(services.store, new, RESERVED_SOURCES, HashingEmbedder(SPACE.dim, token_dims=64), 25)
    index_space(services.store, new)
    over = status(client)
    assert (over["state"], over["done"], over["total"], over["active_space"]) == ("complete", 5, 5, new)
    assert client.post("/api/episodes/search", json={"query": "zeppelin hangar"}).json()["results"]


def test_what_is_posted_meanwhile_is_found_by_meaning_at_once_and_gets_its_vectors_from_the_run(
    client: TestClient, services: TestServices, notes: list[str], post: Post
) -> None:
    old = status(client)["active_space"]
    new = client.post("/api/episodes/reembed", json={}).json()["space"]
    post("A dog barked at the postman", episode_id="dog")
    found = client.post("/api/episodes/search", json={"query": "dog barked", "mode": "semantic"}).json()["results"]
    assert found[0]["episode_id"] == "dog"
    assert services.store.vectors.pending_sources(old) == {}
    assert services.store.vectors.pending_sources(new) == {"direct": 6}


def test_pause_keeps_what_is_done_and_resume_launches_what_is_left(
    client: TestClient, services: TestServices, notes: list[str]
) -> None:
    new = client.post("/api/episodes/reembed", json={}).json()["space"]
    embed_some(services, new, 2)
    paused = client.post("/api/episodes/reembed/pause")
    assert (paused.status_code, paused.json()["state"], paused.json()["done"]) == (200, "paused", 2)
    assert is_paused(services.store)
    resumed = client.post("/api/episodes/reembed/resume")
    assert (resumed.status_code, resumed.json()["state"], resumed.json()["done"]) == (200, "running", 2)
    assert resumed.json()["backfill"]["backfill_id"] == "backfill2"
    assert not is_paused(services.store)


def test_a_pause_holds_while_dagster_does_not_answer(
    client: TestClient, services: TestServices, notes: list[str]
) -> None:
    client.post("/api/episodes/reembed", json={})
    services.dagster.up = False
    assert client.post("/api/episodes/reembed/pause").json()["state"] == "paused"
    reply = client.post("/api/episodes/reembed/resume")
    assert reply.status_code == 503
    assert "Dagster does not answer" in reply.json()["detail"]
    body = status(client)
    assert body["state"] == "paused"
    assert body["backfill"]["link"] == "http://127.0.0.1:3000/runs/b/backfill1"
    assert body["backfill"]["status"] is None


def test_pause_and_resume_without_a_reembed_change_nothing(client: TestClient, services: TestServices) -> None:
    assert client.post("/api/episodes/reembed/pause").json()["state"] == "idle"
    assert client.post("/api/episodes/reembed/resume").json()["state"] == "idle"
    assert services.dagster.launched == []
    assert not is_paused(services.store)


def test_failures_in_a_row_are_counted_named_and_tried_again_by_resume(
    client: TestClient, services: TestServices, notes: list[str]
) -> None:
    new = client.post("/api/episodes/reembed", json={}).json()["space"]
    for _ in range(3):
        with pytest.raises(InvalidVectors):
            embed_sources(services.store, new, RESERVED_SOURCES, Failing(), 25)
    failed = status(client)
    assert (failed["state"], failed["errors"], failed["done"]) == ("failed", 3, 0)
    assert "NaN" in failed["last_error"]
    assert client.post("/api/episodes/reembed/resume").json()["state"] == "running"
    assert status(client)["errors"] == 0


def test_a_complete_space_waits_for_a_yes_where_the_settings_say_so(
    client: TestClient, services: TestServices, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_SWITCH", "ask")
    new = client.post("/api/episodes/reembed", json={}).json()["space"]
    embed_sources(services.store, new, RESERVED_SOURCES, HashingEmbedder(SPACE.dim, token_dims=64), 25)
    index_space(services.store, new, switch=False)
    waiting = status(client)
    assert (waiting["state"], waiting["waiting_for_use"]) == ("complete", True)
    assert client.post(f"/api/embedding/spaces/{new}/use").status_code == 200
    assert (status(client)["active_space"], status(client)["waiting_for_use"]) == (new, False)


def test_an_episode_cannot_hide_behind_the_routes_of_the_reembed(client: TestClient, post: Post) -> None:
    for name in ("reembed", "reembed/status", "reembed/x"):
        reply = client.post("/api/episodes", json={"summary": "s", "instance": "i", "project": "p", "episode_id": name})
        assert reply.status_code == 422
    assert post("Reembedding notes", episode_id="reembedding")["episode_id"] == "reembedding"
    assert client.get("/api/episodes/reembedding").status_code == 200

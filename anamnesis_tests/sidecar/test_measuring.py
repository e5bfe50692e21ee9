"""The sidecar measures what is unrelated in the space that answers, and again when it has grown."""

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.search.levels import stored_level
from anamnesis_pipeline.sidecar.measuring import measure_if_due
from anamnesis_tests.sidecar.conftest import SPACE, Post, TestServices


def test_a_space_is_measured_once_it_holds_something(services: TestServices, client: TestClient, post: Post) -> None:
    assert not measure_if_due(services)
    post("The quagga retry did charge twice, since no idempotency key was sent.")
    assert measure_if_due(services)
    assert stored_level(services.store, SPACE) is not None
    assert not measure_if_due(services)
    post("The zebra report is printed on Mondays.")
    assert measure_if_due(services)


def test_nothing_is_measured_before_the_model_is_there(services: TestServices) -> None:
    assert not measure_if_due(services)


def test_what_fails_is_tried_again(
    services: TestServices, client: TestClient, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post("The quagga retry did charge twice, since no idempotency key was sent.")

    def busy(*_: object) -> list[object]:
        raise StoreBusy("another process writes; try again")

    with monkeypatch.context() as patched:
        patched.setattr(services.store.text, "unknown", busy)
        assert not measure_if_due(services)
    assert measure_if_due(services)


def test_a_search_for_something_else_finds_nothing_once_the_space_is_measured(
    services: TestServices, client: TestClient, post: Post
) -> None:
    for animal in ("quagga", "zebra", "okapi", "tapir", "civet"):
        post(f"The {animal} retry did charge twice, since no idempotency key was sent to {animal}.")
    body = {"query": "xylophone tuning for beginners"}
    assert client.post("/api/episodes/search", json=body).json()["results"] != []
    assert measure_if_due(services)
    found = client.post("/api/episodes/search", json=body).json()
    assert found["weak"]
    assert {hit["weak"] for hit in found["results"]} == {True}
    assert client.post("/api/episodes/search", json={**body, "weak": False}).json()["results"] == []

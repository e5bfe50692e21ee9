"""The asset `vector_index` on a real store and a real Dagster instance; models hash words."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from anamnesis_pipeline.defs.partitions import SPACES
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.defs.vector_index import vector_index
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.index import begin
from anamnesis_pipeline.pipeline.reembed_state import set_wanted_model
from anamnesis_pipeline.services import reembedding
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_tests.defs.conftest import HashedModels
from anamnesis_tests.support.spaces import embed_all, write

OLD, NEW = Space("old", "model-old", 16), Space("new", "model-new", 24)
Run = Callable[[], dict[str, Any]]


@pytest.fixture
def store(memory: MemoryResource, instance: dg.DagsterInstance, models: HashedModels) -> Store:
    """An active space, and one that is being built and lacks nothing, over four episodes."""
    store = memory.store
    store.spaces.put(OLD)
    store.spaces.activate(OLD.key)
    store.spaces.put(NEW)
    begin(store, NEW)
    set_wanted_model(store, NEW.model_id)
    write(store, 4)
    for space in (OLD, NEW):
        embed_all(store, space, dim=space.dim)
    instance.add_dynamic_partitions(str(SPACES.name), [OLD.key, NEW.key])
    return store


@pytest.fixture
def run(memory: MemoryResource, instance: dg.DagsterInstance, store: Store) -> Run:
    """Materializes the index of the space that is built: its metadata, with that of its check under `check`."""

    def materialize() -> dict[str, Any]:
        resources = {"memory": memory, "embedding_pool": EmbeddingPoolResource()}
        result = dg.materialize([vector_index], instance=instance, resources=resources, partition_key=NEW.key)
        (materialization,) = result.asset_materializations_for_node("vector_index")
        (check,) = result.get_asset_check_evaluations()
        found = {name: value.value for name, value in materialization.metadata.items()}
        shown = {name: value.value for name, value in check.metadata.items()}
        return {**found, "check": {"passed": check.passed, "blocking": check.blocking, **shown}}

    return materialize


def active(store: Store) -> str:
    space = store.spaces.active()
    assert space is not None
    return space.key


def test_space_that_is_complete_is_checked_and_switched_to(run: Run, store: Store, models: HashedModels) -> None:
    found = run()
    assert (found["passages"], found["passages without a vector"], found["vectors"]) == (4, 0, 8)
    assert (found["status"], found["dimensions"], found["similarity"]) == ("READY", NEW.dim, "cosine")
    assert (found["recall at 10"], found["switched to it now"], active(store)) == (1.0, True, NEW.key)
    recalls = {"recall at 10": 1.0, "recall of the index": 1.0}
    assert found["check"] == {"passed": True, "blocking": False, "space": NEW.key, "passages": 4, **recalls}
    assert models.opened == [], "nothing was missing"
    assert run()["switched to it now"] is False


@pytest.mark.parametrize("is_paused", [False, True])
def test_what_arrived_meanwhile_is_embedded(run: Run, store: Store, models: HashedModels, is_paused: bool) -> None:
    write(store, 2, first=4)
    if is_paused:
        reembedding.pause(store)
    found = run()
    assert (found["passages"], found["passages without a vector"]) == ((4, 2) if is_paused else (6, 0))
    assert (found["switched to it now"], len(models.opened)) == ((False, 0) if is_paused else (True, 1))


@pytest.mark.parametrize(
    ("measured", "found"), [("recall", 0.95), ("index_state", IndexState(recall=0.4, is_exact=True))]
)
def test_index_that_finds_too_little_fails_its_check_alone(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch, measured: str, found: object
) -> None:
    monkeypatch.setattr(type(store.vectors), measured, lambda *_: found)
    told = run()
    assert (told["check"]["passed"], told["switched to it now"]) == (False, True)
    if measured == "index_state":
        assert told["check"]["recall of the index"] == 0.4


def test_no_search_moves_to_a_useless_index(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(store.vectors), "recall", lambda *_: 0.5)
    with pytest.raises(GiveUp, match=f"finds only 50%.*anamnesis model use {NEW.key}"):
        run()
    assert active(store) == OLD.key

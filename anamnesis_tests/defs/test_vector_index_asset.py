"""The asset `vector_index` on a real store and a real Dagster instance; models hash words."""

from typing import Any

import dagster as dg
import pytest

from anamnesis_pipeline.defs.partitions import SPACES
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.defs.vector_index import vector_index
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.steps import reembed
from anamnesis_pipeline.steps.reembed_state import set_wanted_model, wanted_model
from anamnesis_pipeline.steps.spaces import begin
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_tests.defs.conftest import HashedModels
from anamnesis_tests.steps.spaces import embed_all, write

OLD, NEW = Space("old", "model-old", 16), Space("new", "model-new", 24)


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


def run(memory: MemoryResource, instance: dg.DagsterInstance, space: Space) -> dict[str, Any]:
    """The metadata of one materialization, with that of its check under `check`."""
    resources = {"memory": memory, "embedding_pool": EmbeddingPoolResource()}
    result = dg.materialize([vector_index], instance=instance, resources=resources, partition_key=space.key)
    (materialization,) = result.asset_materializations_for_node("vector_index")
    (check,) = result.get_asset_check_evaluations()
    found = {name: value.value for name, value in materialization.metadata.items()}
    shown = {name: value.value for name, value in check.metadata.items()}
    return {**found, "check": {"passed": check.passed, "blocking": check.blocking, **shown}}


def active(store: Store) -> str:
    space = store.spaces.active()
    assert space is not None
    return space.key


def test_a_space_that_is_complete_is_checked_and_switched_to(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    found = run(memory, instance, NEW)
    assert (found["passages"], found["passages without a vector"], found["vectors"]) == (4, 0, 8)
    assert (found["status"], found["dimensions"], found["similarity"]) == ("READY", NEW.dim, "cosine")
    assert (found["recall at 10"], found["switched to it now"], active(store)) == (1.0, True, NEW.key)
    assert found["check"] == {
        "passed": True, "blocking": False, "space": NEW.key, "recall at 10": 1.0, "recall of the index": 1.0,
        "passages": 4,
    }  # fmt: skip
    assert models.opened == [], "nothing was missing"
    assert run(memory, instance, NEW)["switched to it now"] is False


def test_what_arrived_meanwhile_is_embedded_before_the_switch(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    write(store, 2, first=4)
    found = run(memory, instance, NEW)
    assert (found["passages"], found["switched to it now"], len(models.opened)) == (6, True, 1)


def test_a_paused_space_is_not_completed(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    write(store, 2, first=4)
    reembed.pause(store)
    found = run(memory, instance, NEW)
    assert (found["passages without a vector"], found["switched to it now"], models.opened) == (2, False, [])


def test_the_setting_ask_leaves_the_switch_to_somebody(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store
) -> None:
    store.settings.set("config.switch", "ask")
    found = run(memory, instance, NEW)
    assert (found["waits for a yes"], active(store)) == (True, OLD.key)
    assert reembed.use(store, NEW.key, "fp32").switched
    assert run(memory, instance, NEW)["active"] is True


def test_a_model_set_back_meanwhile_keeps_the_active_space(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store
) -> None:
    set_wanted_model(store, OLD.model_id)
    assert run(memory, instance, NEW)["switched to it now"] is False
    assert (active(store), reembed.status(store).state) == (OLD.key, "idle")


def test_by_hand_an_added_space_is_switched_to_and_stays(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store
) -> None:
    store.spaces.stop(NEW.key)
    set_wanted_model(store, OLD.model_id)
    assert run(memory, instance, NEW)["switched to it now"] is True
    assert (active(store), wanted_model(store)) == (NEW.key, NEW.model_id)


def test_an_index_that_finds_too_little_fails_its_check_but_not_its_run(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(store.vectors), "recall", lambda *_: 0.95)
    found = run(memory, instance, NEW)
    assert (found["check"]["passed"], found["switched to it now"]) == (False, True)


def test_index_that_is_searched_exactly_fails_its_check(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(recall=0.4, is_exact=True))
    found = run(memory, instance, NEW)
    assert (found["check"]["passed"], found["check"]["recall of the index"]) == (False, 0.4)
    assert found["switched to it now"] is True


def test_searches_do_not_move_by_themselves_to_an_index_that_finds_hardly_anything(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = active(store)
    monkeypatch.setattr(type(store.vectors), "recall", lambda *_: 0.5)
    with pytest.raises(GiveUp, match=f"finds only 50%.*anamnesis model use {NEW.key}"):
        run(memory, instance, NEW)
    assert active(store) == before

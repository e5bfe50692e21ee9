"""Which model answers while one space gives way to another."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from anamnesis_pipeline.embeddings import space_models
from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.errors import BadSetting, ModelLoading, StoreBusy
from anamnesis_pipeline.model import Space
from anamnesis_tests.embeddings.marked_models import NEW, OLD, OpenModels, answering, new_from, pool_of
from anamnesis_tests.support.fake_models import Gate, Threads, wait_for


def test_model_of_the_active_space_is_loaded_in_the_background(open_models: OpenModels) -> None:
    gate = Gate()
    models = open_models(lambda space: pool_of(space, gate))
    models.load_in_background()
    assert gate.reached.wait(60)
    with pytest.raises(ModelLoading, match="model-old is still loading"):
        models.embed_query("x", OLD)
    assert (models.ready, models.failure, models.model_id) == (False, None, "model-old")
    gate.opened.set()
    wait_for(lambda: models.ready)
    assert models.embed_query("x", OLD).vector.shape == (4,)
    assert models.embed_passages(["a", "b"], OLD).vectors.shape == (2, 4)


def test_old_space_answers_until_the_new_model_is_in_memory(open_models: OpenModels) -> None:
    gate = Gate()
    models = open_models(new_from(gate), ready=True)
    for _ in range(3):
        assert answering(models, NEW) == "old"
    assert gate.reached.wait(60)
    gate.opened.set()
    wait_for(lambda: answering(models, NEW) == "new")
    assert models.model_id == "model-new"


def test_search_that_chose_before_the_switch_gets_its_vector(open_models: OpenModels) -> None:
    models = open_models(ready=True)
    chosen = models.space_for(OLD)
    wait_for(lambda: models.space_for(NEW) == NEW)
    assert models.embed_query("x", chosen).vector.shape == (4,)
    assert models.space_for(NEW) == NEW, "asking for the old space does not bring it back"


def test_replaced_model_leaves_memory_after_its_grace(open_models: OpenModels, threads: Threads) -> None:
    models = open_models(ready=True, grace_s=0.05)
    wait_for(lambda: models.space_for(NEW) == NEW)
    wait_for(lambda: len(threads.named("embed-")) == 1)
    with pytest.raises(ModelLoading):
        models.embed_query("x", OLD)
    assert answering(models, NEW) == "new"


def test_what_was_asked_is_not_embedded_again(open_models: OpenModels, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded: list[str] = []
    embed = PinnedPool.embed_with_tokens

    def noted(pool: PinnedPool, texts: Sequence[str], role: Role) -> Embedded:
        embedded.extend(texts)
        return embed(pool, texts, role)

    models = open_models(ready=True)
    monkeypatch.setattr(PinnedPool, "embed_with_tokens", noted)
    first = models.embed_query("x", OLD)
    assert models.embed_query("x", OLD) is first
    models.embed_query("y", OLD)
    assert embedded == ["x", "y"]


def test_search_never_waits_for_the_files_of_a_model(open_models: OpenModels) -> None:
    gate = Gate()

    def open_pool(space: Space) -> PinnedPool:
        if space == NEW:
            gate()
        return pool_of(space)

    models = open_models(open_pool, ready=True)
    assert answering(models, NEW) == "old", "the files of the new one are still being opened"
    assert gate.reached.wait(60)
    assert answering(models, NEW) == "old"
    gate.opened.set()
    wait_for(lambda: answering(models, NEW) == "new")


def test_workers_follow_the_configured_cores_without_a_load(open_models: OpenModels) -> None:
    loads: list[int] = []
    cores = [available_cores()[:1]]
    models = open_models(lambda s: pool_of(s, lambda: loads.append(1)), cores=lambda: cores[0], ready=True)
    cores[0] = available_cores()
    models.follow_cores()
    assert models.pool is not None
    assert list(models.pool.cores) == available_cores()
    assert models.pool.workers == len(available_cores())
    assert answering(models, OLD) == "old"
    assert loads == [1]


def test_bad_cores_change_nothing_and_are_read_rarely(open_models: OpenModels, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def cores() -> list[int]:
        reads.append(1)
        raise BadSetting("embed_cores = 99: this machine has no such core")

    monkeypatch.setattr(space_models, "CORES_READ_EVERY_S", 3_600.0)
    models = open_models(cores=cores, ready=True)
    for _ in range(20):
        assert answering(models, OLD) == "old"
    assert len(reads) == 1
    monkeypatch.setattr(space_models, "CORES_READ_EVERY_S", 0.0)
    assert answering(models, OLD) == "old"
    assert len(reads) == 2
    assert models.pool is not None
    assert list(models.pool.cores) == available_cores()[:1]


def test_no_search_is_answered_from_a_wrong_space(open_models: OpenModels) -> None:
    models = open_models(ready=True, grace_s=0.0)
    active, stop, answers = [OLD], threading.Event(), list[str]()

    def search() -> None:
        while not stop.is_set():
            with suppress(ModelLoading):  # the grace is nought here: too late, said politely
                answers.append(answering(models, active[0]))

    with ThreadPoolExecutor(4) as pool:
        searchers = [pool.submit(search) for _ in range(4)]
        try:
            for n in range(12):
                answers.clear()
                active[0] = wanted = (NEW, OLD)[n % 2]
                if n % 3:  # the others are taken back while their model is still on its way, or just after
                    wait_for(partial(answers.__contains__, wanted.key))
        finally:
            stop.set()
        for searcher in searchers:
            searcher.result(60)


def test_switch_is_seen_without_a_search(open_models: OpenModels) -> None:
    active = [OLD]
    models = open_models(active=lambda: active[0], look_every_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    active[0] = NEW
    wait_for(lambda: models.model_id == "model-new" and models.ready)


def test_watcher_outlives_a_busy_store_and_ends_with_the_models(open_models: OpenModels, threads: Threads) -> None:
    looks: list[int] = []

    def active() -> Space:
        looks.append(1)
        if len(looks) < 5:
            raise StoreBusy("locked")
        return OLD

    models = open_models(active=active, look_every_s=0.01)
    models.load_in_background()
    wait_for(lambda: models.ready)
    assert threads.named("space-watcher")
    models.close()
    wait_for(lambda: not threads.named("space-watcher"))


def test_new_space_is_named_as_loading_once_the_old_is_dropped(open_models: OpenModels) -> None:
    gate, known = Gate(), {"old", "new"}
    models = open_models(new_from(gate), lambda: NEW, exists=known.__contains__, ready=True)
    assert answering(models, NEW) == "old"
    known.remove("old")
    assert models.space_for(NEW) == NEW
    with pytest.raises(ModelLoading, match="model-new is still loading"):
        models.embed_query("x", NEW)
    assert (models.ready, models.model_id) == (False, "model-new")
    gate.opened.set()
    wait_for(lambda: models.ready)
    assert answering(models, NEW) == "new"


def test_switching_back_lets_go_of_the_model_on_its_way(open_models: OpenModels, threads: Threads) -> None:
    gate = Gate()
    models = open_models(new_from(gate), grace_s=0.01, ready=True)
    models.space_for(NEW)
    assert gate.reached.wait(60)
    assert answering(models, OLD) == "old"
    gate.opened.set()
    wait_for(lambda: not threads.named("load new"))
    wait_for(lambda: len(threads.named("embed-")) == 1)
    assert answering(models, OLD) == "old"


def test_closing_while_a_model_is_on_its_way_ends_it_too(open_models: OpenModels, threads: Threads) -> None:
    gate = Gate()
    models = open_models(lambda space: pool_of(space, gate))
    models.space_for(OLD)
    assert gate.reached.wait(60)
    models.close()
    gate.opened.set()
    wait_for(lambda: not threads.named("load old"))
    wait_for(lambda: not threads.named("embed-"))
    assert models.space_for(NEW) == NEW
    with pytest.raises(ModelLoading):
        models.embed_query("x", NEW)

"""Which space the settings ask for, and the switch to one that is complete, on a real store."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.errors import GiveUp, SpaceNotFound
from anamnesis_pipeline.model import Space, Variant, Where
from anamnesis_pipeline.steps.copying import make_fast
from anamnesis_pipeline.steps.reembed_state import job_of, record_recall, set_wanted_model, wanted_model
from anamnesis_pipeline.steps.spaces import SpaceReport, begin, ensure_space, generations, index_space
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.steps.spaces import embed_all, files_of, write

A, B, C = files_of("a"), files_of("b"), files_of("c")


def statuses(store: Store) -> dict[str, str]:
    return {f"{space.model_id}{space.generation}": space.status for space in store.spaces.all()}


def ensure(store: Store, files: object) -> Space:
    return ensure_space(store, files, "fp32")  # type: ignore[arg-type]


def b_after_a(store: Store, episodes: int) -> Space:
    """The space of B, which is being built over so many episodes while A answers."""
    write(store, episodes)
    ensure(store, A)
    return ensure(store, B)


def with_b_active(store: Store) -> tuple[Space, Space]:
    """Spaces of A and B over five episodes; B answers, A is retired."""
    second = b_after_a(store, 5)
    (first,) = (space for space in store.spaces.all() if space != second)
    embed_all(store, first)
    embed_all(store, second)
    assert index_space(store, second.key).switched
    assert not index_space(store, first.key).switched, "it is retired"
    return first, second


def test_the_first_space_is_active_and_the_next_when_complete(store: Store) -> None:
    write(store, 1)
    first = ensure(store, A)
    assert (first.status, ensure(store, A)) == ("active", first)
    second = ensure(store, B)
    job = job_of(store)
    assert (second.status, job and (job.space, job.model_id, job.backfill_id)) == ("building", (second.key, "b", None))
    assert not index_space(store, second.key).switched, "a passage lacks its vector there"
    embed_all(store, second)
    report = index_space(store, second.key)
    assert (report.active, report.switched, report.passages, report.missing) == (True, True, 1, 0)
    assert (report.recall, report.waits) == (1.0, False)
    assert not index_space(store, second.key).switched
    assert statuses(store) == {"a1": "retired", "b1": "active"}


def test_space_with_unsound_vectors_gets_no_index_and_no_switch(store: Store) -> None:
    write(store, 2)
    embed_all(store, ensure(store, A))
    second = ensure(store, B)
    embed_all(store, second)
    (passage, *_) = store.episodes.passages_of(store.episodes.page(Where(), 1).items[0].episode_id)
    store.vectors.put(second.key, Variant.TEXT, [passage.passage_id], np.zeros((1, second.dim), np.float32))
    with pytest.raises(GiveUp, match=f"1 vectors of the newest episodes in {second.key}"):
        index_space(store, second.key)
    assert statuses(store) == {"a1": "active", "b1": "building"}


def test_a_model_whose_space_is_on_its_way_is_left_to_it(store: Store) -> None:
    b_after_a(store, 1)
    job = job_of(store)
    assert job is not None
    assert ensure(store, B).status == "building"
    assert job_of(store) == job


def test_another_model_waits_until_the_one_before_is_complete(store: Store) -> None:
    second = b_after_a(store, 1)
    assert ensure(store, C) == second
    assert statuses(store) == {"a1": "active", "b1": "building"}
    embed_all(store, second)
    assert index_space(store, second.key).switched
    assert ensure(store, C).status == "building"


def test_a_retired_model_that_lacks_nothing_is_switched_to(store: Store) -> None:
    first, second = with_b_active(store)
    assert ensure(store, A) == replace(first, status="active")
    write(store, 1, first=5)
    embed_all(store, first)
    assert ensure(store, B).status == "building", "an episode was written since it was active"
    embed_all(store, second)
    assert index_space(store, second.key).switched


def test_any_generation_of_the_wanted_model_may_be_active(store: Store) -> None:
    write(store, 1)
    first = ensure(store, A)
    embed_all(store, first)
    store.spaces.put(A.space(2))
    begin(store, A.space(2))
    assert ensure(store, A).key == first.key
    embed_all(store, A.space(2))
    assert index_space(store, A.space(2).key).switched
    assert store.spaces.activate(first.key), "somebody moves back"
    assert ensure(store, A) == first
    assert statuses(store) == {"a1": "active", "a2": "retired"}


def test_weights_that_changed_in_place_are_another_model(store: Store) -> None:
    write(store, 1)
    ensure(store, A)
    changed = replace(A, fingerprint="ffffffff")
    assert generations(store, changed) == []
    assert ensure(store, changed).status == "building"


def test_the_generation_to_go_back_to_was_active_last(store: Store) -> None:
    first, _ = with_b_active(store)
    store.spaces.put(A.space(2))
    assert [space.generation for space in generations(store, A)] == [1, 2]
    embed_all(store, A.space(2))
    store.spaces.activate(A.space(2).key)
    assert [space.generation for space in generations(store, A)] == [2, 1]
    assert store.spaces.activate(first.key)
    assert [space.generation for space in generations(store, A)] == [1, 2]


def test_a_space_waits_for_a_yes_when_it_is_not_to_switch(store: Store) -> None:
    second = b_after_a(store, 3)
    embed_all(store, second)
    report = index_space(store, second.key, switch=False)
    assert (report.waits, report.switched, report.active) == (True, False, False)
    assert statuses(store) == {"a1": "active", "b1": "building"}


@pytest.mark.parametrize("arrivals", [1, 99], ids=["once", "in each round"])
def test_what_arrives_is_embedded_before_the_switch(store: Store, arrivals: int) -> None:
    second, rounds = b_after_a(store, 1), []

    def embed_rest() -> None:
        rounds.append(1)
        embed_all(store, second)
        if len(rounds) <= arrivals:
            write(store, 1, first=len(rounds))

    report = index_space(store, second.key, embed_rest=embed_rest)
    expected = (True, 0, 2) if arrivals == 1 else (False, 1, 5)
    assert (report.switched, report.missing, len(rounds)) == expected


def test_much_that_is_missing_is_no_rest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anamnesis_pipeline.steps.spaces.REST_PASSAGES", 3)
    second = b_after_a(store, 4)
    report = index_space(store, second.key, embed_rest=lambda: pytest.fail("that is work for embeddings"))
    assert (report.switched, report.missing) == (False, 4)


def test_an_added_space_indexed_by_hand_becomes_the_wanted_one(store: Store) -> None:
    write(store, 2)
    ensure(store, A)
    store.spaces.put(B.space())
    assert not index_space(store, B.space().key, wanted_model="a").switched
    assert wanted_model(store) is None
    embed_all(store, B.space())
    assert index_space(store, B.space().key, wanted_model="a").switched
    assert wanted_model(store) == "b", "else the next tick would switch back"


def test_an_unwanted_space_is_kept_but_not_switched_to(store: Store) -> None:
    second = b_after_a(store, 2)
    embed_all(store, second)
    set_wanted_model(store, "a")
    report = index_space(store, second.key, wanted_model="a")
    assert (report.switched, report.waits) == (False, False)
    assert statuses(store) == {"a1": "active", "b1": "added"}
    assert store.vectors.count(second.key) == 2


@pytest.mark.parametrize(("brought_up_to_date", "builds"), [(True, [False, True]), (False, [False])])
def test_a_grown_index_that_finds_too_little_is_built_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch, brought_up_to_date: bool, builds: list[bool]
) -> None:
    write(store, 3)
    space = ensure(store, A)
    embed_all(store, space)
    found = iter([0.5, 1.0])
    forced: list[bool] = []
    build = type(store.vectors).build

    def noting(self: object, key: str, *, force: bool = False) -> object:
        forced.append(force)
        return replace(build(self, key, force=force), rebuilt=brought_up_to_date)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store.vectors), "recall", lambda *_: next(found))
    monkeypatch.setattr(type(store.vectors), "build", noting)
    report: SpaceReport = index_space(store, space.key)
    assert forced == builds
    assert report.recall == (1.0 if brought_up_to_date else 0.5)


def test_recall_is_measured_again_after_growth_by_a_fifth(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, 10)
    space = ensure(store, A)
    embed_all(store, space)
    measured: list[int] = []
    recall = type(store.vectors).recall

    def noting(self: Any, key: str) -> float:
        measured.append(self.count(key))
        return recall(self, key)

    monkeypatch.setattr(type(store.vectors), "recall", noting)
    for passages, times in ((10, 1), (10, 1), (12, 1), (13, 2), (15, 2), (16, 3)):
        write(store, passages)
        embed_all(store, space)
        assert index_space(store, space.key).recall == 1.0
        assert len(measured) == times, passages


def test_recall_is_measured_again_for_a_new_or_shrunk_index(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, 12)
    space = ensure(store, A)
    embed_all(store, space)
    index_space(store, space.key)
    monkeypatch.setattr(type(store.vectors), "recall", lambda *_: 0.999)
    assert index_space(store, space.key).recall == 1.0
    build = type(store.vectors).build
    with monkeypatch.context() as anew:
        anew.setattr(type(store.vectors), "build", lambda *given, **how: replace(build(*given, **how), rebuilt=True))
        assert index_space(store, space.key).recall == 0.999
    monkeypatch.setattr(type(store.vectors), "recall", lambda *_: 0.998)
    monkeypatch.setattr(type(store.vectors), "count", lambda *_: 9)
    assert index_space(store, space.key).recall == 0.998


def test_a_copied_memory_measures_the_recall_of_its_own_index(store: Store) -> None:
    write(store, 3)
    space = ensure(store, A)
    embed_all(store, space)
    record_recall(store, space.key, 0.9, 3)
    make_fast(store, lambda *_: None)
    assert index_space(store, space.key).recall == 1.0


def test_a_space_that_does_not_exist_is_named_with_those_that_do(store: Store) -> None:
    ensure(store, A)
    with pytest.raises(SpaceNotFound, match=f"no space 'x'; there are: {A.space().key}"):
        index_space(store, "x")

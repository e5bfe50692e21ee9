"""What API and command line do with spaces, which one the settings ask for, and the switch to one that is complete."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.errors import GiveUp, ServiceUnreachable, SpaceConflict, SpaceNotFound, StoreFull
from anamnesis_pipeline.model import EpisodeFilter, Space, Variant
from anamnesis_pipeline.pipeline.index import SpaceReport, add_model, begin, ensure_space, generations, index_space
from anamnesis_pipeline.pipeline.reembed_state import (
    FAILURE,
    PAUSED,
    RATE,
    STOPPED,
    failure_of,
    job_of,
    noting_failure,
    record_rate,
    record_recall,
    set_wanted_model,
    stopped_backfill,
    wanted_model,
)
from anamnesis_pipeline.services import reembedding
from anamnesis_pipeline.services.store_copies import make_fast
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexReport
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.spaces import embed_all, files_of, write

A, B, B32, C = files_of("a"), files_of("b", dim=16), files_of("b"), files_of("c")


class Launcher:
    """Notes what it was to launch, and answers with backfill ids."""

    def __init__(self, problem: str = "") -> None:
        self.launched: list[tuple[str, list[str]]] = []
        self._problem = problem

    def __call__(self, space: str, sources: Sequence[str]) -> str:
        if self._problem:
            raise ServiceUnreachable(self._problem)
        self.launched.append((space, sorted(sources)))
        return f"backfill-{len(self.launched)}"


@pytest.fixture
def launch() -> Launcher:
    return Launcher()


@pytest.fixture
def live(store: Store) -> Store:
    """A is active and complete; five episodes of two sources."""
    write(store, 3)
    write(store, 2, source="uploads", first=3)
    embed_all(store, ensure_space(store, A, "fp32"), ["direct", "uploads"])
    return store


@pytest.fixture
def building(live: Store, launch: Launcher) -> Space:
    """The space of B, whose re-embed was started."""
    return reembedding.use(live, B, "fp32", launch).space


def finish(store: Store, space: Space) -> None:
    embed_all(store, space, ["direct", "uploads"], dim=space.dim)
    assert index_space(store, space.key).switched


def statuses(store: Store) -> dict[str, str]:
    return {f"{space.model_id}{space.generation}": space.status for space in store.spaces.all()}


def test_an_added_model_waits_to_be_asked_for(live: Store) -> None:
    space = add_model(live, B, "fp32")
    assert (space.status, add_model(live, B, "bf16")) == ("added", space)
    assert (statuses(live), reembedding.status(live).state) == ({"a1": "active", "b1": "added"}, "idle")


def test_using_a_new_model_launches_its_backfill(live: Store, launch: Launcher) -> None:
    started = reembedding.use(live, B, "fp32", launch)
    assert launch.launched == [(B.space().key, ["direct", "uploads"])]
    assert (started.switched, started.backfill_id, started.total, started.missing) == (False, "backfill-1", 5, 5)
    assert (started.space.status, wanted_model(live)) == ("building", "b")
    status = reembedding.status(live)
    assert (status.state, status.space, status.model_id) == ("running", B.space().key, "b")
    assert (status.done, status.total, status.episodes_total, status.backfill_id) == (0, 5, 5, "backfill-1")
    assert (status.active_model_id, status.rate_per_s, status.eta_s, status.checkpoint) == ("a", None, None, None)
    assert status.started_at is not None


def test_a_space_is_moved_to_and_back(live: Store, launch: Launcher) -> None:
    first = live.spaces.active()
    finish(live, reembedding.use(live, B, "fp32", launch).space)
    assert reembedding.status(live).state == "complete"
    back = reembedding.use(live, first.key, "fp32", launch)
    assert (back.switched, back.backfill_id, back.space.status, wanted_model(live)) == (True, None, "active", "a")
    assert len(launch.launched) == 1
    assert ensure_space(live, A, "fp32").key == first.key, "the sensor agrees"
    assert reembedding.use(live, B, "fp32", launch).switched


def test_moving_back_fills_what_a_space_lacks_first(live: Store, launch: Launcher) -> None:
    finish(live, reembedding.use(live, B, "fp32", launch).space)
    write(live, 1, first=9)
    back = reembedding.use(live, A, "fp32", launch)
    assert (back.switched, launch.launched[-1]) == (False, (A.space().key, ["direct"]))
    finish(live, back.space)
    assert statuses(live) == {"a1": "active", "b1": "retired"}


def test_using_what_is_active_changes_nothing_but_the_setting(live: Store, launch: Launcher) -> None:
    used = reembedding.use(live, A, "fp32", launch)
    assert (used.switched, used.space.status, launch.launched, wanted_model(live)) == (False, "active", [], "a")
    assert (job_of(live), reembedding.status(live).state) == (None, "idle")


def test_one_thing_at_a_time(live: Store, launch: Launcher, building: Space) -> None:
    for attempt in (
        lambda: reembedding.use(live, B, "fp32", launch),
        lambda: reembedding.use(live, C, "fp32", launch),
        lambda: reembedding.reembed_active(live, A, "fp32", launch),
    ):
        with pytest.raises(SpaceConflict, match=building.key):
            attempt()
    assert (len(launch.launched), wanted_model(live)) == (1, "b")
    assert statuses(live)["b1"] == "building"


def test_of_two_callers_at_once_exactly_one_starts(live: Store, open_store: OpenStore, launch: Launcher) -> None:
    outcomes: list[str] = []
    together = threading.Barrier(4)

    def start(store: Store) -> None:
        together.wait()
        try:
            outcomes.append(reembedding.reembed_active(store, A, "fp32", launch).space.key)
        except SpaceConflict:
            outcomes.append("refused")

    callers = [threading.Thread(target=start, args=(open_store(),)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(outcomes)[1:] == ["refused"] * 3
    assert len(launch.launched) == 1
    assert [s.status for s in live.spaces.all()].count("building") == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_start_that_cannot_be_launched_changes_nothing(live: Store, known: bool) -> None:
    if known:
        add_model(live, B, "fp32")
    before = (statuses(live), live.settings.all())
    with pytest.raises(ServiceUnreachable, match="nobody answers"):
        reembedding.use(live, B, "fp32", Launcher("nobody answers"))
    assert (statuses(live), live.settings.all()) == before
    with pytest.raises(ServiceUnreachable):
        reembedding.reembed_active(live, A, "fp32", Launcher("nobody answers"))
    assert (statuses(live), live.settings.all()) == before


def test_embedding_anew_makes_the_next_free_generation(live: Store, launch: Launcher) -> None:
    second = reembedding.reembed_active(live, A, "bf16", launch).space
    assert (second.generation, second.precision, second.key) == (2, "bf16", A.space(2).key)
    finish(live, second)
    assert statuses(live) == {"a1": "retired", "a2": "active"}
    reembedding.drop(live, A.space().key)
    assert reembedding.reembed_active(live, A, "fp32", launch).space.generation == 3
    reembedding.drop(live, A.space(3).key)
    assert reembedding.reembed_active(live, A, "fp32", launch).space.generation == 3


def test_pause_and_resume(live: Store, launch: Launcher, building: Space) -> None:
    started_at = reembedding.status(live).started_at
    assert reembedding.pause(live).state == "paused"
    assert reembedding.pause(live).state == "paused"
    embed_all(live, building, ["uploads"], dim=16)
    resumed = reembedding.resume(live, launch)
    assert (resumed.state, resumed.backfill_id, resumed.started_at) == ("running", "backfill-2", started_at)
    assert launch.launched[-1] == (building.key, ["direct"]), "only what is left"
    assert reembedding.resume(live, launch).state == "running"
    assert len(launch.launched) == 2, "it runs already"


def test_a_resume_that_cannot_be_launched_leaves_it_paused(live: Store, launch: Launcher) -> None:
    reembedding.use(live, B, "fp32", launch)
    reembedding.pause(live)
    with pytest.raises(ServiceUnreachable):
        reembedding.resume(live, Launcher("nobody answers"))
    assert (reembedding.status(live).state, reembedding.status(live).backfill_id) == ("paused", "backfill-1")
    assert reembedding.resume(live).state == "running", "the sensors go on with it"


def test_pausing_nothing_holds_back_nothing_later(live: Store, launch: Launcher) -> None:
    assert (reembedding.pause(live).state, reembedding.resume(live, launch).state) == ("idle", "idle")
    assert live.settings.get(PAUSED) is None
    assert reembedding.use(live, B, "fp32", launch).space.status == "building"
    assert (reembedding.status(live).state, len(launch.launched)) == ("running", 1)


def fail(store: Store, space: Space, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreFull), noting_failure(store, space.key):
            raise StoreFull("no room")


def test_three_failures_are_a_failed_re_embed_until_resumed(live: Store, launch: Launcher, building: Space) -> None:
    fail(live, building, 2)
    assert (reembedding.status(live).state, reembedding.status(live).errors) == ("running", 2)
    fail(live, building, 1)
    status = reembedding.status(live)
    assert (status.state, status.errors, status.last_error) == ("failed", 3, "no room")
    again = reembedding.resume(live, launch)
    assert (again.state, again.errors, len(launch.launched)) == ("running", 0, 2)


def test_the_status_tells_rate_time_left_and_checkpoint(live: Store, launch: Launcher, building: Space) -> None:
    embed_all(live, building, ["uploads"], dim=16)
    record_rate(live, building.key, 1.5, 4.0)
    status = reembedding.status(live)
    assert (status.done, status.episodes_done, status.rate_per_s, status.eta_s) == (2, 2, 1.5, 2.0)
    assert (status.checkpoint.done, status.checkpoint.total, status.checkpoint.model_id) == (2, 5, "b")
    assert status.checkpoint.last_id.startswith("uploads-")
    assert status.checkpoint.at <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("checkpoint_s", "ago_s", "shown"), [(4, 9, True), (4, 11, False), (60, 119, True), (60, 121, False)]
)
def test_a_pace_is_shown_until_it_is_overdue(
    live: Store, launch: Launcher, building: Space, checkpoint_s: float, ago_s: float, shown: bool
) -> None:
    record_rate(live, building.key, 1.5, checkpoint_s)
    row = live.settings.get(RATE + building.key)
    live.settings.set(RATE + building.key, {**row, "at": (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat()})
    status = reembedding.status(live)
    assert (status.rate_per_s is not None, status.eta_s is not None) == (shown, shown)


def test_what_is_done_already_is_not_counted_as_missing(live: Store, launch: Launcher) -> None:
    embed_all(live, add_model(live, B, "fp32"), ["uploads"], dim=16)
    started = reembedding.use(live, B, "fp32", launch)
    assert (started.total, started.missing) == (5, 3)


@pytest.mark.parametrize("by_key", [True, False])
def test_using_the_active_space_is_to_stay_there(live: Store, launch: Launcher, building: Space, by_key: bool) -> None:
    embed_all(live, building, ["uploads"], dim=16)
    reembedding.pause(live)
    stayed = reembedding.use(live, A.space().key if by_key else A, "fp32", launch)
    assert (stayed.space.key, stayed.stopped, stayed.stopped_backfill) == (A.space().key, building.key, "backfill-1")
    assert (statuses(live), wanted_model(live)) == ({"a1": "active", "b1": "added"}, "a")
    assert (reembedding.status(live).state, live.settings.get(PAUSED)) == ("idle", None)
    assert ensure_space(live, A, "fp32").key == A.space().key, "the sensor leaves it at that"
    assert not reembedding.adopt(live, building, "backfill-1"), "nor does a run of the old backfill begin it again"
    assert statuses(live)["b1"] == "added"
    assert reembedding.use(live, B, "fp32", launch).missing == 3, "its vectors were kept"


def test_a_re_embed_given_up_meanwhile_is_not_switched_to(live: Store) -> None:
    started = reembedding.use(live, B, "fp32")
    space = started.space
    assert (started.backfill_id, space.status) == (None, "building"), "without a launcher it is left to the sensors"
    embed_all(live, space, list(live.vectors.pending_sources(space.key)), dim=16)

    def build(force: bool) -> IndexReport:
        reembedding.use(live, A, "fp32")
        return live.vectors.build(space.key, force=force)

    assert not index_space(live, space.key, build=build).switched
    assert statuses(live) == {"a1": "active", "b1": "added"}


def test_a_new_generation_is_given_up_by_using_the_active_one(live: Store, launch: Launcher) -> None:
    second = reembedding.reembed_active(live, A, "fp32", launch).space
    assert reembedding.use(live, A, "fp32", launch).stopped == second.key
    assert statuses(live) == {"a1": "active", "a2": "added"}
    assert stopped_backfill(live) == "backfill-1"


def test_a_space_of_changed_model_files_is_not_given_up(live: Store) -> None:
    changed = replace(A, fingerprint="ffffffff")
    building = reembedding.use(live, changed, "fp32").space
    with pytest.raises(SpaceConflict, match="put the former ones back"):
        reembedding.use(live, A.space().key, "fp32")
    assert {space.key: space.status for space in live.spaces.all()}[building.key] == "building"


def test_a_complete_space_waits_for_a_yes_when_told_to_ask(live: Store, launch: Launcher, building: Space) -> None:
    embed_all(live, building, ["direct", "uploads"], dim=16)
    status = reembedding.status(live, "ask")
    assert (status.state, status.waiting_for_use) == ("complete", True)
    assert not reembedding.status(live, "auto").waiting_for_use
    assert reembedding.use(live, building.key, "fp32", launch).switched
    assert (reembedding.status(live, "ask").waiting_for_use, len(launch.launched)) == (False, 1)


def test_the_active_space_cannot_be_dropped(live: Store) -> None:
    with pytest.raises(SpaceConflict, match="answers the searches"):
        reembedding.drop(live, A.space().key)
    with pytest.raises(SpaceNotFound):
        reembedding.drop(live, "x")


@pytest.mark.parametrize("stored", [True, False])
def test_dropping_what_is_being_built_ends_it(live: Store, launch: Launcher, building: Space, stored: bool) -> None:
    reembedding.pause(live)
    fail(live, building, 1)
    record_rate(live, building.key, 1.0, 4.0)
    if not stored:
        set_wanted_model(live, None)  # the environment asks for it
    assert reembedding.drop(live, building.key) == "backfill-1"
    left = {name: value for name, value in live.settings.all().items() if not name.endswith(A.space().key)}
    assert (statuses(live), left) == ({"a1": "active"}, {"config.model": "a", STOPPED: "backfill-1"})
    fail(live, building, 1)
    assert (failure_of(live, building.key), live.settings.all(FAILURE)) == (None, {})
    assert not reembedding.adopt(live, add_model(live, B, "fp32"), "backfill-1"), "it is no wish to have it again"
    assert reembedding.status(live).state == "idle"


def test_dropping_a_retired_space_leaves_a_re_embed_alone(live: Store, launch: Launcher) -> None:
    finish(live, reembedding.use(live, B, "fp32", launch).space)
    building = reembedding.use(live, C, "fp32", launch).space
    reembedding.pause(live)
    assert reembedding.drop(live, A.space().key) is None
    status = reembedding.status(live)
    assert (status.state, status.space, wanted_model(live)) == ("paused", building.key, "c")


def test_a_backfill_launched_by_hand_becomes_the_re_embed(live: Store) -> None:
    space = add_model(live, B, "fp32")
    reembedding.adopt(live, space, "by-hand")
    status = reembedding.status(live)
    assert (status.state, status.backfill_id, wanted_model(live)) == ("running", "by-hand", "b")


# --- which space is asked for, and the switch -------------------------------------------------------------


def ensure(store: Store, files: object) -> Space:
    return ensure_space(store, files, "fp32")  # type: ignore[arg-type]


def b_after_a(store: Store, episodes: int) -> Space:
    """The space of B32, which is being built over so many episodes while A answers."""
    write(store, episodes)
    ensure(store, A)
    return ensure(store, B32)


def with_b_active(store: Store) -> tuple[Space, Space]:
    """Spaces of A and B32 over five episodes; B32 answers, A is retired."""
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
    second = ensure(store, B32)
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
    second = ensure(store, B32)
    embed_all(store, second)
    (passage, *_) = store.episodes.passages_of(store.episodes.page(EpisodeFilter(), 1).items[0].episode_id)
    store.vectors.put(second.key, Variant.TEXT, [passage.passage_id], np.zeros((1, second.dim), np.float32))
    with pytest.raises(GiveUp, match=f"1 vectors of the newest episodes in {second.key}"):
        index_space(store, second.key)
    assert statuses(store) == {"a1": "active", "b1": "building"}


def test_a_model_whose_space_is_on_its_way_is_left_to_it(store: Store) -> None:
    b_after_a(store, 1)
    job = job_of(store)
    assert job is not None
    assert ensure(store, B32).status == "building"
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
    assert ensure(store, B32).status == "building", "an episode was written since it was active"
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
    monkeypatch.setattr("anamnesis_pipeline.pipeline.index.REST_PASSAGES", 3)
    second = b_after_a(store, 4)
    report = index_space(store, second.key, embed_rest=lambda: pytest.fail("that is work for embeddings"))
    assert (report.switched, report.missing) == (False, 4)


def test_an_added_space_indexed_by_hand_becomes_the_wanted_one(store: Store) -> None:
    write(store, 2)
    ensure(store, A)
    store.spaces.put(B32.space())
    assert not index_space(store, B32.space().key, wanted_model="a").switched
    assert wanted_model(store) is None
    embed_all(store, B32.space())
    assert index_space(store, B32.space().key, wanted_model="a").switched
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

"""What API and command line do with spaces, on a real store; the backfill that would do the work is only noted."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from anamnesis_pipeline.errors import ServiceUnreachable, SpaceConflict, SpaceNotFound, StoreFull
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.steps import reembed
from anamnesis_pipeline.steps.reembed_state import (
    FAILURE,
    PAUSED,
    RATE,
    STOPPED,
    failure_of,
    job_of,
    noting_failure,
    record_rate,
    set_wanted_model,
    stopped_backfill,
    wanted_model,
)
from anamnesis_pipeline.steps.spaces import add_model, ensure_space, index_space
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexReport
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.steps.spaces import embed_all, files_of, write

A, B, C = files_of("a"), files_of("b", dim=16), files_of("c")


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


def finish(store: Store, space: Space) -> None:
    embed_all(store, space, ["direct", "uploads"], dim=space.dim)
    assert index_space(store, space.key).switched


def statuses(store: Store) -> dict[str, str]:
    return {f"{space.model_id}{space.generation}": space.status for space in store.spaces.all()}


def test_an_added_model_waits_to_be_asked_for(live: Store) -> None:
    space = add_model(live, B, "fp32")
    assert (space.status, add_model(live, B, "bf16")) == ("added", space)
    assert (statuses(live), reembed.status(live).state) == ({"a1": "active", "b1": "added"}, "idle")


def test_using_a_new_model_launches_its_backfill_and_stores_the_choice(live: Store, launch: Launcher) -> None:
    started = reembed.use(live, B, "fp32", launch)
    assert launch.launched == [(B.space().key, ["direct", "uploads"])]
    assert (started.switched, started.backfill_id, started.total, started.missing) == (False, "backfill-1", 5, 5)
    assert (started.space.status, wanted_model(live)) == ("building", "b")
    status = reembed.status(live)
    assert (status.state, status.space, status.model_id) == ("running", B.space().key, "b")
    assert (status.done, status.total, status.episodes_total, status.backfill_id) == (0, 5, 5, "backfill-1")
    assert (status.active_model_id, status.rate_per_s, status.eta_s, status.checkpoint) == ("a", None, None, None)
    assert status.started_at is not None


def test_a_space_is_moved_to_and_back(live: Store, launch: Launcher) -> None:
    first = live.spaces.active()
    assert first is not None
    finish(live, reembed.use(live, B, "fp32", launch).space)
    assert reembed.status(live).state == "complete"
    back = reembed.use(live, first.key, "fp32", launch)
    assert (back.switched, back.backfill_id, back.space.status, wanted_model(live)) == (True, None, "active", "a")
    assert len(launch.launched) == 1
    assert ensure_space(live, A, "fp32").key == first.key, "the sensor agrees"
    assert reembed.use(live, B, "fp32", launch).switched


def test_moving_back_to_a_space_that_lacks_something_fills_it_first(live: Store, launch: Launcher) -> None:
    finish(live, reembed.use(live, B, "fp32", launch).space)
    write(live, 1, first=9)
    back = reembed.use(live, A, "fp32", launch)
    assert (back.switched, launch.launched[-1]) == (False, (A.space().key, ["direct"]))
    finish(live, back.space)
    assert statuses(live) == {"a1": "active", "b1": "retired"}


def test_using_what_is_active_changes_nothing_but_the_setting(live: Store, launch: Launcher) -> None:
    used = reembed.use(live, A, "fp32", launch)
    assert (used.switched, used.space.status, launch.launched, wanted_model(live)) == (False, "active", [], "a")
    assert (job_of(live), reembed.status(live).state) == (None, "idle")


def test_one_thing_at_a_time(live: Store, launch: Launcher) -> None:
    building = reembed.use(live, B, "fp32", launch).space
    for attempt in (
        lambda: reembed.use(live, B, "fp32", launch),
        lambda: reembed.use(live, C, "fp32", launch),
        lambda: reembed.reembed_active(live, A, "fp32", launch),
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
            outcomes.append(reembed.reembed_active(store, A, "fp32", launch).space.key)
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
def test_a_start_that_cannot_be_launched_leaves_everything_as_it_was(live: Store, known: bool) -> None:
    if known:
        add_model(live, B, "fp32")
    before = (statuses(live), live.settings.all())
    with pytest.raises(ServiceUnreachable, match="nobody answers"):
        reembed.use(live, B, "fp32", Launcher("nobody answers"))
    assert (statuses(live), live.settings.all()) == before
    with pytest.raises(ServiceUnreachable):
        reembed.reembed_active(live, A, "fp32", Launcher("nobody answers"))
    assert (statuses(live), live.settings.all()) == before


def test_without_a_launcher_the_sensors_are_left_to_it(live: Store) -> None:
    started = reembed.use(live, B, "fp32")
    assert (started.backfill_id, started.space.status) == (None, "building")


def test_embedding_the_active_model_anew_makes_the_next_free_generation(live: Store, launch: Launcher) -> None:
    second = reembed.reembed_active(live, A, "bf16", launch).space
    assert (second.generation, second.precision, second.key) == (2, "bf16", A.space(2).key)
    finish(live, second)
    assert statuses(live) == {"a1": "retired", "a2": "active"}
    reembed.drop(live, A.space().key)
    assert reembed.reembed_active(live, A, "fp32", launch).space.generation == 3
    reembed.drop(live, A.space(3).key)
    assert reembed.reembed_active(live, A, "fp32", launch).space.generation == 3


def test_pause_and_resume(live: Store, launch: Launcher) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    started_at = reembed.status(live).started_at
    assert reembed.pause(live).state == "paused"
    assert reembed.pause(live).state == "paused"
    embed_all(live, space, ["uploads"], dim=16)
    resumed = reembed.resume(live, launch)
    assert (resumed.state, resumed.backfill_id, resumed.started_at) == ("running", "backfill-2", started_at)
    assert launch.launched[-1] == (space.key, ["direct"]), "only what is left"
    assert reembed.resume(live, launch).state == "running"
    assert len(launch.launched) == 2, "it runs already"


def test_a_resume_that_cannot_be_launched_leaves_it_paused(live: Store, launch: Launcher) -> None:
    reembed.use(live, B, "fp32", launch)
    reembed.pause(live)
    with pytest.raises(ServiceUnreachable):
        reembed.resume(live, Launcher("nobody answers"))
    assert (reembed.status(live).state, reembed.status(live).backfill_id) == ("paused", "backfill-1")
    assert reembed.resume(live).state == "running", "the sensors go on with it"


def test_pausing_nothing_does_not_hold_back_what_is_started_later(live: Store, launch: Launcher) -> None:
    assert (reembed.pause(live).state, reembed.resume(live, launch).state) == ("idle", "idle")
    assert live.settings.get(PAUSED) is None
    assert reembed.use(live, B, "fp32", launch).space.status == "building"
    assert (reembed.status(live).state, len(launch.launched)) == ("running", 1)


def fail(store: Store, space: Space, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreFull), noting_failure(store, space.key):
            raise StoreFull("no room")


def test_three_failures_in_a_row_are_a_failed_re_embed_and_resume_tries_again(live: Store, launch: Launcher) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    fail(live, space, 2)
    assert (reembed.status(live).state, reembed.status(live).errors) == ("running", 2)
    fail(live, space, 1)
    status = reembed.status(live)
    assert (status.state, status.errors, status.last_error) == ("failed", 3, "no room")
    again = reembed.resume(live, launch)
    assert (again.state, again.errors, len(launch.launched)) == ("running", 0, 2)


def test_the_status_tells_the_rate_the_time_left_and_the_checkpoint(live: Store, launch: Launcher) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    embed_all(live, space, ["uploads"], dim=16)
    record_rate(live, space.key, 1.5, 4.0)
    status = reembed.status(live)
    assert (status.done, status.episodes_done, status.rate_per_s, status.eta_s) == (2, 2, 1.5, 2.0)
    assert status.checkpoint is not None
    assert (status.checkpoint.done, status.checkpoint.total, status.checkpoint.model_id) == (2, 5, "b")
    assert status.checkpoint.last_episode.startswith("uploads-")
    assert status.checkpoint.at <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("checkpoint_s", "ago_s", "shown"), [(4, 9, True), (4, 11, False), (60, 119, True), (60, 121, False)]
)
def test_a_pace_is_shown_until_the_next_checkpoint_is_overdue(
    live: Store, launch: Launcher, checkpoint_s: float, ago_s: float, shown: bool
) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    record_rate(live, space.key, 1.5, checkpoint_s)
    row = live.settings.get(RATE + space.key)
    live.settings.set(RATE + space.key, {**row, "at": (datetime.now(UTC) - timedelta(seconds=ago_s)).isoformat()})
    status = reembed.status(live)
    assert (status.rate_per_s is not None, status.eta_s is not None) == (shown, shown)


def test_what_is_done_already_is_not_counted_as_missing(live: Store, launch: Launcher) -> None:
    embed_all(live, add_model(live, B, "fp32"), ["uploads"], dim=16)
    started = reembed.use(live, B, "fp32", launch)
    assert (started.total, started.missing) == (5, 3)


@pytest.mark.parametrize("by_key", [True, False])
def test_using_the_active_space_in_the_middle_of_a_re_embed_is_to_stay_with_it(
    live: Store, launch: Launcher, by_key: bool
) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    embed_all(live, space, ["uploads"], dim=16)
    reembed.pause(live)
    stayed = reembed.use(live, A.space().key if by_key else A, "fp32", launch)
    assert (stayed.space.key, stayed.stopped, stayed.stopped_backfill) == (A.space().key, space.key, "backfill-1")
    assert (statuses(live), wanted_model(live)) == ({"a1": "active", "b1": "added"}, "a")
    assert (reembed.status(live).state, live.settings.get(PAUSED)) == ("idle", None)
    assert ensure_space(live, A, "fp32").key == A.space().key, "the sensor leaves it at that"
    assert not reembed.adopt(live, space, "backfill-1"), "nor does a run of the old backfill begin it again"
    assert statuses(live)["b1"] == "added"
    assert reembed.use(live, B, "fp32", launch).missing == 3, "its vectors were kept"


def test_a_re_embed_given_up_while_its_index_is_built_is_not_switched_to(live: Store) -> None:
    space = reembed.use(live, B, "fp32").space
    embed_all(live, space, list(live.vectors.pending_sources(space.key)), dim=16)

    def build(force: bool) -> IndexReport:
        reembed.use(live, A, "fp32")
        return live.vectors.build(space.key, force=force)

    assert not index_space(live, space.key, build=build).switched
    assert statuses(live) == {"a1": "active", "b1": "added"}


def test_a_new_generation_is_given_up_by_using_the_one_that_is_active(live: Store, launch: Launcher) -> None:
    second = reembed.reembed_active(live, A, "fp32", launch).space
    assert reembed.use(live, A, "fp32", launch).stopped == second.key
    assert statuses(live) == {"a1": "active", "a2": "added"}
    assert stopped_backfill(live) == "backfill-1"


def test_a_space_built_since_the_files_of_the_active_model_changed_is_not_given_up(live: Store) -> None:
    changed = replace(A, fingerprint="ffffffff")
    building = reembed.use(live, changed, "fp32").space
    with pytest.raises(SpaceConflict, match="put the former ones back"):
        reembed.use(live, A.space().key, "fp32")
    assert {space.key: space.status for space in live.spaces.all()}[building.key] == "building"


def test_a_complete_space_waits_for_a_yes_when_the_setting_says_ask(live: Store, launch: Launcher) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    embed_all(live, space, ["direct", "uploads"], dim=16)
    status = reembed.status(live, "ask")
    assert (status.state, status.waiting_for_yes) == ("complete", True)
    assert not reembed.status(live, "auto").waiting_for_yes
    assert reembed.use(live, space.key, "fp32", launch).switched
    assert (reembed.status(live, "ask").waiting_for_yes, len(launch.launched)) == (False, 1)


def test_the_active_space_cannot_be_dropped(live: Store) -> None:
    with pytest.raises(SpaceConflict, match="answers the searches"):
        reembed.drop(live, A.space().key)
    with pytest.raises(SpaceNotFound):
        reembed.drop(live, "x")


@pytest.mark.parametrize("stored", [True, False])
def test_dropping_what_is_being_built_ends_it_for_good(live: Store, launch: Launcher, stored: bool) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    reembed.pause(live)
    fail(live, space, 1)
    record_rate(live, space.key, 1.0, 4.0)
    if not stored:
        set_wanted_model(live, None)  # the environment asks for it
    assert reembed.drop(live, space.key) == "backfill-1"
    left = {name: value for name, value in live.settings.all().items() if not name.endswith(A.space().key)}
    assert (statuses(live), left) == ({"a1": "active"}, {"config.model": "a", STOPPED: "backfill-1"})
    assert not reembed.adopt(live, add_model(live, B, "fp32"), "backfill-1"), "it is no wish to have it again"
    assert reembed.status(live).state == "idle"


def test_dropping_a_retired_space_leaves_the_re_embed_that_is_going_on_alone(live: Store, launch: Launcher) -> None:
    finish(live, reembed.use(live, B, "fp32", launch).space)
    building = reembed.use(live, C, "fp32", launch).space
    reembed.pause(live)
    assert reembed.drop(live, A.space().key) is None
    status = reembed.status(live)
    assert (status.state, status.space, wanted_model(live)) == ("paused", building.key, "c")


def test_a_dropped_space_notes_no_failure(live: Store, launch: Launcher) -> None:
    space = reembed.use(live, B, "fp32", launch).space
    reembed.drop(live, space.key)
    fail(live, space, 1)
    assert failure_of(live, space.key) is None
    assert live.settings.all(FAILURE) == {}


def test_a_backfill_launched_by_hand_over_an_added_space_becomes_the_re_embed(live: Store) -> None:
    space = add_model(live, B, "fp32")
    reembed.adopt(live, space, "by-hand")
    status = reembed.status(live)
    assert (status.state, status.backfill_id, wanted_model(live)) == ("running", "by-hand", "b")

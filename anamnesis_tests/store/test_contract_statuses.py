"""Contract: each change of an episode's status is in its history, with who and why, and goes with the episode."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from anamnesis_pipeline.model import Episode, EpisodeFilter, Status
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.statuses import Cause, StatusChange
from anamnesis_tests.support.samples import DAY, passages, put

PERSON = Cause("Ada", "we measured it again")


def edit(store: Store, name: str, cause: Cause = PERSON, **changes: str | None) -> Episode:
    held = store.episodes.get([name])[name]
    edited = replace(held, **changes)  # type: ignore[arg-type]
    kept = [stored.passage for stored in store.episodes.passages_of(name)]
    store.episodes.replace(edited, kept, held.content_hash, cause)
    return store.episodes.get([name])[name]


def told(changes: list[StatusChange]) -> list[tuple[str, str, str | None, str, str]]:
    return [(c.former, c.status, c.successor, c.by, c.reason) for c in changes]


def shown(store: Store, **where: bool) -> set[str]:
    return {each.episode_id for each in store.episodes.page(EpisodeFilter(**where), 100).items}  # type: ignore[arg-type]


def test_each_change_is_kept_with_who_and_why(store: Store) -> None:
    put(store, "a", "we deploy on Friday")
    put(store, "b", "we deploy on Monday")
    assert store.statuses.history("a", 10) == []
    edit(store, "a", status="challenged")
    edit(store, "a", Cause("rule"), status="superseded", superseded_by="b")
    edit(store, "a", summary="other words")  # no change of its status
    edit(store, "a", status="active", superseded_by=None)
    history = store.statuses.history("a", 10)
    assert told(history) == [
        ("active", "challenged", None, "Ada", "we measured it again"),
        ("challenged", "superseded", "b", "rule", ""),
        ("superseded", "active", None, "Ada", "we measured it again"),
    ]
    assert all(earlier.at <= later.at for earlier, later in pairwise(history))
    assert store.statuses.history("a", 1) == history[-1:]
    assert store.statuses.history("b", 10) == []


def test_history_goes_with_its_episode(store: Store) -> None:
    put(store, "a", "text")
    edit(store, "a", status="invalidated")
    store.episodes.delete("a")
    assert store.statuses.history("a", 10) == []


@pytest.mark.parametrize("status", list(Status))
def test_only_what_holds_is_shown_by_default(store: Store, status: Status) -> None:
    put(store, "other", "text")
    put(store, "a", "text")
    edited = edit(store, "a", status=status.value)
    holds = status in (Status.ACTIVE, Status.CHALLENGED)
    assert (edited.superseded_at is None) == holds
    assert shown(store) == ({"a", "other"} if holds else {"other"})
    assert shown(store, only_superseded=True) == (set() if holds else {"a"})
    assert shown(store, include_superseded=True) == {"a", "other"}
    assert store.overview.tally().active == 1 + holds


def test_the_time_since_which_it_does_not_hold_stays(store: Store) -> None:
    put(store, "a", "text")
    since = edit(store, "a", status="superseded").superseded_at
    assert edit(store, "a", status="invalidated").superseded_at == since
    assert edit(store, "a", status="active").superseded_at is None


def test_newest_of_a_project_are_all_that_hold(store: Store) -> None:
    for minute, name in enumerate("abcd"):
        put(store, name, f"text {name}", minute=minute, project="shop", kind="fact")
    edit(store, "b", status="challenged")
    edit(store, "c", status="invalidated")
    newest = store.context.newest("shop", "fact", 2)
    assert [each.episode_id for each in newest] == ["d", "b"]


def test_consolidation_says_why(store: Store) -> None:
    for minute, name in enumerate("ab"):
        put(store, name, f"text {name}", minute=minute, source="logs", session_id="s")
    (session,) = store.consolidation.changed(10)
    store.consolidation.settle(session, {"a": "b", "b": None})
    store.consolidation.unsupersede("a")
    (hidden, back) = store.statuses.history("a", 10)
    assert (hidden.status, hidden.successor, hidden.by) == ("superseded", "b", "consolidation")
    assert (back.status, back.reason) == ("active", "consolidation was undone")


def test_an_interrupted_change_leaves_no_history(store: Store) -> None:
    put(store, "a", "text")
    held = store.episodes.get(["a"])["a"]
    with pytest.raises(Exception, match="changed meanwhile"):
        store.episodes.replace(replace(held, status="invalidated"), passages("text"), "another hash", PERSON)
    assert store.statuses.history("a", 10) == []


def test_history_is_restored_once_and_leaves_statuses(store: Store) -> None:
    put(store, "a", "x", status="superseded", superseded_by="b")
    put(store, "b", "x")
    put(store, "c", "x")
    edit(store, "c", status="challenged")
    its = store.statuses.history("c", 10)
    at = DAY - timedelta(days=1)
    came = [
        StatusChange("a", "active", "superseded", "b", "Ada", "later", at),
        StatusChange("c", "active", "invalidated", None, "Eve", "wrong", at),
        StatusChange("gone", "active", "invalidated", None, "Eve", "wrong", at),
    ]
    for _ in range(2):
        store.statuses.restore(came, {"a": at, "b": at})
    assert store.statuses.histories(["a", "b", "c", "gone"], 10) == {"a": came[:1], "c": its}
    held = store.episodes.get(["a", "b", "c"])
    assert (held["a"].superseded_at, held["b"].superseded_at, held["c"].status) == (at, None, "challenged")

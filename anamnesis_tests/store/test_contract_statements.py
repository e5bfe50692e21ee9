"""Contract: of one project and subject the latest statement holds; former ones stay, and come back with its removal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.statements import Statement, statement_of, with_statement
from anamnesis_tests.support.samples import edit, episode, passages


def state(store: Store, name: str, minute: float, subject: str = "", replaces: str | None = None, **more: Any) -> bool:
    metadata = with_statement(more.pop("metadata", {}), Statement(subject))
    return store.episodes.create(episode(name, minute, metadata=metadata, **more), passages(f"of {name}"), replaces)


def holding(store: Store) -> set[str]:
    return {each.episode_id for each in store.episodes.page(EpisodeFilter(), 100).items}


def successor(store: Store, name: str) -> str | None:
    return store.episodes.get([name])[name].superseded_by


def test_latest_statement_on_a_subject_holds(store: Store) -> None:
    state(store, "friday", 0, "deploy day")
    state(store, "elsewhere", 1, "deploy day", project="other")
    state(store, "other", 2, "release name")
    state(store, "monday", 3, "Deploy  DAY")
    assert holding(store) == {"elsewhere", "other", "monday"}
    assert successor(store, "friday") == "monday"
    (change,) = store.statuses.history("friday", 10)
    assert (change.by, change.successor) == ("main", "monday")
    assert "Deploy  DAY" in change.reason


def test_statement_of_the_past_is_replaced_at_once(store: Store) -> None:
    state(store, "monday", 5, "deploy day")
    state(store, "friday", 0, "deploy day")
    assert holding(store) == {"monday"}
    state(store, "between", 3, "deploy day")
    assert (successor(store, "between"), successor(store, "friday")) == ("monday", "monday")


def test_removed_statement_lets_the_former_hold_again(store: Store) -> None:
    state(store, "friday", 0, "deploy day")
    state(store, "monday", 1, "deploy day")
    store.episodes.delete("monday")
    assert holding(store) == {"friday"}
    state(store, "tuesday", 2, "deploy day")
    assert holding(store) == {"tuesday"}


def test_replacing_by_name_needs_no_subject(store: Store) -> None:
    state(store, "old", 5)
    state(store, "new", 0, replaces="old")
    assert (holding(store), successor(store, "old")) == ({"new"}, "new")
    for name in ("nobody", "third"):
        with pytest.raises(EpisodeNotFound, match=name):
            state(store, "third", 6, replaces=name)
    assert "third" not in holding(store)


def test_pinned_statement_stays_challenged(store: Store) -> None:
    state(store, "friday", 0, "deploy day", tags=("pinned",))
    monday = episode("monday", 1, metadata=with_statement({}, Statement("deploy day")))
    assert (store.episodes.replaced_by(monday, None), store.episodes.pinned_beside(monday)) == ([], ["friday"])
    state(store, "monday", 1, "deploy day")
    state(store, "tuesday", 2, "deploy day")
    assert holding(store) == {"friday", "tuesday"}
    (change,) = store.statuses.history("friday", 10)
    assert (change.status, "pinned" in change.reason) == ("challenged", True)
    state(store, "sunday", 3, replaces="friday")
    assert successor(store, "friday") == "sunday"


def test_what_a_person_revived_waits_for_the_next_statement(store: Store) -> None:
    state(store, "friday", 0, "deploy day")
    state(store, "monday", 1, "deploy day")
    assert store.consolidation.unsupersede("friday").restored == ("friday",)
    assert holding(store) == {"friday", "monday"}
    state(store, "sunday", 2, "deploy day")
    assert holding(store) == {"sunday"}
    store.episodes.delete("sunday")
    assert holding(store) == {"friday", "monday"}  # the earlier undoing does not keep what this one hid away


def test_subject_given_later_settles_then(store: Store) -> None:
    state(store, "friday", 0)
    state(store, "monday", 1, "deploy day")
    edit(store, "friday", metadata=with_statement({}, Statement("deploy day")))
    assert holding(store) == {"monday"}
    edit(store, "monday", metadata={})
    state(store, "tuesday", 2, "deploy day")
    assert holding(store) == {"monday", "tuesday"}


def test_would_be_replaced_is_what_is_replaced(store: Store) -> None:
    state(store, "friday", 0, "deploy day")
    state(store, "named", 9)
    wanted = episode("monday", 1, metadata=with_statement({}, Statement("deploy day")))
    assert store.episodes.replaced_by(wanted, "named") == ["friday", "named"]
    assert holding(store) == {"friday", "named"}
    store.episodes.create(wanted, passages("of monday"), "named")
    assert store.episodes.superseded_by("monday", 10) == ["friday", "named"]


@pytest.mark.parametrize(
    "field", [None, "text", [], {"subject": 1}, {"valid_from": "soon"}, {"valid_until": 3}, {"subject": None}]
)
def test_metadata_of_another_form_state_nothing(store: Store, field: Any) -> None:
    assert statement_of({"statement": field}) == Statement()
    state(store, "a", 0, metadata={"statement": field})
    state(store, "b", 1, metadata={"statement": field})
    assert holding(store) == {"a", "b"}


def test_bounds_include_their_begin_and_not_their_end() -> None:
    first, last = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    stated = statement_of(with_statement({"x": 1}, Statement("s", first, last)))
    assert stated == Statement("s", first, last)
    assert [stated.holds_at(when) for when in (first, last)] == [True, False]
    assert Statement().holds_at(first)


def test_types_are_kinds_of_posts_and_tags_of_records(store: Store) -> None:
    state(store, "decided", 0, kind="decision")
    state(store, "drawn", 1, kind="record", tags=("decision", "billing"))
    state(store, "tagged", 2, kind="note", tags=("decision",))
    state(store, "fact", 3, kind="fact")
    found = store.episodes.page(EpisodeFilter(types=("decision",)), 10).items
    assert {each.episode_id for each in found} == {"decided", "drawn"}
    found = store.episodes.page(EpisodeFilter(types=("decision", "fact")), 10).items
    assert {each.episode_id for each in found} == {"decided", "drawn", "fact"}

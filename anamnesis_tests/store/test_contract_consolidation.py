"""Contract: which episode stands for which is kept over writes, removals and processes, and undone for good."""

from collections.abc import Callable

import pytest

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.consolidation import ChangedSession, Settlement, Unsuperseded
from anamnesis_pipeline.store.records.links import Link, Regime
from anamnesis_tests.support.samples import episode, passages, put, space, unit


def said(store: Store, *names: str, session: str = "s") -> None:
    """Episodes of a log, in order."""
    for minute, name in enumerate(names):
        put(store, name, f"text of {name}", minute=minute, source="logs", session_id=session)


def the_session(store: Store) -> ChangedSession:
    (session,) = store.consolidation.changed(10)
    return session


def state(store: Store, *names: str) -> list[tuple[str, str | None]]:
    found = store.episodes.get(names)
    return [(found[name].status, found[name].superseded_by) for name in names]


HIDDEN, ACTIVE = ("superseded", "b"), ("active", None)


def settled(store: Store) -> None:
    """`b` stands for `a`."""
    said(store, "a", "b")
    assert store.consolidation.settle(the_session(store), {"a": "b", "b": None}) == Settlement(1, 0)


def test_a_session_is_to_be_settled_once_for_each_time_it_changed(store: Store) -> None:
    put(store, "posted", "text", session_id="mine")
    settled(store)
    assert store.consolidation.changed(10) == []
    said(store, "a", "b")
    assert store.consolidation.changed_count() == 0  # nothing was written
    put(store, "c", "more", minute=3, source="logs", session_id="s")
    before = the_session(store)
    put(store, "d", "still more", minute=4, source="logs", session_id="s")
    store.consolidation.settle(before, {})
    assert the_session(store).session_id == "s"  # what came meanwhile is not forgotten
    store.episodes.delete("d")
    store.consolidation.note_all()
    assert {session.session_id for session in store.consolidation.changed(10)} == {"mine", "s"}


def test_a_session_waits_for_its_vectors(store: Store) -> None:
    store.spaces.put(space("one"))
    store.spaces.activate("one")
    (key,) = put(store, "a", "text", source="logs", session_id="s")
    assert (store.consolidation.changed(10), store.consolidation.changed_count()) == ([], 1)
    store.vectors.put("one", Variant.TEXT, [key], unit(1, 0, 0, 0)[None])
    assert the_session(store).session_id == "s"


def test_settling_again_changes_nothing_and_a_later_verdict_revives(store: Store) -> None:
    settled(store)
    when = store.episodes.get(["a"])["a"].superseded_at
    assert store.consolidation.settle(ChangedSession("s", 1), {"a": "b", "b": None}) == Settlement()
    put(store, "c", "text", minute=3, source="logs", session_id="s")
    assert store.consolidation.settle(the_session(store), {"a": "c", "b": None, "c": None}) == Settlement(1, 0)
    assert state(store, "a") == [("superseded", "c")]
    assert store.episodes.get(["a"])["a"].superseded_at == when
    assert store.consolidation.settle(ChangedSession("s", 9), {"a": None}) == Settlement(0, 1)
    assert state(store, "a") == [ACTIVE]
    assert store.consolidation.links(["a"]) == {}


def test_what_is_hidden_stays_so_when_it_is_written_anew(store: Store, open_store: Callable[[], Store]) -> None:
    settled(store)
    put(store, "a", "an edited text", source="logs", session_id="s", raw_exchange="another")
    assert state(open_store(), "a", "b") == [HIDDEN, ACTIVE]
    store.episodes.delete("a", tombstone=False)
    put(store, "a", "text of a", source="logs", session_id="s")
    assert state(store, "a", "b") == [HIDDEN, ACTIVE]


def test_when_the_newest_goes_those_behind_it_are_active_and_their_session_is_settled_anew(store: Store) -> None:
    settled(store)
    store.episodes.delete("b")
    assert state(store, "a") == [ACTIVE]
    assert the_session(store).session_id == "s"
    assert store.consolidation.counts() == {"session": 0, "merge": 0, "statement": 0, "undone": 0}


def test_what_somebody_else_superseded_or_wants_back_is_left_alone(store: Store) -> None:
    said(store, "a", "b", "c")
    theirs = store.episodes.get(["a"])["a"]
    store.episodes.replace(
        episode("a", status="superseded", superseded_by="x", source="logs", session_id="s"), [], theirs.content_hash
    )
    assert store.consolidation.settle(the_session(store), {"a": "c", "b": "c"}) == Settlement(1, 0)
    assert state(store, "a", "b") == [("superseded", "x"), ("superseded", "c")]
    assert store.consolidation.unsupersede("b") == Unsuperseded(("b",))
    assert store.consolidation.settle(ChangedSession("s", 1), {"b": "c"}) == Settlement()
    assert state(store, "b") == [ACTIVE]
    assert store.consolidation.links(["b"])["b"] == Link("b", "c", Regime.SESSION, undone=True)
    for name in ("a", "b", "c", "nobody"):
        with pytest.raises(EpisodeNotFound, match=name):
            store.consolidation.unsupersede(name)


def test_an_edit_that_makes_an_episode_active_undoes_its_link(store: Store) -> None:
    settled(store)
    held = store.episodes.get(["a"])["a"]
    store.episodes.replace(episode("a", source="logs", session_id="s"), passages("text"), held.content_hash)
    assert state(store, "a") == [ACTIVE]
    assert store.consolidation.settle(ChangedSession("s", 1), {"a": "b"}) == Settlement()


# --- merges ----------------------------------------------------------------------------------------------


def merged(store: Store) -> bool:
    members = list(store.episodes.get(["a", "b"]).values())
    return store.consolidation.merge(episode("m", 9, kind="consolidated"), passages("both"), members)


def test_a_merge_hides_its_members_and_is_undone_as_a_whole_for_good(store: Store) -> None:
    said(store, "a", "b")
    assert merged(store)
    assert state(store, "a", "b", "m") == [("merged", "m"), ("merged", "m"), ACTIVE]
    assert not merged(store)
    assert store.consolidation.settle(the_session(store), {"a": "b", "b": None}) == Settlement()
    assert store.consolidation.counts() == {"session": 0, "merge": 2, "statement": 0, "undone": 0}
    assert store.consolidation.unsupersede("a") == Unsuperseded(("a", "b"), "m")
    assert state(store, "a", "b", "m") == [ACTIVE, ACTIVE, ("superseded", None)]
    assert not merged(store)


def test_a_merge_of_what_changed_meanwhile_writes_nothing(store: Store) -> None:
    said(store, "a", "b")
    members = list(store.episodes.get(["a", "b"]).values())
    put(store, "b", "text of b", source="logs", session_id="s", raw_exchange="another text")
    assert not store.consolidation.merge(episode("m"), passages("both"), members)
    assert store.episodes.get(["m"]) == {}


@pytest.mark.parametrize("undone", [False, True])
def test_a_merged_episode_goes_with_any_text_that_it_quotes(store: Store, undone: bool) -> None:
    said(store, "a", "b")
    assert merged(store)
    if undone:
        store.consolidation.unsupersede("m")
    store.episodes.delete("a")
    assert set(store.episodes.get(["a", "b", "m"])) == {"b"}
    assert state(store, "b") == [ACTIVE]


def test_a_merged_episode_goes_when_a_text_that_it_quotes_is_rewritten(store: Store) -> None:
    said(store, "a", "b")
    assert merged(store)
    store.forgetting.rewrite_episode(
        episode("a", source="logs", session_id="s", raw_exchange="without it"), passages("left")
    )
    assert state(store, "a", "b") == [ACTIVE, ACTIVE]
    assert store.episodes.get(["m"]) == {}
    assert store.text.matching(["both"], 5, EpisodeFilter()) == []

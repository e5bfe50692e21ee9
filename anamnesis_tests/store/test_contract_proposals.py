"""Contract: proposals and observations are founded on what is stored, are decided on once, and can be undone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import ProposalConflict, ProposalNotFound
from anamnesis_pipeline.model import Status
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import (
    Change,
    Evidence,
    Kind,
    NewRecord,
    Observation,
    Proposal,
    Signal,
    State,
    StatusEdit,
    TopicEdit,
)
from anamnesis_pipeline.store.records.observations import Unobserved
from anamnesis_pipeline.store.records.proposals import Proposed
from anamnesis_pipeline.store.values import instant
from anamnesis_tests.support.samples import edit, episode, passages, put

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def proposal(*quotes: tuple[str, str], change: Change | None = None, kind: Kind = Kind.SUPERSEDE) -> Proposal:
    change = change or Change(statuses=(StatusEdit("old", Status.SUPERSEDED, "new"),))
    evidence = tuple(Evidence(episode_id, quote) for episode_id, quote in quotes)
    return Proposal(kind, "shop", "old", "deploy day", change, evidence, 0.9, "test", NOW)


TWO = (("old", "deploy on Friday"), ("new", "deploy on Monday"))


def say(store: Store, name: str, text: str, **fields: Any) -> None:
    put(store, name, text, raw_exchange=text, **fields)


def two(store: Store) -> None:
    say(store, "old", "we deploy on Friday")
    say(store, "new", "we deploy on Monday")


def standing(store: Store, name: str) -> tuple[str, str | None]:
    held = store.episodes.get([name])[name]
    return held.status, held.superseded_by


def test_proposal_is_made_once(store: Store) -> None:
    two(store)
    assert store.proposals.propose(proposal(*TWO)) == Proposed(new=1)
    assert store.proposals.propose(proposal(*reversed(TWO))) == Proposed(known=1)
    assert store.proposals.page(10) == [proposal(*TWO)]
    assert (store.proposals.oldest(State.OPEN), store.proposals.oldest(State.ACCEPTED)) == (NOW, None)
    assert store.proposals.counts() == {("open", "supersede", "shop"): 1}


def test_quote_that_is_not_verbatim_drops_proposal(store: Store) -> None:
    two(store)
    assert store.proposals.propose(proposal(("old", "deploy on friday"))) == Proposed()
    assert store.proposals.propose(proposal(("gone", "deploy"))) == Proposed()
    assert store.proposals.page(10, None) == []


def test_rejected_proposal_returns_with_new_evidence_only(store: Store) -> None:
    two(store)
    say(store, "third", "yes, deploy on Monday")
    first = proposal(*TWO)
    store.proposals.propose(first)
    store.proposals.close(first.proposal_id, State.REJECTED, "Ada", NOW, "both hold")
    assert store.proposals.propose(first) == Proposed(known=1)
    assert store.proposals.propose(proposal(TWO[0])) == Proposed(known=1)
    more = proposal(*TWO, ("third", "deploy on Monday"))
    assert store.proposals.propose(more) == Proposed(reopened=1)
    assert store.proposals.get(more.proposal_id).reopens == first.proposal_id


def test_proposals_are_listed_by_the_reason_of_their_decision(store: Store) -> None:
    two(store)
    first, second = proposal(*TWO), proposal(*TWO, kind=Kind.MERGE)
    for each, reason in ((first, "both hold"), (second, "file changed")):
        store.proposals.propose(each)
        store.proposals.close(each.proposal_id, State.EXPIRED, "Ada", NOW, reason)
    (found,) = store.proposals.page(10, State.EXPIRED, reason="file changed")
    assert found.proposal_id == second.proposal_id


def test_more_evidence_takes_the_place_of_open_proposal(store: Store) -> None:
    two(store)
    first, more = proposal(TWO[0]), proposal(*TWO)
    store.proposals.propose(first)
    assert store.proposals.propose(more) == Proposed(renewed=1)
    assert store.proposals.page(10) == [more]
    assert store.proposals.get(first.proposal_id).state is State.EXPIRED
    assert store.proposals.propose(first) == Proposed(known=1)


def test_accepting_changes_statuses_and_undoing_restores(store: Store) -> None:
    two(store)
    made = proposal(*TWO, change=Change((StatusEdit("old", Status.SUPERSEDED, "new"),), tags=(("new", ("deploy",)),)))
    store.proposals.propose(made)
    accepted = store.proposals.accept(made.proposal_id, "Ada", NOW, "seen")
    assert (accepted.state, accepted.decided_by, accepted.reason) == (State.ACCEPTED, "Ada", "seen")
    assert standing(store, "old") == ("superseded", "new")
    assert "deploy" in store.episodes.get(["new"])["new"].tags
    change = store.statuses.history("old", 1)[0]
    assert (change.by, change.reason) == ("Ada", f"proposal {made.proposal_id[:12]} (supersede) accepted: seen")
    assert store.proposals.undo(made.proposal_id, "Ada", NOW).state is State.UNDONE
    assert standing(store, "old") == ("active", None)
    assert "deploy" not in store.episodes.get(["new"])["new"].tags
    assert store.proposals.propose(made) == Proposed(known=1)


def test_accepted_supersession_outlives_rewriting(store: Store) -> None:
    two(store)
    store.proposals.propose(made := proposal(*TWO))
    store.proposals.accept(made.proposal_id, "Ada", NOW)
    say(store, "old", "we deploy on Friday", tags=("again",))
    assert standing(store, "old") == ("superseded", "new")
    store.episodes.delete("new")
    assert standing(store, "old") == ("active", None)


def test_history_of_an_episode_quotes_no_other(store: Store) -> None:
    two(store)
    store.proposals.propose(made := replace(proposal(*TWO), title="we deploy on Monday because of Klaus"))
    store.proposals.accept(made.proposal_id, "Ada", NOW)
    assert "Klaus" not in store.statuses.history("old", 1)[0].reason


def test_undoing_keeps_tags_that_came_since(store: Store) -> None:
    two(store)
    made = proposal(*TWO, change=Change((StatusEdit("old", Status.SUPERSEDED, "new"),), tags=(("new", ("deploy",)),)))
    store.proposals.propose(made)
    store.proposals.accept(made.proposal_id, "Ada", NOW)
    edit(store, "new", tags=("deploy", "pinned"))
    store.proposals.undo(made.proposal_id, "Ada", NOW)
    assert store.episodes.get(["new"])["new"].tags == ("pinned",)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_holds_no_longer_replaces_nothing(store: Store, is_there: bool) -> None:
    two(store)
    store.proposals.propose(made := proposal(TWO[0]))
    if is_there:
        edit(store, "new", status="invalidated")
    else:
        store.episodes.delete("new")
    assert store.proposals.accept(made.proposal_id, "Ada", NOW).state is State.EXPIRED
    assert standing(store, "old") == ("active", None)


def test_accepted_proposal_does_not_expire(store: Store) -> None:
    two(store)
    store.proposals.propose(made := proposal(*TWO))
    store.proposals.accept(made.proposal_id, "Ada", NOW)
    with pytest.raises(ProposalConflict):
        store.proposals.close(made.proposal_id, State.EXPIRED, "Ada", NOW, unfinished=True)
    more = proposal(*TWO, ("old", "we deploy"))
    assert store.proposals.propose(more) == Proposed(known=1), "what it would change is changed"


def test_undoing_leaves_what_changed_since(store: Store) -> None:
    two(store)
    store.proposals.propose(made := proposal(*TWO))
    store.proposals.accept(made.proposal_id, "Ada", NOW)
    held = store.episodes.get(["old"])["old"]
    kept = [stored.passage for stored in store.episodes.passages_of("old")]
    store.episodes.replace(replace(held, status="invalidated", superseded_by=None), kept, held.content_hash)
    store.proposals.undo(made.proposal_id, "Ada", NOW)
    assert standing(store, "old") == ("invalidated", None)


def test_proposal_about_what_holds_no_longer_expires(store: Store) -> None:
    two(store)
    store.proposals.propose(made := proposal(*TWO))
    held = store.episodes.get(["old"])["old"]
    kept = [stored.passage for stored in store.episodes.passages_of("old")]
    store.episodes.replace(replace(held, status="invalidated"), kept, held.content_hash)
    assert store.proposals.accept(made.proposal_id, "Ada", NOW).state is State.EXPIRED
    assert standing(store, "old") == ("invalidated", None)
    with pytest.raises(ProposalConflict, match="expired"):
        store.proposals.accept(made.proposal_id, "Ada", NOW)


def test_rejecting_is_undone_by_opening_again(store: Store) -> None:
    two(store)
    store.proposals.propose(made := proposal(*TWO))
    store.proposals.close(made.proposal_id, State.REJECTED, "Ada", NOW)
    with pytest.raises(ProposalConflict):
        store.proposals.accept(made.proposal_id, "Ada", NOW)
    assert store.proposals.undo(made.proposal_id, "Ada", NOW).state is State.OPEN
    assert store.proposals.accept(made.proposal_id, "Ada", NOW).state is State.ACCEPTED


def test_accepted_record_is_posted_and_undoing_removes_it(store: Store) -> None:
    two(store)
    made = proposal(*TWO, change=Change(record=NewRecord("procedure", "deploy on Monday")), kind=Kind.PATTERN)
    store.proposals.propose(made)
    record = episode("record", source="direct", kind="procedure")
    accepted = store.proposals.accept(made.proposal_id, "Ada", NOW, record=(record, passages("deploy on Monday")))
    assert accepted.applied is not None
    assert accepted.applied.record_id == "record"
    assert store.episodes.get(["record"])
    store.proposals.undo(made.proposal_id, "Ada", NOW)
    assert not store.episodes.get(["record"])


def test_topic_edit_is_finished_after_file_is_written(store: Store) -> None:
    two(store)
    made = proposal(*TWO, change=Change(topic=TopicEdit("lessons", "Deploying", "On Monday.")), kind=Kind.LESSON)
    store.proposals.propose(made)
    store.proposals.accept(made.proposal_id, "Ada", NOW, path="/topics/lessons.md")
    assert [each.proposal_id for each in store.proposals.unfinished(10)] == [made.proposal_id]
    finished = store.proposals.finish(made.proposal_id, "", "hash")
    assert finished.applied is not None
    assert finished.applied.is_done
    assert store.proposals.unfinished(10) == []


@pytest.mark.parametrize("state", [State.OPEN, State.ACCEPTED])
def test_proposal_goes_with_its_evidence(store: Store, state: State) -> None:
    two(store)
    made = proposal(*TWO, change=Change(record=NewRecord("procedure", "deploy on Monday")), kind=Kind.PATTERN)
    store.proposals.propose(made)
    if state is State.ACCEPTED:
        record = episode("record", source="direct", kind="procedure")
        store.proposals.accept(made.proposal_id, "Ada", NOW, record=(record, passages("deploy on Monday")))
    store.episodes.delete("new")
    with pytest.raises(ProposalNotFound):
        store.proposals.get(made.proposal_id)
    assert not store.episodes.get(["record"])
    assert store.proposals.of_episode("old", 10) == []


def test_proposal_goes_when_its_quote_does(store: Store) -> None:
    two(store)
    store.proposals.propose(made := proposal(*TWO))
    say(store, "new", "we deploy on Monday morning")
    assert store.proposals.page(10) == [made]
    say(store, "new", "we deploy on [masked]")
    assert store.proposals.page(10, None) == []


def observation(name: str, quote: str, key: str = "k", signal: Signal = Signal.ERROR) -> Observation:
    return Observation(signal, key, name, quote, session_id="s1", at=NOW)


def test_sessions_and_notes_wait_until_they_are_observed(store: Store) -> None:
    say(store, "a", "error: x", source="log", session_id="s1", kind="exchange")
    say(store, "b", "error: y", source="log", session_id="s1", kind="exchange")
    say(store, "note", "text")
    waiting = store.observations.unobserved(10)
    assert [each.origin for each in waiting] == ["note", "s1"]
    for each in waiting:
        store.observations.settle(each, [])
    assert store.observations.unobserved_count() == 0
    say(store, "b", "error: z", source="log", session_id="s1", kind="exchange")
    assert [each.origin for each in store.observations.unobserved(10)] == ["s1"]
    store.observations.note_all()
    assert store.observations.unobserved_count() == 2


def test_what_waits_is_returned_by_source(store: Store) -> None:
    say(store, "a", "error: x", source="log", session_id="s1", kind="exchange")
    say(store, "b", "error: y", source="other", session_id="s2", kind="exchange")
    say(store, "note", "text")
    assert [each.origin for each in store.observations.unobserved(10, ["log", "direct"])] == ["note", "s1"]
    store.observations.note_all()
    assert [each.origin for each in store.observations.unobserved(10, ["other"])] == ["s2"]


def test_silent_ones_are_settled_at_once_unless_they_changed(store: Store) -> None:
    for name in ("a", "b"):
        say(store, name, "error: x", source="log", session_id=f"s{name}", kind="exchange")
    first, second = store.observations.unobserved(10)
    store.observations.settle(first, [replace(observation("a", "error: x"), session_id="sa")])
    say(store, "b", "error: y", source="log", session_id="sb", kind="exchange")
    store.observations.settle_silent([first, second])
    assert store.observations.counts() == {}
    assert [each.origin for each in store.observations.unobserved(10)] == ["sb"]


def test_what_changed_meanwhile_waits_again(store: Store) -> None:
    say(store, "a", "error: x", source="log", session_id="s1", kind="exchange")
    (seen,) = store.observations.unobserved(10)
    say(store, "b", "error: y", source="log", session_id="s1", kind="exchange")
    store.observations.settle(seen, [observation("a", "error: x")])
    assert store.observations.unobserved_count() == 1


def test_same_observation_keeps_its_number(store: Store) -> None:
    say(store, "a", "error: x, error: y", source="log", session_id="s1", kind="exchange")
    (seen,) = store.observations.unobserved(10)
    assert store.observations.settle(seen, [observation("a", "error: x")]) == 1
    (first,) = store.observations.after([Signal.ERROR], 0, 10)
    both = [observation("a", "error: x"), observation("a", "error: y")]
    assert store.observations.settle(seen, both) == 1
    assert [each.quote for each in store.observations.after([Signal.ERROR], first.number, 10)] == ["error: y"]
    assert len(store.observations.same(Signal.ERROR, "k", 10)) == 2
    assert store.observations.counts() == {"error": 2}
    store.observations.settle(seen, both[1:])
    assert [each.quote for each in store.observations.of_episode("a")] == ["error: y"]


def test_new_observations_are_found_by_project(store: Store) -> None:
    say(store, "a", "error: x, error: y", source="log", session_id="s1", kind="exchange")
    say(store, "b", "error: z", source="log", session_id="s2", kind="exchange")
    first, second = store.observations.unobserved(10)
    assert store.observations.unobserved(10, after=first.origin) == [second]
    both = [replace(observation("a", f"error: {name}"), project="shop") for name in "xy"]
    store.observations.settle(first, both)
    assert store.observations.fresh([Signal.ERROR, Signal.NOTE], 0) == (2, ["shop"])
    store.observations.settle(second, [observation("b", "error: z")])
    until, projects = store.observations.fresh([Signal.ERROR], 1)
    assert projects == ["", "shop"]
    found = store.observations.of_project_after([Signal.ERROR], "shop", 0, until, 1)
    assert [each.quote for each in found] == ["error: x"]
    found = store.observations.of_project_after([Signal.ERROR], "shop", found[0].number, until, 10)
    assert [each.quote for each in found] == ["error: y"]
    assert store.observations.fresh([Signal.ERROR], until) == (until, [])
    assert store.observations.of_project_after([Signal.ERROR], "", 0, until - 1, 10) == []


def test_observations_go_with_their_episode_and_its_text(store: Store) -> None:
    say(store, "a", "error: x", source="log", session_id="s1", kind="exchange")
    say(store, "b", "fixed by z", source="log", session_id="s1", kind="exchange")
    (seen,) = store.observations.unobserved(10)
    found = replace(observation("a", "error: x"), answer="fixed by z", answer_id="b")
    store.observations.settle(seen, [found])
    store.episodes.delete("b")
    assert store.observations.of_episode("a") == []
    assert [each.origin for each in store.observations.unobserved(10)] == ["s1"]
    store.observations.settle(Unobserved("s1", 0), [observation("a", "error: x")])
    say(store, "a", "error: [masked]", source="log", session_id="s1", kind="exchange")
    assert store.observations.of_episode("a") == []


def test_observation_of_episode_that_is_gone_is_not_written(store: Store) -> None:
    assert store.observations.settle(Unobserved("s1", 1), [observation("gone", "error: x")]) == 0
    assert store.observations.counts() == {}


def test_observations_of_one_instant_are_all_returned(store: Store) -> None:
    say(store, "a", "error", source="log", session_id="s1", kind="exchange")
    found = [replace(observation("a", f"error {number}"), at=NOW) for number in range(7)]
    later = replace(observation("a", "error, later"), at=NOW + timedelta(seconds=1))
    timeless = replace(observation("a", "error, at no time"), at=None)
    store.observations.settle(Unobserved("s1", 1), [later, timeless, *found])
    until, after, pages = instant(NOW + timedelta(hours=1)), ("", 0), list[list[str]]()
    while page := store.observations.between([Signal.ERROR], after, until, 3):
        pages.append([each.quote for each in page])
        after = instant(page[-1].at or NOW), page[-1].number
    assert [quote for page in pages for quote in page] == [each.quote for each in (*found, later)]
    assert store.observations.between([Signal.ERROR], ("", 0), instant(NOW), 10)[-1].quote == "error 6"


NAMES = ("a", "b", "c", "d")
tags = st.lists(st.sampled_from(("x", "y", "pinned")), unique=True, max_size=3).map(tuple)
edits = st.builds(
    lambda name, status, heir: StatusEdit(name, status, heir if status in (Status.SUPERSEDED, Status.MERGED) else None),
    st.sampled_from(NAMES[:3]),
    st.sampled_from((Status.SUPERSEDED, Status.MERGED, Status.ARCHIVED, Status.CHALLENGED, Status.INVALIDATED)),
    st.just("d"),
)
changes = st.builds(
    Change,
    statuses=st.lists(edits, min_size=1, max_size=3, unique_by=lambda edit: edit.episode_id).map(tuple),
    tags=st.dictionaries(st.sampled_from(NAMES), tags, max_size=2).map(lambda added: tuple(added.items())),
)


def everything(store: Store) -> dict[str, list[dict[str, Any]]]:
    """The rows of episodes, their passages and vectors' backlog."""
    with store.gateway.read() as tables:
        return {
            name: sorted(tables[name].find({}), key=str) for name in ("episodes", "passages", "pending", "messages")
        }


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    change=changes,
    held=st.lists(tags, min_size=4, max_size=4),
    challenged=st.sets(st.sampled_from(NAMES)),
    edited=st.sets(st.sampled_from(NAMES)),
)
def test_undoing_leaves_everything_as_it_was(
    store: Store, change: Change, held: list[tuple[str, ...]], challenged: set[str], edited: set[str]
) -> None:
    for name, its in zip(NAMES, held, strict=True):
        store.episodes.delete(name, tombstone=False)
        say(store, name, f"we deploy on {name}", tags=its, source="log", message_ids=(f"m{name}",))
        if name in challenged:
            edit(store, name, status="challenged")
        elif name in edited:
            edit(store, name, summary=f"on {name}")
    for number in (1, 2):
        before, history = everything(store), store.statuses.histories(NAMES, 100)
        made = proposal(("a", "we deploy on a"), *[("b", "deploy on b")] * (number - 1), change=change)
        assert store.proposals.propose(replace(made, target=f"t{number}")).new == 1
        made = store.proposals.page(1)[0]
        assert store.proposals.accept(made.proposal_id, "Ada", NOW).state is State.ACCEPTED
        for status_edit in change.statuses:
            assert standing(store, status_edit.episode_id) == (status_edit.status, status_edit.successor)
        store.proposals.undo(made.proposal_id, "Ada", NOW)
        assert everything(store) == before
        after = store.statuses.histories(NAMES, 100)
        assert all(after[name][: len(rows)] == rows for name, rows in history.items())
        for status_edit in change.statuses:
            told = after.get(status_edit.episode_id, [])[len(history.get(status_edit.episode_id, [])) :]
            assert [(each.former, each.status) for each in told] in (
                [],
                [(told[0].former, status_edit.status), (status_edit.status, told[0].former)] if told else [],
            )

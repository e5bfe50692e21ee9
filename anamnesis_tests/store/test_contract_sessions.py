"""Contract: which sessions have no record of their present text, and which are one record together."""

from dataclasses import replace

import pytest

from anamnesis_pipeline.model import Occurrence, Source
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_pipeline.store.records.session_notes import at_rest_sources
from anamnesis_pipeline.store.records.sessions import NewRecord, SessionState
from anamnesis_pipeline.store.session_model import SESSION_KIND, episode_id_of
from anamnesis_tests.support.samples import crawled, edit, episode, parsed, part, passages, put, segment

MACHINES = {"logs": "box", "copied": "box", "far": "other"}


@pytest.fixture
def store(store: Store) -> Store:
    """A store with three logs, of which two are of one machine."""
    store.files.put_sources([Source(key, of, f"/{key}", "", "claude_code", "") for key, of in MACHINES.items()])
    return store


def said(store: Store, session_id: str, source: str = "logs") -> None:
    put(store, f"{source}-{session_id}", "text", source=source, session_id=session_id)


def states(store: Store, *session_ids: str) -> list[SessionState]:
    return store.sessions.states(session_ids)


def roots(store: Store, *session_ids: str) -> dict[tuple[str, str], str]:
    return {state.key: state.root for state in states(store, *session_ids)}


def record(store: Store, root: SessionState, revision: int = 1) -> NewRecord:
    key = episode_id_of(MACHINES[root.source], root.session_id, revision)
    written = episode(key, source=root.source, session_id=root.session_id, kind=SESSION_KIND)
    return NewRecord(written, passages(f"record {revision}"), root, revision, "2026-03-01")


def recorded(store: Store, *session_ids: str) -> str:
    """Let these sessions of `logs` be one record, which begins in the first. Return its id."""
    for session_id in session_ids:
        said(store, session_id)
    assert store.sessions.join(states(store, *session_ids), session_ids[0])
    members = states(store, *session_ids)
    (root,) = (state for state in members if state.session_id == session_ids[0])
    new = record(store, root, root.revision + 1)
    assert store.sessions.settle(members, new, ())
    return new.episode.episode_id


def test_changed_sessions_wait_until_no_part_grows(store: Store) -> None:
    for session_id in ("one", "two", "three"):
        said(store, session_id)
    said(store, "posted", "direct")
    parsed(store, part(segment("m"), session_id="two", closed=False))
    assert store.sessions.changed("logs", "", 9) == ["one", "three"]
    assert store.sessions.changed("logs", "", 1) == ["one"]
    assert store.sessions.changed("logs", "one", 9) == ["three"]
    assert store.sessions.changed("far", "", 9) == []
    assert [state.is_open for state in states(store, "one", "two")] == [False, True]


def test_note_grows_with_each_change_and_settling_clears_it(store: Store) -> None:
    recorded(store, "one")
    (before,) = states(store, "one")
    assert (before.noted, before.revision, before.until) == (0, 1, "2026-03-01")
    put(store, "later", "text", source="logs", session_id="one")
    (after,) = states(store, "one")
    put(store, "last", "text", source="logs", session_id="one")
    assert not store.sessions.settle([after], None, ())
    assert store.sessions.settle(states(store, "one"), None, ())
    assert store.sessions.changed("logs", "", 9) == []


def test_states_include_all_sessions_of_the_record(store: Store) -> None:
    recorded(store, "one", "two")
    store.sessions.note_branches("logs", {"two": "dev\ud800", "new": "main"})
    found = states(store, "two", "new")
    assert [(state.session_id, state.root, state.branch) for state in found] == [
        ("new", "", "main"),
        ("one", "one", ""),
        ("two", "one", "dev\ufffd"),
    ]


def test_next_revision_supersedes_the_former(store: Store) -> None:
    first = recorded(store, "one")
    second = recorded(store, "one")
    held = store.episodes.get([first, second])
    assert (held[first].status, held[first].superseded_by) == ("superseded", second)
    assert held[first].superseded_at is not None
    assert held[second].status == "active"
    assert store.events.latest(1)[0].kind == Happening.WRITE
    assert store.events.latest(1)[0].episode_id == second


def test_deleted_record_stays_away(store: Store) -> None:
    first = recorded(store, "one")
    store.episodes.delete(first)
    (state,) = states(store, "one")
    assert state.revision == 1
    assert store.sessions.settle([state], record(store, state), ())
    assert store.episodes.get([first]) == {}


def test_record_goes_with_a_removed_or_edited_episode(store: Store) -> None:
    first = recorded(store, "one", "two")
    put(store, "logs-two", "other text", source="logs", session_id="two")
    assert store.episodes.get([first]) != {}
    edit(store, "logs-two", "edited", raw_exchange="edited")
    assert store.episodes.get([first]) == {}
    assert store.sessions.changed("logs", "", 9) == ["one", "two"]
    second = recorded(store, "one", "two")
    store.episodes.delete("logs-one")
    assert store.episodes.get([second]) == {}


def test_imported_record_goes_with_an_episode_of_its_session(store: Store) -> None:
    for name, session_id in (("mine", "One"), ("other", "one")):
        metadata = {"session": {"session_ids": [session_id]}}
        put(store, name, "record", source="uploads", session_id="x", kind=SESSION_KIND, metadata=metadata)
    put(store, "said", "text", source="uploads", session_id="One")
    store.episodes.delete("said")
    assert set(store.episodes.get(["mine", "other"])) == {"other"}


def test_join_parts_members_from_other_sessions(store: Store) -> None:
    first, alone = recorded(store, "one", "two"), recorded(store, "three")
    members = [state for state in states(store, "two", "three") if state.session_id != "one"]
    assert not store.sessions.join([replace(members[0], noted=9), *members[1:]], "two")
    assert store.sessions.join(members, "two")
    assert set(store.episodes.get([first, alone])) == {alone}
    assert roots(store, "one", "two") == {("logs", "one"): "", ("logs", "two"): "two", ("logs", "three"): "two"}
    assert "one" in store.sessions.changed("logs", "", 9)


def test_sessions_of_another_machine_are_another_record(store: Store) -> None:
    first = recorded(store, "one")
    for source in ("copied", "far"):
        said(store, "one", source)
    own = [state for state in states(store, "one") if state.source != "far"]
    far = [state for state in states(store, "one") if state.source == "far"]
    assert store.sessions.join(own, "one")
    assert store.sessions.join(far, "one")
    store.episodes.delete("far-one")
    assert first in store.episodes.get([first])
    store.episodes.delete("copied-one")
    assert store.episodes.get([first]) == {}


def test_gone_sessions_are_not_known_any_more(store: Store) -> None:
    first = recorded(store, "one")
    said(store, "two")
    gone, kept = states(store, "one", "two")
    assert store.sessions.settle([kept], None, [gone])
    assert [state.session_id for state in states(store, "one", "two")] == ["two"]
    assert store.episodes.get([first]) == {}


def test_told_parts_are_published_unedited_and_not_held(store: Store) -> None:
    parts = [part(segment(f"m{n}", minute=9 - n), ordinal=n) for n in range(5)]
    parts.append(part(segment("else"), source="far"))
    parsed(store, *parts)
    for each in parts[:4]:
        put(store, each.part_id, "text", source="logs", session_id="s")
    held = store.episodes.get([parts[1].part_id])[parts[1].part_id]
    store.episodes.replace(replace(held, raw_exchange="edited"), passages("edited"), held.content_hash)
    store.exclusion.hold({parts[2].part_id: "rule"})
    assert store.sessions.told("logs", "s") == [parts[3].part_id, parts[0].part_id]


def test_copied_messages_are_those_of_one_session(store: Store) -> None:
    before = crawled(store)
    keys = ("f:u:1", "k:2", "u:3", "u;4", "f:k:5", "u:6")
    copies = [Occurrence(key, "a.jsonl", line) for line, key in enumerate(keys)]
    assert store.messages.commit_parsed(ParsedChunk(before, replace(before, parsed_lines=10), occurrences=copies))
    assert store.sessions.copied([("logs", "a.jsonl"), ("logs", "b.jsonl")], 9) == ["f:u:1", "u:3", "u:6"]
    assert store.sessions.copied([("logs", "a.jsonl")], 2) == ["f:u:1", "u:3"]


def test_sessions_of_logs_are_without_subagents(store: Store) -> None:
    parsed(
        store,
        part(segment("m1")),
        part(segment("m2"), session_id="t"),
        part(segment("m3"), agent_id="a", session_id="u"),
    )
    files = [("logs", "a.jsonl"), ("logs", "none"), ("far", "a.jsonl")]
    assert store.sessions.sessions_of(files) == {files[0]: {"s", "t"}, files[1]: set(), files[2]: set()}


def test_source_with_a_session_at_rest_is_unfinished(store: Store) -> None:
    for source in ("logs", "far"):
        said(store, "one", source)
    parsed(store, part(segment("m"), session_id="one", source="far", closed=False), source="far")
    with store.gateway.read() as tables:
        assert at_rest_sources(tables, list(MACHINES)) == {"logs"}

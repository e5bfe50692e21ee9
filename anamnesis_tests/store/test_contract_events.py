"""Every operation leaves one event, whichever process did it."""

import os

import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.samples import DAY, edit, episode, passages, put


def told(store: Store) -> list[tuple[str, str, int]]:
    return [(event.kind, event.episode_id, event.episodes) for event in store.events.since(0, 100)]


def test_each_operation_is_one_event(store: Store) -> None:
    store.episodes.put([(episode(name, n), passages("text")) for n, name in enumerate("abc")])
    assert store.episodes.create(episode("d", 3), passages("text"))
    store.episodes.track(["a", "b", "nobody"], DAY)
    edit(store, "a", "text", summary="other")
    edit(store, "a", "text", tags=("pinned",))
    assert store.episodes.delete("d")
    assert told(store) == [
        ("write", "a", 3),
        ("write", "d", 1),
        ("read", "a", 2),
        ("edit", "a", 1),
        ("promote", "a", 1),
        ("forget", "d", 1),
    ]
    assert store.events.counts() == {
        "write": 2,
        "read": 1,
        "edit": 1,
        "promote": 1,
        "forget": 1,
        "consolidation": 0,
        "status": 0,
    }


def test_events_of_an_episode_are_found_in_order(store: Store) -> None:
    for name in "ab":
        put(store, name, "text")
    for _ in range(3):
        store.episodes.track(["a", "b"], DAY)
    assert [event.kind for event in store.events.of("a", 9)] == ["write", "read", "read", "read"]
    assert [event.kind for event in store.events.of("a", 2)] == ["read", "read"]
    assert [event.kind for event in store.events.of("b", 9)] == ["write"]
    assert store.events.of("nobody\ud800", 9) == store.events.of("a", 0) == []


def test_what_changes_nothing_leaves_no_event(store: Store) -> None:
    put(store, "a", "text")
    put(store, "a", "text")
    assert not store.episodes.create(episode("a"), passages("text"))
    assert not store.episodes.delete("nobody")
    store.episodes.track(["nobody"], DAY)
    assert told(store) == [("write", "a", 1)]


def test_a_merge_and_its_undoing_are_events(store: Store) -> None:
    for name in "ab":
        put(store, name, "text")
    members = list(store.episodes.get(["a", "b"]).values())
    assert store.consolidation.merge(episode("m", 5), passages("both"), members)
    store.consolidation.unsupersede("a")
    assert [kind for kind, _, _ in told(store)] == ["write", "write", "consolidation", "consolidation"]


def test_events_of_others_are_read_from_where_one_left_off(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    put(ours, "a", "text")
    (seen,) = ours.events.since(0, 10)
    put(theirs, "b", "text")
    (new,) = ours.events.since(seen.number, 10)
    assert (new.episode_id, new.project, new.process) == ("b", "acme/api", os.getpid())
    assert [event.episode_id for event in ours.events.latest(1)] == ["b"]
    assert ours.events.latest(5, [Happening.READ]) == []
    assert ours.events.latest(-1) == []


def test_first_processes_of_containers_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = set()
    for name in ("8a1f0c9d2b3e", "0b7e4d5c6f1a"):
        monkeypatch.setattr(events.os, "getpid", lambda: 1)
        monkeypatch.setattr(events.socket, "gethostname", lambda name=name: name)
        numbers.add(events.this_process())
    assert len(numbers) == 2


def test_only_the_latest_events_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVENTS_KEPT", 10)
    put(store, "a", "text")
    for _ in range(600):
        store.episodes.track(["a"], DAY)
    kept = [event.number for event in store.events.since(0, 1_000)]
    assert len(kept) < 10 + 300
    assert kept == list(range(kept[0], 602))


def test_events_that_are_forgotten_leave_their_numbers_behind(store: Store) -> None:
    put(store, "a", "text")
    last = store.events.latest(1)[0].number
    store.events.clear()
    assert store.events.latest(9) == []
    put(store, "b", "text")
    assert [event.number > last for event in store.events.since(last, 9)] == [True]

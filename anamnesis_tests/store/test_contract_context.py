"""Contract: what sessions were shown is remembered within bounds; the latest of a project costs what it returns."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records import context
from anamnesis_pipeline.store.records.context import SESSION_EXPIRES, SessionMemory, Shown
from anamnesis_tests.support.samples import DAY, at_once, put


def test_what_was_shown_is_new_once_and_outlives_the_process(open_store: Callable[[], Store]) -> None:
    first = open_store()
    assert first.context.session("s") == SessionMemory()
    assert first.context.show("s", [Shown("b", 7), Shown("a")], DAY) == {"a", "b"}
    assert first.context.show("s", [Shown("a", 3), Shown("c")], DAY) == {"c"}
    assert first.context.show("other", [Shown("a")], DAY) == {"a"}
    first.close()
    assert open_store().context.session("s").shown == (Shown("b", 7), Shown("a"), Shown("c"))


def test_restart_lets_everything_come_again_with_its_time(store: Store) -> None:
    store.context.show("s", [Shown("a")], DAY)
    store.context.restart("s", DAY + timedelta(minutes=5))
    assert store.context.session("s") == SessionMemory((), DAY + timedelta(minutes=5))
    assert store.context.show("s", [Shown("a")], DAY) == {"a"}
    assert store.context.session("s").restarted_at == DAY + timedelta(minutes=5)
    store.context.restart("new", DAY)
    assert store.context.session("new") == SessionMemory((), DAY)


def test_of_two_calls_at_once_one_gets_an_item(store: Store) -> None:
    found = at_once([lambda: store.context.show("s", [Shown(f"e{n}") for n in range(20)], DAY)] * 4)
    assert sorted(name for names in found for name in names) == sorted(f"e{n}" for n in range(20))


def test_what_was_shown_is_bounded_in_sessions_items_and_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "SESSIONS_KEPT", 2)
    monkeypatch.setattr(context, "SHOWN_KEPT", 3)
    store.context.show("one", [Shown(f"e{n}") for n in range(5)], DAY)
    assert [shown.episode_id for shown in store.context.session("one").shown] == ["e2", "e3", "e4"]
    for minute, name in enumerate(("two", "three"), 1):
        store.context.show(name, [Shown("e")], DAY + timedelta(minutes=minute))
    assert store.context.session("one") == SessionMemory()
    assert store.context.session("two").shown == (Shown("e"),)
    store.context.show("three", [], DAY + SESSION_EXPIRES + timedelta(minutes=2))
    assert store.context.session("two") == SessionMemory()
    assert store.context.session("three").shown == (Shown("e"),)


def test_newest_of_a_project_and_kind_come_first(store: Store) -> None:
    for minute in range(4):
        put(store, f"e{minute}", "text", minute=minute)
    put(store, "elsewhere", "text", project="other")
    put(store, "record", "text", kind="record")
    put(store, "old", "text", minute=9, status="superseded")
    assert [e.episode_id for e in store.context.newest("acme/api", "note", 2)] == ["e3", "e2"]
    earlier = store.context.newest("acme/api", "note", 9, before=DAY + timedelta(minutes=2))
    assert [e.episode_id for e in earlier] == ["e1", "e0"]
    assert [e.episode_id for e in store.context.newest("acme/api", "record", 9)] == ["record"]
    assert store.context.newest("nothing", "note", 9) == []


def test_newest_with_a_tag_are_of_the_last_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "TAGGED_AMONG", 3)
    put(store, "first", "text", minute=9, tags=("curated",))
    for minute in range(3):
        put(store, f"e{minute}", "text", minute=minute, tags=("curated", "x"), project="acme/api" if minute else "b")
    put(store, "old", "text", tags=("x",))
    assert [e.episode_id for e in store.context.newest_tagged("acme/api", "curated", 9)] == ["e2", "e1"]
    assert [e.episode_id for e in store.context.newest_tagged("acme/api", "curated", 1)] == ["e2"]
    for name in ("b", "d", "a"):
        put(store, name, "text", minute=20, tags=("curated",))
    assert [e.episode_id for e in store.context.newest_tagged("acme/api", "curated", 2)] == ["d", "b"], "of one time"


def test_a_project_is_there_once_an_episode_of_it_is(store: Store) -> None:
    assert not store.context.has_project("acme/api")
    put(store, "e", "text", status="superseded")
    assert store.context.has_project("acme/api")
    assert not store.context.has_project("api")

"""What MongoDB keeps of episodes beside the contract: facets in step, spaces in steps, and few round trips."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.errors import SpaceConflict
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import engine, native, spaces
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.mongo.collections import Collection, Document
from anamnesis_pipeline.store.mongo.facets import FACETS, facets_of
from anamnesis_pipeline.store.mongo.native import MongoNative
from anamnesis_pipeline.store.records.consolidation import ChangedSession
from anamnesis_pipeline.store.records.episodes import remove_episodes
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.mongo_watching import Sent
from anamnesis_tests.support.samples import DAY, edit, episode, passages, put, space, unit

TEXT = Variant.TEXT


def found(database: Database, name: str) -> list[Document]:
    with database.read() as tables:
        return tables[name].find({}, order=[("_id", 1)])


def repeated(database: Database, episode_id: str) -> list[tuple[Document, int]]:
    """Facets and `seq` of what repeats those of an episode."""
    return [
        ({name: each[name] for name in FACETS}, each["seq"])
        for name in ("passages", "vectors_s")
        for each in found(database, name)
        if each["episode_id"] == episode_id
    ]


@pytest.fixture
def embedded(store: Store) -> Store:
    """Episodes `a` and `b` of a session, with two passages and vectors each."""
    store.spaces.put(space("s"))
    for minute, name in enumerate("ab"):
        keys = put(store, name, "one", "two", minute=minute, source="logs", session_id="x", metadata={"value": 3})
        store.vectors.put("s", TEXT, keys, np.stack([unit(1, 0, 0, 0), unit(0, 1, 0, 0)]))
    return store


def edit_much(store: Store) -> None:
    edit(store, "a", project="other", kind="decision", tags=("x", "y"), timestamp=DAY + timedelta(days=1))


def supersede(store: Store) -> None:
    store.consolidation.settle(ChangedSession("x", 2), {"a": "b", "b": None})


def write_anew(store: Store) -> None:
    put(store, "a", "one", "two", minute=7, source="logs", session_id="y", instance="else")


def track(times: int, *, read: bool = False) -> Callable[[Store], None]:
    def done(store: Store) -> None:
        for _ in range(times):
            store.episodes.track(["a"], DAY, read=read)

    return done


def change_row(store: Store) -> None:
    change = {"kind": "decision", "timestamp": "2020-01-01T00:00:00.000000Z"}
    store.gateway.write(lambda tables: tables["episodes"].update({"episode_id": "a"}, change))


CHANGES: dict[str, tuple[Callable[[Store], Any], set[str]]] = {
    "edited": (edit_much, {"project", "kind", "tags", "at", "layer"}),
    "superseded": (supersede, {"status"}),
    "called otherwise": (lambda store: store.projects.call("acme/api", "other"), {"project"}),
    "changed as a row": (change_row, {"kind", "at", "layer"}),
    "written anew": (write_anew, {"at", "session_id", "instance"}),
    "read twice": (track(2, read=True), {"read_often"}),
    "read often": (track(5, read=True), {"read_often", "layer"}),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_passages_and_vectors_have_their_episodes_facets(embedded: Store, database: Database, change: str) -> None:
    before = repeated(database, "a")
    done, changed = CHANGES[change]
    done(embedded)
    after = repeated(database, "a")
    wanted = facets_of(next(each for each in found(database, "episodes") if each["_id"] == "a"))
    assert [facets for facets, _ in after] == [wanted] * 4
    assert {name for name in FACETS if wanted[name] != before[0][0][name]} == changed
    assert len({seq for _, seq in after[:2]} | {seq for _, seq in before[:2]}) == 4
    assert min(seq for _, seq in after[2:]) > max(seq for _, seq in before[2:])


@pytest.mark.parametrize("change", [track(1), lambda store: store.projects.rename("acme/api", "new")])
def test_other_changes_leave_passages(embedded: Store, database: Database, change: Callable[[Store], Any]) -> None:
    before = repeated(database, "a")
    change(embedded)
    assert repeated(database, "a") == before


def test_an_episodes_own_document_has_its_facets_too(embedded: Store, database: Database) -> None:
    edit_much(embedded)
    for each in found(database, "episodes"):
        assert {name: each[name] for name in FACETS[1:]} == {name: facets_of(each)[name] for name in FACETS[1:]}


# --- spaces ----------------------------------------------------------------------------------------------


class CrashedError(Exception):
    """The process ended."""


def crash(*_: Any, **__: Any) -> None:
    raise CrashedError


@pytest.mark.parametrize("step", ["MongoSpaces.make_collections", "expect_everything"])
def test_broken_add_is_shown_to_nobody(
    store: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    put(store, "e", "text")
    with monkeypatch.context() as broken:
        broken.setattr(f"{spaces.__name__}.{step}", crash)
        with pytest.raises(CrashedError):
            store.spaces.put(space("s"))
    other = open_store()
    assert other.spaces.all() == []
    late = put(other, "late", "text")
    assert other.spaces.put(space("s"))
    assert other.spaces.all() == [space("s")]
    assert other.vectors.pending_sources("s") == {"direct": 2}
    assert other.vectors.put("s", TEXT, late, unit(1, 0, 0, 0)[None]) == 1


def test_what_a_broken_drop_left_is_gone_before_the_key_is_used(
    embedded: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Collection, "drop", crash)
        with pytest.raises(CrashedError):
            embedded.spaces.drop("s")
    assert embedded.spaces.all() == []
    assert len(found(database, "vectors_s")) == 4
    other = open_store()
    assert other.spaces.put(space("s", dim=3))
    assert found(database, "vectors_s") == []
    assert other.vectors.pending_sources("s") == {"logs": 4}
    assert len(found(database, "pending")) == 2


def test_second_active_space_goes(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    ours, theirs = open_store(), open_store()
    put(ours, "e", "text")
    make = spaces.MongoSpaces.make_collections

    def late(its: spaces.MongoSpaces, key: str) -> None:
        if key == "loser":
            theirs.spaces.put(replace(space("winner"), status="active"))
        make(its, key)

    monkeypatch.setattr(spaces.MongoSpaces, "make_collections", late)
    with pytest.raises(SpaceConflict, match="loser cannot be active while winner is"):
        ours.spaces.put(replace(space("loser"), status="active"))
    (winner,) = found(database, "spaces")
    assert winner["key"] == "winner"
    assert {each["space_id"] for each in found(database, "pending")} == {winner["_id"]}


# --- round trips -----------------------------------------------------------------------------------------


def test_terms_are_made_before_the_turn_of_what_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def noted(text: str) -> str:
        asked.append((text, store.gateway._database._turn.locked()))  # type: ignore[attr-defined]
        return text

    terms = lru_cache(noted)
    for module in (engine, native):
        monkeypatch.setattr(module, "terms_of", terms)
    put(store, "e", "one", "two")
    assert asked == [("one", False), ("two", False)]
    terms.cache_clear()
    put(store, "e", "one", "two")
    assert len(asked) == 2


def test_commands_of_a_put_do_not_grow_with_its_episodes(sent: Sent, store: Store) -> None:
    store.spaces.put(space("s"))

    def some(name: str, count: int, **fields: Any) -> list[Any]:
        keys = [f"{name}{n}" for n in range(count)]
        return [
            (episode(key, n, message_keys=(key,), **fields), passages("one", "two", "three"))
            for n, key in enumerate(keys)
        ]

    for what, fields in (("new", {}), ("edited", {"summary": "other"}), ("moved", {"project": "other"})):
        few, many = (sent.during(partial(store.episodes.put, some(f"{n}-", n, **fields))) for n in (1, 100))
        assert many <= few <= 30, (what, sent.commands)
    unchanged = sent.during(lambda: store.episodes.put(some("100-", 100, project="other")))
    assert unchanged <= 6, sent.commands


def test_commands_of_a_removal_do_not_grow_with_the_episodes(sent: Sent, store: Store, database: Database) -> None:
    store.spaces.put(space("s"))

    def removed(count: int) -> int:
        keys = [f"e{n}" for n in range(count)]
        store.episodes.put([(episode(key, source="logs", session_id="x"), passages("one", "two")) for key in keys])
        return sent.during(lambda: store.gateway.write(lambda tables: remove_episodes(tables, MongoNative(), keys)))

    assert removed(100) <= removed(1) <= 28, sent.commands
    assert found(database, "passages") == found(database, "pending") == []

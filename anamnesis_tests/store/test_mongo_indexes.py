"""The indexes of an earlier version become those of this one at the next start."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import schema
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.mongo.opening import prepare
from anamnesis_pipeline.store.mongo.schema import COLLECTIONS, INDEXES_OF_SPACES, Index, Plan, plan
from anamnesis_tests.store.mongo_watching import looked_at, opened
from anamnesis_tests.store.samples import put, space

OLD = Index(("status", "-number"), where={"number": {"$gt": 5}})
OTHERWISE = {
    "partial otherwise": Index(("status", "-number"), where={"number": {"$gt": 9}}),
    "of all": Index(("status", "-number")),
    "unique": Index(("status", "-number"), unique=True, where={"number": {"$gt": 5}}),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield from opened(tmp_path)


@pytest.fixture
def database(store: Store, tmp_path: Path) -> Iterator[Database]:
    yield from looked_at(tmp_path)


def listed(database: Database, name: str) -> dict[str, dict[str, Any]]:
    found: list[dict[str, Any]] = database.command({"listIndexes": name})["cursor"]["firstBatch"]
    return {each["name"]: each for each in found}


def told(*indexes_there: Index) -> list[dict[str, Any]]:
    """As `listIndexes` tells of them."""
    return [{"key": {"_id": 1}, "name": "_id_"}, *(each.model().document for each in indexes_there)]


def of_version(monkeypatch: pytest.MonkeyPatch, database: Database, wanted: Sequence[Index]) -> None:
    """Start a version that wants these indexes of episodes, beside what every version wants."""
    with monkeypatch.context() as other:
        other.setitem(schema.COLLECTIONS, "episodes", [*COLLECTIONS["episodes"], *wanted])
        prepare(database)


@pytest.mark.parametrize("change", sorted(OTHERWISE))
def test_an_index_of_other_options_takes_the_place_of_the_one_of_its_name(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    put(store, "e", "some words")
    of_version(monkeypatch, database, [OLD])
    of_version(monkeypatch, database, [OTHERWISE[change]])
    found = listed(database, "episodes")[OLD.name]
    assert OTHERWISE[change].is_like(found)
    assert not OLD.is_like(found)


def test_an_index_that_no_version_wants_any_more_goes_and_one_of_somebody_else_stays(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listed(database, "episodes")
    of_version(monkeypatch, database, [OLD])
    theirs = Index(("instance", "-number"))
    database.command({"createIndexes": "episodes", "indexes": [theirs.model().document]})
    prepare(database)
    assert listed(database, "episodes").keys() == before.keys() | {theirs.name}


def test_the_indexes_of_a_space_change_too(store: Store, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    store.spaces.put(space("s"))
    with monkeypatch.context() as other:
        other.setitem(
            schema.INDEXES_OF_SPACES, "vectors_", [Index(("seq",), where={"seq": {"$gt": 1}}), Index(("at",))]
        )
        prepare(database)
        assert listed(database, "vectors_s").keys() == {"_id_", "seq_1", "at_1"}
    prepare(database)
    found = listed(database, "vectors_s")
    assert found.keys() == {"_id_", *(index.name for index in INDEXES_OF_SPACES["vectors_"])}
    assert "partialFilterExpression" not in found["seq_1"]


def test_several_that_start_at_once_bring_it_about_together(
    store: Store, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "PAUSE_S", 0.05)
    of_version(monkeypatch, database, [OLD])
    problems: list[BaseException] = []
    together = threading.Barrier(3)

    def start() -> None:
        for own in looked_at(tmp_path):
            together.wait(60)
            try:
                prepare(own)
            except BaseException as exc:
                problems.append(exc)

    monkeypatch.setitem(schema.COLLECTIONS, "episodes", [*COLLECTIONS["episodes"], OTHERWISE["of all"]])
    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert OTHERWISE["of all"].is_like(listed(database, "episodes")[OLD.name])


def test_what_is_there_under_another_name_is_not_made_again() -> None:
    theirs = {**OLD.model().document, "name": "made_by_hand"}
    assert plan([*told(), theirs], [OLD], ()) == Plan([], [])
    sparse = {**theirs, "name": OLD.name, "sparse": True}
    assert plan([*told(), sparse], [OLD], ()) == Plan([OLD.name], [OLD])


def test_of_what_is_wanted_and_there_nothing_is_touched() -> None:
    wanted = [OLD, Index(("a",), unique=True)]
    assert plan(told(*wanted), wanted, {each.name for each in wanted}) == Plan([], [])
    assert plan(told(), wanted, ()) == Plan([], wanted)
    assert plan(told(OLD, Index(("b",))), [], {OLD.name}) == Plan([OLD.name], [])

"""The server itself refuses a document of a wrong shape."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import BulkWriteError, WriteError

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import opening, schema
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.mongo.opening import prepare
from anamnesis_pipeline.store.mongo.schema import COLLECTIONS, Index, validator_of
from anamnesis_tests.store.mongo_watching import looked_at, opened
from anamnesis_tests.store.samples import space

INVALID = 121


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield from opened(tmp_path)


@pytest.fixture
def database(store: Store, tmp_path: Path) -> Iterator[Database]:
    yield from looked_at(tmp_path)


def code_of(error: WriteError | BulkWriteError) -> int | None:
    return error.details["writeErrors"][0]["code"] if isinstance(error, BulkWriteError) else error.code


def refuse(database: Database, name: str, document: dict[str, Any]) -> bool:
    """Whether the server refuses a new document as invalid."""
    try:
        database.write(lambda tables: tables[name].insert([document]))
    except (WriteError, BulkWriteError) as error:
        return code_of(error) == INVALID
    return False


def valid(name: str) -> dict[str, Any]:
    """A document that a collection takes."""
    examples = {"string": "text", "int": 1, "array": [], "binData": b"data", "double": 1.0, "date": datetime.now(UTC)}
    fields = validator_of(name)["$jsonSchema"]["properties"]
    kinds = {field: kind["bsonType"] for field, kind in fields.items()}
    return {field: examples[kind if isinstance(kind, str) else kind[0]] for field, kind in kinds.items()}


@pytest.mark.parametrize("name", [*sorted(COLLECTIONS), "vectors_s", "tokens_s"])
def test_a_document_that_lacks_a_field_or_has_another_type_in_one_is_refused(
    store: Store, database: Database, name: str
) -> None:
    store.spaces.put(space("s", token_dims=4))
    whole = valid(name)
    for field in validator_of(name)["$jsonSchema"]["required"]:
        assert refuse(database, name, {key: value for key, value in whole.items() if key != field} | _other_id(field))
        assert refuse(database, name, whole | {field: True}), field
    assert not refuse(database, name, whole)


def _other_id(field: str) -> dict[str, Any]:
    """Without an id the driver gives one, which is no text and no number."""
    return {} if field != "_id" else {"_id": b"bytes"}


def test_a_change_that_breaks_a_document_is_refused_and_leaves_it_whole(store: Store, database: Database) -> None:
    store.settings.set("one", 1)
    with pytest.raises(WriteError) as refused:
        database.write(lambda tables: tables["settings"].update({"name": "one"}, {"$set": {"value": 2}}))
    assert code_of(refused.value) == INVALID
    assert store.settings.get("one") == 1


def test_the_validator_of_an_earlier_version_gives_way_at_the_next_start(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.spaces.put(space("s"))
    for name in ("settings", "vectors_s"):
        database.command({"collMod": name, "validator": {}})
    assert not refuse(database, "settings", {"name": "x"})
    prepare(database)
    assert not refuse(database, "settings", {"name": "y"}), "what is of this version is left alone"
    monkeypatch.setattr(opening, "VERSION", opening.VERSION + 1)
    prepare(database)
    prepare(database)
    assert refuse(database, "settings", {"name": "z"})
    assert refuse(database, "vectors_s", {"_id": 1})


def test_every_collection_has_a_validator_and_every_validator_a_collection(database: Database) -> None:
    found = {each["name"]: each["options"].get("validator") for each in _listed(database)}
    assert {name: found[name] for name in COLLECTIONS} == {name: validator_of(name) for name in COLLECTIONS}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_no_two_indexes_of_a_collection_have_the_same_name(name: str) -> None:
    names = [index.name for index in COLLECTIONS[name]]
    assert len(names) == len(set(names))


def test_the_database_has_the_indexes_that_are_wanted_and_no_others(store: Store, database: Database) -> None:
    store.spaces.put(space("s"))
    wanted = {name: {_told(index) for index in indexes} for name, indexes in COLLECTIONS.items()}
    wanted["vectors_s"] = {_told(Index((field,))) for field in ("seq", "episode_id")}
    wanted["tokens_s"] = {_told(Index(("tokens",)))}
    assert {name: _indexes(database, name) for name in wanted} == wanted
    assert {each["name"] for each in _listed(database)} == wanted.keys()


def test_an_index_that_is_new_is_made_at_the_next_start_though_the_version_is_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Index(("status", "-number"))
    assert _told(new) not in _indexes(database, "episodes")
    monkeypatch.setitem(schema.COLLECTIONS, "episodes", [*COLLECTIONS["episodes"], new])
    prepare(database)
    assert _told(new) in _indexes(database, "episodes")


def _listed(database: Database) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = database.command({"listCollections": 1})["cursor"]["firstBatch"]
    return found


def _told(index: Index) -> str:
    return repr((index.keys(), index.unique, index.where))


def _indexes(database: Database, name: str) -> set[str]:
    """The indexes of a collection but that by `_id`, told as `_told` does."""
    found = database.command({"listIndexes": name})["cursor"]["firstBatch"]
    return {
        repr((list(each["key"].items()), each.get("unique", False), each.get("partialFilterExpression", {})))
        for each in found
        if each["name"] != "_id_"
    }

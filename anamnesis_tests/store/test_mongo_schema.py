"""Validators and indexes: the server refuses a wrong shape, and what an earlier version made gives way."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import BulkWriteError, WriteError

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import opening, schema
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.mongo.opening import prepare
from anamnesis_pipeline.store.mongo.schema import COLLECTIONS, INDEXES_OF_SPACES, Index, Plan, plan, validator_of
from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.samples import at_once, put, space

INVALID = 121
OLD = Index(("status", "-number"), where={"number": {"$gt": 5}})
OTHERWISE = {
    "partial otherwise": Index(("status", "-number"), where={"number": {"$gt": 9}}),
    "of all": Index(("status", "-number")),
    "unique": Index(("status", "-number"), unique=True, where={"number": {"$gt": 5}}),
}


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
def test_document_without_a_field_or_of_another_type_is_refused(store: Store, database: Database, name: str) -> None:
    store.spaces.put(space("s", token_dims=4))
    whole = valid(name)
    for field in validator_of(name)["$jsonSchema"]["required"]:
        # without an id the driver gives one, which is no text and no number
        left = {key: value for key, value in whole.items() if key != field} | ({"_id": b""} if field == "_id" else {})
        assert refuse(database, name, left)
        assert refuse(database, name, whole | {field: True}), field
    assert not refuse(database, name, whole)


def test_change_that_breaks_a_document_is_refused(store: Store, database: Database) -> None:
    store.settings.set("one", 1)
    with pytest.raises(WriteError) as refused:
        database.write(lambda tables: tables["settings"].update({"name": "one"}, {"$set": {"value": 2}}))
    assert code_of(refused.value) == INVALID
    assert store.settings.get("one") == 1


def test_earlier_validator_gives_way(store: Store, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_collections_have_their_validators_and_indexes_alone(store: Store, database: Database) -> None:
    store.spaces.put(space("s"))
    wanted = {name: [*indexes] for name, indexes in COLLECTIONS.items()}
    wanted["vectors_s"] = [Index((field,)) for field in ("seq", "episode_id")]
    wanted["tokens_s"] = [Index(("tokens",))]
    found = {each["name"]: each for each in database.command({"listCollections": 1})["cursor"]["firstBatch"]}
    assert found.keys() == wanted.keys()
    for name, indexes in wanted.items():
        there = listed(database, name)
        assert there.keys() == {"_id_", *(index.name for index in indexes)}
        assert len(there) == 1 + len(indexes), "each has a name of its own"
        assert all(index.is_like(there[index.name]) for index in indexes), name
        assert name not in COLLECTIONS or found[name]["options"]["validator"] == validator_of(name)


# --- indexes of an earlier version -----------------------------------------------------------------------


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
def test_index_of_other_options_takes_the_place_of_its_name(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    put(store, "e", "some words")
    of_version(monkeypatch, database, [OLD])
    assert OLD.is_like(listed(database, "episodes")[OLD.name]), "new, though the version is the same"
    of_version(monkeypatch, database, [OTHERWISE[change]])
    found = listed(database, "episodes")[OLD.name]
    assert OTHERWISE[change].is_like(found)
    assert not OLD.is_like(found)


def test_unwanted_index_goes_and_a_foreign_one_stays(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed(database, "episodes")
    of_version(monkeypatch, database, [OLD])
    theirs = Index(("instance", "-number"))
    database.command({"createIndexes": "episodes", "indexes": [theirs.model().document]})
    prepare(database)
    assert listed(database, "episodes").keys() == before.keys() | {theirs.name}


def test_indexes_of_a_space_change_too(store: Store, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    store.spaces.put(space("s"))
    with monkeypatch.context() as other:
        earlier = [Index(("seq",), where={"seq": {"$gt": 1}}), Index(("at",))]
        other.setitem(schema.INDEXES_OF_SPACES, "vectors_", earlier)
        prepare(database)
        assert listed(database, "vectors_s").keys() == {"_id_", "seq_1", "at_1"}
    prepare(database)
    found = listed(database, "vectors_s")
    assert found.keys() == {"_id_", *(index.name for index in INDEXES_OF_SPACES["vectors_"])}
    assert "partialFilterExpression" not in found["seq_1"]


def test_several_starts_at_once_agree(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PAUSE_S", 0.05)
    of_version(monkeypatch, database, [OLD])

    def start() -> None:
        with closing(Database(shared.uri(), mongo_database(tmp_path))) as own:
            prepare(own)

    monkeypatch.setitem(schema.COLLECTIONS, "episodes", [*COLLECTIONS["episodes"], OTHERWISE["of all"]])
    at_once([start] * 3)
    assert OTHERWISE["of all"].is_like(listed(database, "episodes")[OLD.name])


A, B = Index(("a",), unique=True), Index(("b",))
BY_HAND = {**OLD.model().document, "name": "made_by_hand"}
SPARSE = {**OLD.model().document, "sparse": True}


@pytest.mark.parametrize(
    ("there", "wanted", "known", "then"),
    [
        (told(OLD, A), [OLD, A], {OLD.name, A.name}, Plan([], [])),
        (told(), [OLD, A], (), Plan([], [OLD, A])),
        (told(OLD, B), [], {OLD.name}, Plan([OLD.name], [])),
        ([*told(), BY_HAND], [OLD], (), Plan([], [])),
        ([*told(), SPARSE], [OLD], (), Plan([OLD.name], [OLD])),
    ],
    ids=["all there", "none there", "one no more wanted", "under another name", "with other options"],
)
def test_plan_drops_and_makes_what_differs(there: Any, wanted: list[Index], known: Any, then: Plan) -> None:
    assert plan(there, wanted, known) == then

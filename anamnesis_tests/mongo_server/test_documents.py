"""What is found, changed and given back, asked through the real client."""

from collections.abc import Mapping
from typing import Any

import pytest
from bson import Binary, Int64, Regex
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, CursorNotFound, DuplicateKeyError, OperationFailure, WriteError

from anamnesis_tests.mongo_server.conftest import Client, Data
from anamnesis_tests.mongo_server.server import LoopbackServer

VALUES: dict[int, Any] = {
    1: 1, 2: 1.0, 3: True, 4: "a", 5: None, 6: [], 7: [1, 5], 8: ["a"], 9: {"b": 1}, 10: [{"b": 1}, {"b": 3}],
    11: Int64(2**40), 12: b"x", 13: float("nan"), 14: [None], 15: {"b": [2]},
}  # fmt: skip
"""`_id` to the field `v`; document 16 has none."""


@pytest.fixture
def varied(data: Data) -> Data:
    data.a.insert_many([{"_id": key, "v": value} for key, value in VALUES.items()] + [{"_id": 16}])
    return data


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"v": 1}, {1, 2, 7}),
        ({"v": True}, {3}),
        ({"v": None}, {5, 14, 16}),
        ({"v": {"$eq": None}}, {5, 14, 16}),
        ({"v": {"$ne": None}}, {1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 15}),
        ({"v": {"$exists": False}}, {16}),
        ({"v": {"$gt": 1}}, {7, 11}),
        ({"v": {"$gte": 1, "$lt": 2}}, {1, 2, 7}),
        ({"v": {"$gt": ""}}, {4, 8}),
        ({"v": {"$in": [1, "a"]}}, {1, 2, 4, 7, 8}),
        ({"v": {"$in": [None]}}, {5, 14, 16}),
        ({"v": {"$nin": [1, "a", None]}}, {3, 6, 9, 10, 11, 12, 13, 15}),
        ({"v": []}, {6}),
        ({"v": [1, 5]}, {7}),
        ({"v": {"$size": 2}}, {7, 10}),
        ({"v": {"$all": [1, 5]}}, {7}),
        ({"v": {"b": 1}}, {9, 10}),
        ({"v.b": 1}, {9, 10}),
        ({"v.b": {"$gt": 1}}, {10, 15}),
        ({"v.0": 1}, {7}),
        ({"v": {"$elemMatch": {"$gt": 1, "$lt": 9}}}, {7}),
        ({"v": {"$elemMatch": {"b": {"$gt": 2}}}}, {10}),
        ({"v": {"$type": "string"}}, {4, 8}),
        ({"v": {"$type": ["int", "long"]}}, {1, 7, 11}),
        ({"v": {"$type": "number"}}, {1, 2, 7, 11, 13}),
        ({"v": {"$type": "array"}}, {6, 7, 8, 10, 14}),
        ({"v": Regex("^A", "i")}, {4, 8}),
        ({"v": {"$regex": "^A", "$options": "i"}}, {4, 8}),
        ({"v": {"$not": {"$gt": 1}}}, {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 16}),
        ({"v": b"x"}, {12}),
        ({"$or": [{"v": "a"}, {"v": True}]}, {3, 4, 8}),
        ({"$nor": [{"_id": {"$lt": 15}}, {"v": None}]}, {15}),
        ({"$and": [{"v": {"$gte": 1}}, {"_id": {"$gt": 2}}]}, {7, 11}),
        ({"$expr": {"$eq": ["$v", 1]}}, {1, 2}),
        ({"$expr": {"$lt": ["$v", None]}}, {16}),
        ({"v": {"$mod": [2, 0]}}, {11}),
        ({"$jsonSchema": {"required": ["v"], "properties": {"v": {"bsonType": "string"}}}}, {4}),
    ],
)
@pytest.mark.parametrize("indexed", [False, True])
def test_a_filter_finds_what_mongodb_finds_with_an_index_and_without(
    varied: Data, where: Mapping[str, Any], expected: set[int], indexed: bool
) -> None:
    if indexed:
        varied.a.create_index("v")
    assert {each["_id"] for each in varied.a.find(where, {"_id": 1})} == expected


def test_values_are_sorted_in_mongodbs_order_of_types(varied: Data) -> None:
    up = [each["_id"] for each in varied.a.find({}, {"_id": 1}, sort=[("v", 1), ("_id", 1)])]
    assert up == [6, 5, 14, 16, 13, 1, 2, 7, 11, 4, 8, 9, 10, 15, 12, 3]
    varied.a.create_index("v")
    down = [each["_id"] for each in varied.a.find({}, {"_id": 1}, sort=[("v", -1), ("_id", 1)])]
    assert down[:3] == [3, 12, 15]
    assert down[-5:] == [13, 5, 14, 16, 6]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"$set": {"n": 2, "d.x": 1}}, {"n": 2, "t": ["a"], "d": {"x": 1, "y": 2}}),
        ({"$unset": {"n": "", "d.y": ""}}, {"t": ["a"], "d": {}}),
        ({"$inc": {"n": 2, "new": 1}}, {"n": 3, "t": ["a"], "d": {"y": 2}, "new": 1}),
        ({"$mul": {"n": 4}}, {"n": 4, "t": ["a"], "d": {"y": 2}}),
        ({"$min": {"n": 0}, "$max": {"d.y": 9}}, {"n": 0, "t": ["a"], "d": {"y": 9}}),
        ({"$min": {"n": 5}, "$max": {"d.y": 1}}, {"n": 1, "t": ["a"], "d": {"y": 2}}),
        ({"$addToSet": {"t": {"$each": ["a", "b", "b"]}}}, {"n": 1, "t": ["a", "b"], "d": {"y": 2}}),
        ({"$push": {"t": {"$each": ["c", "b"], "$sort": 1, "$slice": -2}}}, {"n": 1, "t": ["b", "c"], "d": {"y": 2}}),
        ({"$pull": {"t": {"$in": ["a"]}}}, {"n": 1, "t": [], "d": {"y": 2}}),
        ({"$pop": {"t": 1}}, {"n": 1, "t": [], "d": {"y": 2}}),
        ({"$rename": {"n": "m"}}, {"t": ["a"], "d": {"y": 2}, "m": 1}),
        ({"$setOnInsert": {"n": 9}}, {"n": 1, "t": ["a"], "d": {"y": 2}}),
        ([{"$set": {"n": {"$add": ["$n", 1]}, "d": {"z": "$n"}}}], {"n": 2, "t": ["a"], "d": {"y": 2, "z": 1}}),
        ([{"$set": {"n": "$$REMOVE"}}, {"$unset": "t"}], {"d": {"y": 2}}),
        ([{"$set": {"n": {"$literal": "$n"}}}], {"n": "$n", "t": ["a"], "d": {"y": 2}}),
        ([{"$replaceWith": {"whole": "$$ROOT.n"}}], {"whole": 1}),
    ],
)
def test_an_update_changes_what_it_names(data: Data, change: Any, expected: dict[str, Any]) -> None:
    data.a.insert_one({"_id": 1, "n": 1, "t": ["a"], "d": {"y": 2}})
    done = data.a.update_one({"_id": 1}, change)
    assert data.a.find_one() == {"_id": 1, **expected}
    assert done.matched_count == 1
    assert done.modified_count == (expected != {"n": 1, "t": ["a"], "d": {"y": 2}})


def test_an_upsert_makes_what_its_filter_and_change_say_once(data: Data) -> None:
    change = {"$set": {"n": 1}, "$setOnInsert": {"made": True}}
    where = {"key": "k", "$and": [{"part": {"$eq": 2}}], "n": {"$gt": 0}}
    first = data.a.update_one({"key": "k", "part": 2}, change, upsert=True)
    assert first.upserted_id is not None
    assert data.a.update_one(where, change, upsert=True).upserted_id is None
    assert data.a.find_one({}, {"_id": 0}) == {"key": "k", "part": 2, "n": 1, "made": True}
    assert (
        data.a.update_one({"_id": "own"}, [{"$set": {"n": {"$ifNull": ["$n", 5]}}}], upsert=True).upserted_id == "own"
    )
    assert data.a.find_one({"_id": "own"}) == {"_id": "own", "n": 5}
    data.a.replace_one({"_id": "other"}, {"n": 1}, upsert=True)
    assert data.a.find_one({"_id": "other"}) == {"_id": "other", "n": 1}


def test_find_and_modify_gives_the_document_before_or_after(data: Data) -> None:
    data.a.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 2}])
    assert data.a.find_one_and_update({}, {"$inc": {"n": 10}}, sort=[("n", -1)]) == {"_id": 2, "n": 2}
    after = data.a.find_one_and_update({"_id": 3}, {"$inc": {"n": 1}}, upsert=True, return_document=True)
    assert after == {"_id": 3, "n": 1}
    assert data.a.find_one_and_update({"_id": 4}, {"$inc": {"n": 1}}, upsert=True) is None
    assert data.a.find_one_and_delete({"_id": 2}, projection={"_id": 0}) == {"n": 12}
    assert data.a.find_one_and_delete({"_id": 2}) is None
    assert data.a.find_one_and_replace({"_id": 1}, {"m": 1}, return_document=True) == {"_id": 1, "m": 1}


def test_a_bulk_does_its_writes_in_order_and_stops_at_the_first_that_fails(data: Data) -> None:
    writes = [InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"n": 1}}), ReplaceOne({"_id": 2}, {}, upsert=True),
              UpdateMany({}, {"$set": {"m": 1}}), InsertOne({"_id": 1}), DeleteOne({"_id": 1})]  # fmt: skip
    with pytest.raises(BulkWriteError) as refused:
        data.a.bulk_write(writes)
    assert [error["index"] for error in refused.value.details["writeErrors"]] == [4]
    assert list(data.a.find()) == [{"_id": 1, "n": 1, "m": 1}, {"_id": 2, "m": 1}]
    with pytest.raises(BulkWriteError):
        data.a.bulk_write(writes[4:], ordered=False)
    assert list(data.a.find()) == [{"_id": 2, "m": 1}]


def test_many_documents_come_in_batches_and_closed_cursors_are_gone(server: LoopbackServer, data: Data) -> None:
    data.a.insert_many([{"_id": n} for n in range(1000)])
    assert [each["_id"] for each in data.a.find()] == list(range(1000))
    assert [each["_id"] for each in data.a.find(batch_size=7).skip(5).limit(20)] == list(range(5, 25))
    assert len(list(data.a.aggregate([{"$match": {}}], batchSize=0))) == 1000
    cursor = data.a.find(batch_size=2)
    next(cursor)
    cursor.close()
    for member in server.replica_set.members:
        member.cursors.kill(list(member.cursors._open))
    with pytest.raises(CursorNotFound):
        list(_begun(data))


def _begun(data: Data) -> Any:
    cursor = data.a.find(batch_size=2)
    yield next(cursor)
    data.command("killCursors", "a", cursors=[cursor.cursor_id])
    yield from cursor


def test_a_batch_is_never_larger_than_a_message(data: Data) -> None:
    data.a.insert_many([{"_id": n, "data": Binary(bytes(3_000_000))} for n in range(12)])
    assert [each["_id"] for each in data.a.find()] == list(range(12))


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        ({"n": 1}, {"_id": 1, "n": 1}),
        ({"_id": 0, "d.x": 1}, {"d": {"x": 1}}),
        ({"d": 0, "l": 0}, {"_id": 1, "n": 1}),
        ({"d.x": 0, "l": 0, "_id": 0}, {"n": 1, "d": {"y": 2}}),
        ({"_id": 0, "l.a": 1}, {"l": [{"a": 1}, {"a": 2}]}),
        ({"_id": 0, "l": {"$elemMatch": {"a": 2}}}, {"l": [{"a": 2, "b": 4}]}),
        ({"_id": 0, "n": 1, "sum": {"$add": ["$n", "$d.y"]}}, {"n": 1, "sum": 3}),
        ({"_id": 0, "renamed": "$d.x", "gone": "$nothing"}, {"renamed": 1}),
    ],
)
def test_a_projection_gives_what_it_names(data: Data, projection: Any, expected: Any) -> None:
    data.a.insert_one({"_id": 1, "n": 1, "d": {"x": 1, "y": 2}, "l": [{"a": 1, "b": 3}, {"a": 2, "b": 4}]})
    assert data.a.find_one({}, projection) == expected


def test_a_validator_refuses_documents_and_changes_that_do_not_keep_to_it(data: Data) -> None:
    schema = {"bsonType": "object", "required": ["n"], "properties": {"n": {"bsonType": "int", "minimum": 0}}}
    data.create_collection("a", validator={"$jsonSchema": schema})
    data.a.insert_one({"_id": 1, "n": 1})
    for write in (
        lambda: data.a.insert_one({"_id": 2}),
        lambda: data.a.update_one({"_id": 1}, {"$set": {"n": -1}}),
        lambda: data.a.update_one({"_id": 1}, {"$set": {"n": "one"}}),
    ):
        with pytest.raises(WriteError) as refused:
            write()
        assert refused.value.code == 121
    data.a.with_options().insert_one({"_id": 3}, bypass_document_validation=True)
    data.command("collMod", "a", validator={})
    data.a.insert_one({"_id": 4})
    assert data.a.distinct("_id") == [1, 3, 4]


def test_two_members_write_of_one_key_is_told_with_the_key(data: Data) -> None:
    data.a.create_index([("s", 1), ("k", 1)], unique=True)
    data.a.insert_one({"_id": 1, "s": "x", "k": 1})
    with pytest.raises(DuplicateKeyError) as refused:
        data.a.insert_one({"_id": 2, "s": "x", "k": 1})
    assert refused.value.details["keyPattern"] == {"s": 1, "k": 1}
    assert refused.value.details["keyValue"] == {"s": "x", "k": 1}


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda a: a.find_one({"n": {"$near": 1}}), None),
        (lambda a: a.find_one({"n": {"$greater": 1}}), 2),
        (lambda a: a.find_one({"$both": []}), 2),
        (lambda a: a.find_one({"n": {"$in": 1}}), 2),
        (lambda a: a.update_one({}, {"$sett": {"n": 1}}), 9),
        (lambda a: a.update_one({"_id": 1}, {"$set": {"_id": 2}}), 66),
        (lambda a: a.update_one({"_id": 1}, {"$set": {"n": 1}, "$inc": {"n": 1}}), 40),
        (lambda a: a.update_one({"_id": 1}, {"$inc": {"text": 1}}), 14),
        (lambda a: a.update_one({"_id": 1}, {"$set": {"text.x": 1}}), 28),
        (lambda a: a.update_many({}, [{"$match": {}}]), None),
        (lambda a: list(a.aggregate([{"$sift": {}}])), 40324),
        (lambda a: list(a.aggregate([{"$project": {"x": {"$plus": [1, 2]}}}])), None),
        (lambda a: list(a.aggregate([{"$merge": {"into": "b"}}])), None),
        (lambda a: a.database.command({"find": "a", "fitler": {}}), 40415),
        (lambda a: a.database.command({"fund": "a"}), 59),
        (lambda a: a.find_one({}, {"a": 1, "b": 0}), 31254),
        (lambda a: a.find_one({}, hint="nothing"), 2),
    ],
)
def test_what_is_unknown_or_wrong_is_refused(data: Data, ask: Any, code: int | None) -> None:
    data.a.insert_one({"_id": 1, "text": "t"})
    with pytest.raises(OperationFailure) as refused:
        ask(data.a)
    assert code is None or refused.value.code == code


def test_databases_and_collections_come_and_go(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1})
    data.create_collection("b")
    assert sorted(data.list_collection_names()) == ["a", "b"]
    assert "data" in client.list_database_names()
    data.b.drop()
    data.b.drop()
    assert data.list_collection_names() == ["a"]
    data.a.rename("c")
    assert data.c.find_one() == {"_id": 1}
    client.drop_database("data")
    assert "data" not in client.list_database_names()

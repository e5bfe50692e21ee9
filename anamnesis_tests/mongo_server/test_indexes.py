import random

import pytest
from pymongo import ASCENDING, DESCENDING
from pymongo.errors import DuplicateKeyError, OperationFailure

from anamnesis_tests.mongo_server.conftest import Data


def plan(data: Data, **find: object) -> dict[str, object]:
    explained = data.command("explain", {"find": "a", **find})
    winning = explained["queryPlanner"]["winningPlan"]
    stages = [winning["stage"]]
    while "inputStage" in winning:
        winning = winning["inputStage"]
        stages.append(winning["stage"])
    return {
        "stages": stages,
        "index": winning.get("indexName"),
        "met": explained["executionStats"]["totalDocsExamined"],
    }


@pytest.fixture
def many(data: Data) -> Data:
    data.a.insert_many([{"_id": n, "s": f"s{n % 10}", "at": n, "tags": [f"t{n % 7}", "all"]} for n in range(1000)])
    return data


def test_a_filter_on_the_first_fields_of_an_index_meets_only_what_matches(many: Data) -> None:
    many.a.create_index([("s", ASCENDING), ("at", DESCENDING)], name="by_source")
    assert plan(many, filter={"s": "s3"}) == {"stages": ["FETCH", "IXSCAN"], "index": "by_source", "met": 100}
    found = plan(many, filter={"s": {"$in": ["s3", "s4"]}, "at": {"$gte": 900, "$lt": 950}})
    assert (found["index"], found["met"]) == ("by_source", 10)
    assert plan(many, filter={"at": 7})["stages"] == ["COLLSCAN"]
    assert plan(many, filter={"_id": {"$in": [1, 2, 5000]}}) == {
        "stages": ["FETCH", "IXSCAN"],
        "index": "_id_",
        "met": 2,
    }
    either = plan(many, filter={"$or": [{"s": "s1", "at": {"$lt": 50}}, {"_id": 7}]})
    assert either["met"] == 6


def test_an_index_in_the_order_asked_for_saves_the_sort(many: Data) -> None:
    many.a.create_index([("s", 1), ("at", 1)], name="by_source")
    found = plan(many, filter={"s": "s3"}, sort={"at": -1}, limit=5)
    assert found["stages"] == ["FETCH", "IXSCAN"]
    assert [each["at"] for each in many.a.find({"s": "s3"}, sort=[("at", -1)], limit=3)] == [993, 983, 973]
    assert plan(many, filter={"s": {"$in": ["s3", "s4"]}}, sort={"at": 1})["stages"] == ["SORT", "FETCH", "IXSCAN"]


def test_an_array_is_found_by_each_of_its_elements_once(many: Data) -> None:
    many.a.create_index("tags")
    assert plan(many, filter={"tags": "t3"})["met"] == 143
    assert many.a.count_documents({"tags": {"$in": ["t3", "all"]}}) == 1000
    many.a.update_many({"tags": "t3"}, {"$pull": {"tags": "t3"}})
    assert many.a.count_documents({"tags": "t3"}) == 0
    many.a.create_index([("tags", 1), ("s", 1), ("more", 1)])
    with pytest.raises(OperationFailure) as refused:
        many.a.insert_one({"tags": [1], "more": [1]})
    assert refused.value.code == 171


def test_a_unique_index_holds_for_changes_and_for_what_is_there_when_it_is_made(data: Data) -> None:
    data.a.insert_many([{"_id": 1, "k": 1}, {"_id": 2, "k": 1}])
    with pytest.raises(DuplicateKeyError):
        data.a.create_index("k", unique=True)
    data.a.delete_one({"_id": 2})
    data.a.create_index("k", unique=True)
    data.a.insert_one({"_id": 2, "k": 2})
    with pytest.raises(DuplicateKeyError):
        data.a.update_one({"_id": 2}, {"$set": {"k": 1}})
    data.a.update_one({"_id": 1}, {"$set": {"k": 3}})
    data.a.update_one({"_id": 2}, {"$set": {"k": 1}})
    data.a.insert_one({"_id": 3})
    with pytest.raises(DuplicateKeyError):  # a missing field is null, and null is a key
        data.a.insert_one({"_id": 4})


def test_a_partial_unique_index_is_about_the_documents_of_its_filter_only(data: Data) -> None:
    where = {"status": {"$in": ["active", "building"]}}
    data.a.create_index("status", unique=True, partialFilterExpression=where)
    data.a.insert_many([{"_id": 1, "status": "active"}, {"_id": 2, "status": "old"}, {"_id": 3, "status": "old"}])
    with pytest.raises(DuplicateKeyError):
        data.a.update_one({"_id": 2}, {"$set": {"status": "active"}})
    data.a.update_one({"_id": 1}, {"$set": {"status": "old"}})
    data.a.update_one({"_id": 2}, {"$set": {"status": "active"}})


def test_a_partial_index_is_used_only_where_it_holds_all_that_is_asked_for(many: Data) -> None:
    many.a.create_index([("at", 1)], name="late", partialFilterExpression={"at": {"$gt": 500}})
    many.a.create_index([("s", 1)], name="text", partialFilterExpression={"s": {"$type": "string"}})
    assert plan(many, filter={"at": 600})["index"] == "late"
    assert plan(many, filter={"at": {"$gte": 501}})["index"] == "late"
    assert plan(many, filter={"at": {"$gte": 500}})["index"] is None
    assert plan(many, filter={"at": {"$in": [600, 400]}})["index"] is None
    assert plan(many, filter={"s": "s1"})["index"] == "text"
    assert plan(many, filter={"s": {"$in": ["s1", None]}})["index"] is None


def test_with_indexes_the_same_is_found_as_without(data: Data) -> None:
    chosen = random.Random(7)
    values = [None, 1, 2.5, "a", "b", True, [1, "a"], [], {"x": 1}]
    documents = [
        {"_id": n, **{name: chosen.choice(values) for name in "pqr" if chosen.random() < 0.8}} for n in range(300)
    ]
    documents = [d for d in documents if sum(isinstance(value, list) for value in d.values()) < 2]
    data.a.insert_many(documents)
    data.b.insert_many(documents)
    for keys in ([("p", 1), ("q", -1)], [("q", 1)], [("r", 1), ("p", 1)]):
        data.a.create_index(keys)
    for _ in range(400):
        where = {name: _condition(chosen, values) for name in chosen.sample("pqr", chosen.randint(1, 3))}
        order = [(chosen.choice("pq"), chosen.choice([1, -1])), ("_id", 1)]
        limit = chosen.choice([0, 5])
        assert list(data.a.find(where, sort=order, limit=limit)) == list(data.b.find(where, sort=order, limit=limit))
        change = {"$set": {chosen.choice("pqr"): chosen.choice([1, "a", "b", None])}}
        key = chosen.randrange(300)
        data.a.update_one({"_id": key}, change)
        data.b.update_one({"_id": key}, change)


def _condition(chosen: random.Random, values: list[object]) -> object:
    value = chosen.choice(values)
    scalar = chosen.choice([1, 2.5, "a", "b"])
    return chosen.choice([value, {"$in": chosen.sample(values, 3)}, {"$gt": scalar}, {"$gte": scalar, "$lt": "b"},
                          {"$lte": scalar}, {"$ne": value}, {"$exists": True}, {"$gt": 0, "$lt": 2}])  # fmt: skip


def test_indexes_are_made_once_listed_and_removed(data: Data) -> None:
    assert data.a.create_index([("p", 1), ("q", -1)]) == "p_1_q_-1"
    data.a.create_index([("p", 1), ("q", -1)])
    assert data.a.index_information()["p_1_q_-1"]["key"] == [("p", 1), ("q", -1)]
    with pytest.raises(OperationFailure) as refused:
        data.a.create_index([("p", 1), ("q", -1)], unique=True)
    assert refused.value.code == 86
    with pytest.raises(OperationFailure) as refused:
        data.a.create_index([("p", 1), ("q", -1)], name="other")
    assert refused.value.code == 85
    with pytest.raises(OperationFailure):
        data.a.create_index("p", partialFilterExpression={"p": {"$ne": 1}})
    data.a.drop_index("p_1_q_-1")
    with pytest.raises(OperationFailure) as refused:
        data.a.drop_index("p_1_q_-1")
    assert refused.value.code == 27
    assert list(data.a.index_information()) == ["_id_"]

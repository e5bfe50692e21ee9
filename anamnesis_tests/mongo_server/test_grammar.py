"""Both directions: what the documentation shows passes, and what is near to it but wrong is refused with its page.

The examples are those of the pages that `grammar_*.py` names, in other words and shorter.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from bson import Regex

from anamnesis_tests.mongo_server.grammar import check_command

VECTOR = [0.1, 0.2, 0.3]
NEAREST = {"index": "i", "path": "v", "queryVector": VECTOR, "numCandidates": 100, "limit": 10}
DYNAMIC = {"definition": {"mappings": {"dynamic": True}}}
TEXT = {"text": {"query": "word", "path": "title"}}


def aggregate(*stages: Mapping[str, Any], **options: Any) -> list[str]:
    in_transaction = options.pop("in_transaction", False)
    body = {"aggregate": "c", "pipeline": list(stages), "cursor": {}, "$db": "db", **options}
    return check_command("aggregate", body, in_transaction)


def find(where: Mapping[str, Any], **options: Any) -> list[str]:
    return check_command("find", {"find": "c", "filter": where, "$db": "db", **options})


def update(change: Any, **options: Any) -> list[str]:
    statement = {"q": {"_id": 1}, "u": change, **options}
    return check_command("update", {"update": "c", "updates": [statement], "$db": "db"})


def index(**options: Any) -> list[str]:
    model = {"key": {"a": 1}, "name": "a_1", **options}
    return check_command("createIndexes", {"createIndexes": "c", "indexes": [model], "$db": "db"})


DOCUMENTED_STAGES = [
    {"$match": {"status": "A", "n": {"$gte": 1, "$lt": 5}}},
    {"$match": {"$or": [{"a": {"$in": [1, 2]}}, {"b": {"$not": {"$exists": True}}}], "c": {"$type": "string"}}},
    {"$match": {"$expr": {"$gt": ["$spent", "$budget"]}, "name": Regex("^a")}},
    {"$match": {"results": {"$elemMatch": {"$gte": 80, "$lt": 85}}, "items": {"$elemMatch": {"n": {"$gt": 1}}}}},
    {"$group": {"_id": None, "count": {"$sum": 1}, "all": {"$push": "$$ROOT"}}},
    {"$group": {"_id": {"day": "$day"}, "n": {"$count": {}}, "top": {"$topN": {"n": 2, "sortBy": {"a": -1},
     "output": ["$a"]}}}},
    {"$project": {"_id": 0, "title": 1, "author.last": 1}},
    {"$project": {"lastModified": 0, "author": {"first": 0}}},
    {"$project": {"middle": {"$cond": {"if": {"$eq": ["", "$m"]}, "then": "$$REMOVE", "else": "$m"}}}},
    {"$set": {"total": {"$sum": "$homework"}, "a.b": {"$ifNull": ["$x", 0]}}},
    {"$addFields": {"big": {"$filter": {"input": "$items", "as": "item", "cond": {"$gte": ["$$item.price", 9]}}}}},
    {"$set": {"sum": {"$reduce": {"input": "$a", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}}},
    {"$set": {"n": {"$let": {"vars": {"low": 1}, "in": {"$lt": ["$$low", 2]}}}}},
    {"$set": {"n": {"$switch": {"branches": [{"case": {"$eq": ["$a", 1]}, "then": 2}], "default": 3}}}},
    {"$unwind": {"path": "$sizes", "preserveNullAndEmptyArrays": True}},
    {"$sort": {"a": 1, "b": -1}},
    {"$skip": 0},
    {"$limit": 5},
    {"$count": "passing"},
    {"$unset": ["a", "b.c"]},
    {"$replaceWith": {"$mergeObjects": [{"_id": "$_id"}, "$$ROOT"]}},
    {"$lookup": {"from": "other", "localField": "a", "foreignField": "b", "as": "found"}},
    {"$lookup": {"from": "o", "let": {"n": "$n"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$n"]}}}],
     "as": "found"}},
    {"$lookup": {"from": "other", "pipeline": [{"$search": TEXT}], "as": "found"}},
    {"$unionWith": "other"},
    {"$unionWith": {"coll": "other", "pipeline": [{"$search": TEXT}, {"$limit": 1}]}},
    {"$unionWith": {"coll": "other", "pipeline": [{"$vectorSearch": NEAREST}]}},
    {"$facet": {"one": [{"$unwind": "$tags"}, {"$sortByCount": "$tags"}], "two": [{"$limit": 1}]}},
    {"$listSearchIndexes": {}},
    {"$listSearchIndexes": {"name": "i"}},
    {"$rankFusion": {"input": {"pipelines": {"near": [{"$vectorSearch": NEAREST}],
     "words": [{"$search": TEXT}, {"$limit": 20}]}}, "combination": {"weights": {"near": 0.7}}}},
]  # fmt: skip


@pytest.mark.parametrize("stage", DOCUMENTED_STAGES, ids=lambda stage: next(iter(stage)))
def test_a_stage_as_the_documentation_shows_it_passes(stage: Mapping[str, Any]) -> None:
    assert aggregate(stage) == []


WRONG_STAGES = [
    ({"$matches": {}}, "no stage"),
    ({"$match": {"a": 1}, "$limit": 1}, "exactly one"),
    ({"$match": {"a": {"$gte": 1, "b": 2}}}, "mix operators"),
    ({"$match": {"a": {"$between": [1, 2]}}}, "$between"),
    ({"$match": {"$exists": True}}, "at its top"),
    ({"$match": {"$or": []}}, "query/or"),
    ({"$match": {"a": {"$in": 1}}}, "query/in"),
    ({"$match": {"a": {"$in": [{"$gt": 1}]}}}, "operators among"),
    ({"$match": {"a": {"$not": 5}}}, "query/not"),
    ({"$match": {"a": {"$type": "text"}}}, "query/type"),
    ({"$match": {"$expr": {"$gt": ["$a"]}}}, "takes 2"),
    ({"$match": {"$expr": {"$regexp": ["$a", "b"]}}}, "no operator"),
    ({"$group": {"n": {"$sum": 1}}}, "_id"),
    ({"$group": {"_id": None, "n": 1}}, "accumulator"),
    ({"$group": {"_id": None, "n": {"$sum": 1, "$max": 2}}}, "accumulator"),
    ({"$group": {"_id": None, "n.m": {"$sum": 1}}}, "dot"),
    ({"$group": {"_id": None, "n": {"$sum": ["$a", "$b"]}}}, "one expression"),
    ({"$group": {"_id": None, "n": {"$concat": ["a"]}}}, "accumulator"),
    ({"$project": {}}, "not empty"),
    ({"$project": {"a": 1, "b": 0}}, "leave out"),
    ({"$project": {"a": 0, "b": "$c"}}, "leave out"),
    ({"$project": {"a": 1, "a.b": 1}}, "collides"),
    ({"$project": {"a": {"$cond": [1, 2]}}}, "three"),
    ({"$project": {"a": {"$meta": "vectorScore"}}}, "meta"),
    ({"$project": {"a": {"$meta": "searchScore"}}}, "only after"),
    ({"$project": {"a": {"$meta": "vectorSearchScore"}}}, "only after"),
    ({"$set": {"a": "$$undefined"}}, "not defined"),
    ({"$set": {"a": {"$map": {"input": "$b", "as": "x", "in": "$$y"}}}}, "not defined"),
    ({"$set": {"a": {"$dateAdd": {"startDate": "$d", "unit": "day"}}}}, "amount"),
    ({"$set": {"a": {"$add": [1], "$max": [1]}}}, "exactly one operator"),
    ({"$set": {"$a": 1}}, "no name"),
    ({"$set": {"a": "$b..c"}}, "no path"),
    ({"$unwind": "sizes"}, "dollar"),
    ({"$sort": {"a": "asc"}}, "1, -1"),
    ({"$sort": {}}, "at least one"),
    ({"$limit": 0}, "within"),
    ({"$skip": -1}, "within"),
    ({"$count": "$n"}, "name"),
    ({"$lookup": {"from": "o", "localField": "a", "as": "b"}}, "both"),
    ({"$lookup": {"from": "o", "pipeline": [], "as": "b", "on": 1}}, "'on'"),
    ({"$lookup": {"from": "o", "pipeline": [{"$vectorSearch": NEAREST}], "as": "b"}}, "$lookup"),
    ({"$lookup": {"from": "o", "pipeline": [{"$limit": 1}, {"$search": TEXT}], "as": "b"}}, "first stage"),
    ({"$lookup": {"from": "o", "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$n"]}}}], "as": "b"}}, "$$n"),
    ({"$unionWith": {"coll": "o", "pipeline": [{"$out": "p"}]}}, "$unionWith"),
    ({"$unionWith": {"collection": "o"}}, "'collection'"),
    ({"$facet": {"one": [{"$search": TEXT}]}}, "$facet"),
    ({"$facet": {"one": [{"$vectorSearch": NEAREST}]}}, "$facet"),
    ({"$facet": {"one": [{"$facet": {}}]}}, "$facet"),
    ({"$listSearchIndexes": {"id": "1", "name": "i"}}, "both"),
    ({"$rankFusion": {"input": {"pipelines": {"a": [{"$match": {"x": 1}}]}}}}, "begin with"),
    ({"$rankFusion": {"input": {"pipelines": {"a": [{"$search": TEXT}, {"$set": {"b": 1}}]}}}}, "input pipeline"),
    ({"$rankFusion": {"input": {"pipelines": {"a.b": [{"$search": TEXT}]}}}}, "name"),
    ({"$rankFusion": {"input": {"pipelines": {"a": [{"$search": TEXT}]}},
                      "combination": {"weights": {"b": 1}}}}, "weights.b"),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "told"), WRONG_STAGES)
def test_a_stage_that_is_near_to_a_right_one_is_refused(stage: Mapping[str, Any], told: str) -> None:
    problems = aggregate(stage)
    assert problems
    assert any(told in problem for problem in problems), problems
    assert all("https://" in problem for problem in problems)


def test_a_stage_that_reads_the_index_comes_first() -> None:
    for stage in ({"$search": TEXT}, {"$vectorSearch": NEAREST}, {"$searchMeta": TEXT}):
        assert aggregate(stage, {"$limit": 1}) == []
        [problem] = aggregate({"$match": {}}, stage)
        assert "first stage" in problem


def test_a_score_is_there_after_the_stage_that_gives_it_and_no_other() -> None:
    score = {"$project": {"score": {"$meta": "searchScore"}}}
    assert aggregate({"$search": TEXT}, score) == []
    assert aggregate({"$search": TEXT}, {"$limit": 3}, score) == []
    assert "only after $search" in aggregate({"$vectorSearch": NEAREST}, score)[0]
    fused = {"$rankFusion": {"input": {"pipelines": {"a": [{"$search": TEXT}]}}}}
    assert aggregate(fused, {"$set": {"score": {"$meta": "score"}}}) == []
    assert aggregate({"$vectorSearch": NEAREST}, {"$project": {"v": 0, "s": {"$meta": "vectorSearchScore"}}}) == []


def test_what_writes_comes_last() -> None:
    assert "last stage" in aggregate({"$out": "o"}, {"$limit": 1})[0]


@pytest.mark.parametrize(
    "stage", [{"$search": TEXT}, {"$vectorSearch": NEAREST}, {"$unionWith": "o"}, {"$out": "o"}], ids=str
)
def test_some_stages_must_not_stand_in_a_transaction(stage: Mapping[str, Any]) -> None:
    assert aggregate(stage) == []
    assert any("transaction" in problem for problem in aggregate(stage, in_transaction=True))


@pytest.mark.parametrize("level", ["majority", "snapshot"])
def test_a_search_runs_with_read_concern_local_alone(level: str) -> None:
    assert aggregate({"$search": TEXT}, readConcern={"level": "local"}) == []
    assert "read concern local" in aggregate({"$search": TEXT}, readConcern={"level": level})[0]
    assert "read concern local" in aggregate({"$vectorSearch": NEAREST}, readConcern={"level": level})[0]
    assert aggregate({"$match": {}}, readConcern={"level": level}) == []


@pytest.mark.parametrize(
    "where",
    [
        {"rating": {"$gt": 5}},
        {"status": "active"},
        {"status": {"$in": ["a", "b"]}},
        {"a": {"$exists": True}, "b": {"$type": "string"}},
        {"$and": [{"a": {"$gte": 1}}, {"a": {"$lte": 2}}]},
        {"$or": [{"a": 1}, {"b": {"$lt": 3}}]},
    ],
)
def test_what_may_stand_in_the_filter_of_a_partial_index_passes(where: Mapping[str, Any]) -> None:
    assert index(partialFilterExpression=where) == []


@pytest.mark.parametrize(
    "where",
    [
        {"a": {"$ne": ""}},
        {"a": {"$nin": ["x"]}},
        {"a": {"$not": {"$gt": 1}}},
        {"a": {"$exists": False}},
        {"a": Regex("^b")},
        {"a": {"$regex": "^b"}},
        {"$nor": [{"a": 1}]},
        {"$expr": {"$gt": ["$a", "$b"]}},
        {"$and": [{"a": {"$ne": 1}}]},
    ],
    ids=str,
)
def test_what_must_not_stand_in_the_filter_of_a_partial_index_is_refused(where: Mapping[str, Any]) -> None:
    problems = index(partialFilterExpression=where)
    assert all("index-partial" in problem for problem in problems)
    assert problems


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sparse": True, "partialFilterExpression": {"a": 1}}, "both"),
        ({"key": {}}, "at least one"),
        ({"key": {"a": 2}}, "one of"),
        ({"key": {"$a": 1}}, "no path"),
        ({"key": {"_id": 1}, "unique": True}, "_id"),
        ({"uniqe": True}, "'uniqe'"),
        ({"expireAfterSeconds": -1}, "expireAfterSeconds"),
    ],
)
def test_options_of_an_index_that_are_wrong_are_refused(options: Mapping[str, Any], told: str) -> None:
    assert any(told in problem for problem in index(**options))


@pytest.mark.parametrize(
    "change",
    [
        {"$set": {"a.b": 1}, "$inc": {"n": 2}, "$setOnInsert": {"_id": 1}},
        {"$addToSet": {"tags": {"$each": ["a", "b"]}}},
        {"$push": {"scores": {"$each": [1], "$slice": -3}}},
        {"$pull": {"votes": {"$gte": 6}, "results": {"item": "B"}}},
        {"$unset": {"a": ""}, "$rename": {"b": "c"}, "$currentDate": {"d": {"$type": "date"}}},
        {"$max": {"a": 1}, "$min": {"b": 1}, "$mul": {"c": 2}},
        {"name": "replaced"},
        [{"$set": {"a": {"$cond": [{"$eq": ["$b", 1]}, 2, "$a"]}}}, {"$unset": ["b"]}],
    ],
    ids=str,
)
def test_an_update_as_the_documentation_shows_it_passes(change: Any) -> None:
    assert update(change) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"$set": {"a": 1}, "b": 2}, "mix"),
        ({"$add": {"a": 1}}, "no operator"),
        ({"$set": "a"}, "document"),
        ({"$inc": {"a": "1"}}, "number"),
        ({"$inc": {"_id": 1}}, "_id"),
        ({"$set": {"a": 1}, "$inc": {"a": 1}}, "conflicts"),
        ({"$set": {"a": 1, "a.b": 2}}, "conflicts"),
        ({"$set": {"a..b": 1}}, "no path"),
        ({"$pop": {"a": 2}}, "one of"),
        ({"$addToSet": {"a": {"$each": 1}}}, "array"),
        ({"$push": {"a": {"$slice": 3}}}, "$each"),
        ([], "empty pipeline"),
        ([{"$match": {"a": 1}}], "an update"),
        ([{"$set": {"a": {"$inc": 1}}}], "no operator"),
        ([{"$setOnInsert": {"a": 1}}], "no stage"),
    ],
    ids=str,
)
def test_an_update_that_is_near_to_a_right_one_is_refused(change: Any, told: str) -> None:
    problems = update(change)
    assert any(told in problem for problem in problems), problems
    assert all("https://" in problem for problem in problems)


def test_an_update_of_many_takes_no_replacement_and_no_order() -> None:
    assert "multi" in update({"a": 1}, multi=True)[0]
    assert "multi" in update({"$set": {"a": 1}}, multi=True, sort={"a": 1})[0]
    assert "arrayFilters" in update([{"$set": {"a": 1}}], arrayFilters=[{"x": 1}])[0]


def test_commands_have_their_options_and_no_others() -> None:
    assert find({"a": 1}, sort={"a": -1}, projection={"a": 1, "_id": 0}, limit=5, batchSize=100) == []
    assert "'order'" in find({}, order={"a": 1})[0]
    assert "leave out" in find({}, projection={"a": 1, "b": 0})[0]
    assert "limit" in find({}, limit=-1)[0]
    assert check_command("count", {"count": "c", "query": {}, "$db": "db"}) == []
    assert "no command" in check_command("eval", {"eval": "1", "$db": "db"})[0]
    both = {"findAndModify": "c", "remove": True, "update": {"$set": {"a": 1}}, "$db": "db"}
    assert "exactly one" in check_command("findAndModify", both)[0]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("count", {"count": "c"}),
        ("drop", {"drop": "c"}),
        ("dropDatabase", {"dropDatabase": 1}),
        ("listIndexes", {"listIndexes": "c"}),
        ("listCollections", {"listCollections": 1}),
        ("collMod", {"collMod": "c"}),
        (
            "createSearchIndexes",
            {"createSearchIndexes": "c", "indexes": [{"definition": {"mappings": {"dynamic": True}}}]},
        ),
    ],
)
def test_commands_that_do_not_go_into_transactions_are_refused_there(name: str, body: Mapping[str, Any]) -> None:
    assert check_command(name, {**body, "$db": "db"}) == []
    assert any("transactions" in problem for problem in check_command(name, {**body, "$db": "db"}, True))


def test_a_transaction_has_its_concerns_at_its_two_ends_alone() -> None:
    body = {"find": "c", "filter": {}, "$db": "db", "readConcern": {"level": "snapshot"}}
    assert check_command("find", body, True, starts_transaction=True) == []
    assert "first command" in check_command("find", body, True)[0]
    write = {"insert": "c", "documents": [{"a": 1}], "$db": "db", "writeConcern": {"w": "majority"}}
    assert check_command("insert", write) == []
    assert "write concern" in check_command("insert", write, True)[0]
    commit = {"commitTransaction": 1, "$db": "admin", "writeConcern": {"w": "majority"}}
    assert check_command("commitTransaction", commit, True) == []


def test_read_concern_snapshot_is_for_reads_alone() -> None:
    snapshot = {"level": "snapshot"}
    assert find({}, readConcern=snapshot) == []
    count = {"count": "c", "query": {}, "$db": "db", "readConcern": snapshot}
    assert "snapshot" in check_command("count", count)[0]
    made = {"create": "c", "$db": "db", "readConcern": snapshot}
    assert any("local" in each for each in check_command("create", made, True, starts_transaction=True))


@pytest.mark.parametrize("name", ["", "a$b", "system.users", "a.system.b", "x" * 250, 5])
def test_a_collection_needs_a_name_that_may_be_one(name: Any) -> None:
    body = {"insert": name, "documents": [{"a": 1}], "$db": "database"}
    assert check_command("insert", body)


@pytest.mark.parametrize("name", ["a b", "a.b", "a/b", "x" * 64])
def test_a_database_needs_a_name_that_may_be_one(name: str) -> None:
    assert any("limits" in each for each in check_command("find", {"find": "c", "filter": {}, "$db": name}))


def nested(levels: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def test_a_document_is_at_most_a_hundred_levels_deep_and_16_megabytes_large() -> None:
    def insert(document: Mapping[str, Any], **options: Any) -> list[str]:
        return check_command("insert", {"insert": "c", "documents": [document], "$db": "db"}, **options)

    assert insert(nested(100)) == []
    assert "levels" in insert(nested(101))[0]
    large = {"text": "x" * (16 * 1024 * 1024)}
    assert "16 MB" in insert(large)[0]
    assert insert({"text": "x" * 1000}, message_bytes=20_000_000) == []


def test_an_id_is_neither_an_array_nor_a_regular_expression() -> None:
    body = {"insert": "c", "documents": [{"_id": [1]}], "$db": "db"}
    assert "_id" in check_command("insert", body)[0]

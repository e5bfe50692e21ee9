from typing import Any

import pytest
from bson import Int64
from pymongo.errors import OperationFailure

from anamnesis_tests.mongo_server.conftest import Data
from anamnesis_tests.mongo_server.expressions import compile_expression
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.values import MISSING

DOCUMENT = {"n": 3, "f": 2.5, "t": "Text", "nil": None, "flag": True, "l": [1, 2, 2], "d": {"x": 1},
            "m": [{"k": "a", "v": 1}, {"k": "b"}], "big": Int64(7), "literal": "$n"}  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$n", 3),
        ("$d.x", 1),
        ("$m.v", [1]),
        ("$nothing", MISSING),
        ("$$ROOT.d", {"x": 1}),
        ({"$literal": "$n"}, "$n"),
        ({"a": "$n", "b": "$nothing"}, {"a": 3}),
        (["$n", "$nothing"], [3, None]),
        ({"$add": ["$n", "$f", 1]}, 6.5),
        ({"$add": ["$n", "$nil"]}, None),
        ({"$subtract": ["$n", 5]}, -2),
        ({"$divide": [7, 2]}, 3.5),
        ({"$mod": [-7, 3]}, -1),
        ({"$round": ["$f"]}, 2.0),
        ({"$eq": ["$n", 3.0]}, True),
        ({"$eq": ["$flag", 1]}, False),
        ({"$eq": ["$nothing", None]}, False),
        ({"$lt": ["$nothing", "$nil"]}, True),
        ({"$lt": ["$n", "$t"]}, True),
        ({"$gt": ["$l", "$d"]}, True),
        ({"$and": ["$n", "$nil"]}, False),
        ({"$or": [0, "$t"]}, True),
        ({"$not": ["$nothing"]}, True),
        ({"$cond": [{"$gt": ["$n", 2]}, "big", "small"]}, "big"),
        ({"$cond": {"if": "$nil", "then": 1, "else": "$$REMOVE"}}, MISSING),
        ({"$ifNull": ["$nil", "$nothing", 4]}, 4),
        ({"$switch": {"branches": [{"case": False, "then": 1}], "default": 2}}, 2),
        ({"$let": {"vars": {"x": {"$add": ["$n", 1]}}, "in": {"$multiply": ["$$x", 2]}}}, 8),
        ({"$map": {"input": "$l", "as": "e", "in": {"$add": ["$$e", "$n"]}}}, [4, 5, 5]),
        ({"$filter": {"input": "$l", "cond": {"$gt": ["$$this", 1]}}}, [2, 2]),
        ({"$reduce": {"input": "$l", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}, 5),
        ({"$in": [2.0, "$l"]}, True),
        ({"$size": "$l"}, 3),
        ({"$setUnion": ["$l", [3]]}, [1, 2, 3]),
        ({"$setDifference": [[4, 1, 4], "$l"]}, [4]),
        ({"$setIntersection": ["$l", [2, 9]]}, [2]),
        ({"$setIsSubset": [[1], "$l"]}, True),
        ({"$concatArrays": ["$l", ["x"]]}, [1, 2, 2, "x"]),
        ({"$arrayElemAt": ["$l", -1]}, 2),
        ({"$first": "$l"}, 1),
        ({"$slice": ["$l", 1, 5]}, [2, 2]),
        ({"$sum": "$l"}, 5),
        ({"$sum": ["$n", "$f", "$t"]}, 5.5),
        ({"$avg": "$l"}, 5 / 3),
        ({"$max": ["$n", "$nil", "$f"]}, 3),
        ({"$min": "$l"}, 1),
        ({"$mergeObjects": ["$d", {"y": 2}, "$nil"]}, {"x": 1, "y": 2}),
        ({"$objectToArray": "$d"}, [{"k": "x", "v": 1}]),
        ({"$arrayToObject": [[["a", 1]]]}, {"a": 1}),
        ({"$sortArray": {"input": [3, 1], "sortBy": 1}}, [1, 3]),
        ({"$concat": ["$t", "!"]}, "Text!"),
        ({"$concat": ["$t", "$nil"]}, None),
        ({"$toLower": "$t"}, "text"),
        ({"$substrCP": ["$t", 1, 2]}, "ex"),
        ({"$strLenCP": "$t"}, 4),
        ({"$split": ["$t", "e"]}, ["T", "xt"]),
        ({"$regexMatch": {"input": "$t", "regex": "^te", "options": "i"}}, True),
        ({"$toString": "$f"}, "2.5"),
        ({"$toInt": "12"}, 12),
        ({"$convert": {"input": "x", "to": "int", "onError": -1}}, -1),
        ({"$type": "$nothing"}, "missing"),
        ({"$type": "$big"}, "long"),
        ({"$isArray": "$l"}, True),
        ({"$getField": {"field": "x", "input": "$d"}}, 1),
        ({"$allElementsTrue": [[1, True]]}, True),
        ({"$range": [0, 5, 2]}, [0, 2, 4]),
    ],
)
def test_an_expression_has_mongodbs_value(expression: Any, expected: Any) -> None:
    found = compile_expression(expression)(DOCUMENT, {})
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("expression", "code"),
    [({"$plus": [1]}, 168), ({"$eq": [1]}, 16020), ({"$add": [1], "$sum": 1}, 15983), ("$$nobody", 17276),
     ({"$add": ["$t", 1]}, 16554), ({"$size": "$n"}, 17124), ({"$cond": {"if": 1, "then": 1}}, 9)],
)  # fmt: skip
def test_a_wrong_expression_is_refused(expression: Any, code: int) -> None:
    with pytest.raises(Refusal) as refused:
        compile_expression(expression)(DOCUMENT, {})
    assert refused.value.code == code


@pytest.fixture
def sales(data: Data) -> Data:
    data.a.insert_many([{"_id": n, "k": "xyz"[n % 3], "n": n, "t": [n, n + 1]} for n in range(6)])
    data.b.insert_many([{"_id": "x", "name": "Ex"}, {"_id": "y", "name": "Why"}])
    return data


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([{"$match": {"n": {"$lt": 2}}}, {"$project": {"_id": 0, "n": 1}}], [{"n": 0}, {"n": 1}]),
        ([{"$sort": {"n": -1}}, {"$skip": 1}, {"$limit": 1}, {"$unset": ["t", "k"]}], [{"_id": 4, "n": 4}]),
        ([{"$group": {"_id": "$k", "sum": {"$sum": "$n"}, "first": {"$first": "$n"}}}, {"$sort": {"_id": 1}}],
         [{"_id": "x", "sum": 3, "first": 0}, {"_id": "y", "sum": 5, "first": 1}, {"_id": "z", "sum": 7, "first": 2}]),
        ([{"$group": {"_id": None, "n": {"$count": {}}, "max": {"$max": "$n"}, "all": {"$push": "$k"}}}],
         [{"_id": None, "n": 6, "max": 5, "all": ["x", "y", "z", "x", "y", "z"]}]),
        ([{"$group": {"_id": {"k": "$k"}, "top": {"$top": {"sortBy": {"n": -1}, "output": "$n"}}}},
          {"$match": {"_id.k": "z"}}], [{"_id": {"k": "z"}, "top": 5}]),
        ([{"$match": {"n": {"$gt": 9}}}, {"$group": {"_id": None, "n": {"$sum": 1}}}], []),
        ([{"$match": {"n": {"$gt": 3}}}, {"$count": "many"}], [{"many": 2}]),
        ([{"$unwind": "$t"}, {"$match": {"t": 3}}, {"$project": {"n": 1, "_id": 0}}], [{"n": 2}, {"n": 3}]),
        ([{"$sortByCount": {"$gt": ["$n", 3]}}], [{"_id": False, "count": 4}, {"_id": True, "count": 2}]),
        ([{"$match": {"_id": {"$lt": 3}}},
          {"$lookup": {"from": "b", "localField": "k", "foreignField": "_id", "as": "b"}},
          {"$project": {"b.name": 1}}],
         [{"_id": 0, "b": [{"name": "Ex"}]}, {"_id": 1, "b": [{"name": "Why"}]}, {"_id": 2, "b": []}]),
        ([{"$match": {"_id": 0}},
          {"$lookup": {"from": "b", "let": {"k": "$k"}, "as": "b",
                       "pipeline": [{"$match": {"$expr": {"$ne": ["$_id", "$$k"]}}}]}},
          {"$replaceWith": {"$first": "$b"}}], [{"_id": "y", "name": "Why"}]),
        ([{"$match": {"_id": 9}}, {"$unionWith": {"coll": "b", "pipeline": [{"$match": {"_id": "x"}}]}}],
         [{"_id": "x", "name": "Ex"}]),
        ([{"$facet": {"n": [{"$count": "n"}], "first": [{"$sort": {"n": 1}}, {"$limit": 1}, {"$project": {"n": 1}}]}}],
         [{"n": [{"n": 6}], "first": [{"_id": 0, "n": 0}]}]),
        ([{"$match": {"_id": 1}}, {"$set": {"d": {"x": "$n"}, "t": "$$REMOVE"}}],
         [{"_id": 1, "k": "y", "n": 1, "d": {"x": 1}}]),
        ([{"$collStats": {"count": {}}}], [{"ns": "data.a", "count": 6}]),
    ],
)  # fmt: skip
def test_a_pipeline_yields_what_its_stages_make(sales: Data, stages: Any, expected: Any) -> None:
    assert list(sales.a.aggregate(stages)) == expected


def test_a_pipeline_without_a_collection_begins_with_its_documents(sales: Data) -> None:
    stages = [
        {"$documents": [{"k": "x"}]},
        {"$lookup": {"from": "b", "localField": "k", "foreignField": "_id", "as": "b"}},
    ]
    assert list(sales.aggregate(stages)) == [{"k": "x", "b": [{"_id": "x", "name": "Ex"}]}]


@pytest.mark.parametrize("stage", [{"$sift": {}}, {"$match": 1}, {"$limit": 0}, {"$group": {"n": 1}},
                                   {"$limit": 1, "$skip": 1}, {"$out": "b"}, {"$unwind": "t"},
                                   {"$lookup": {"from": "b", "as": "b", "on": "k"}}])  # fmt: skip
def test_a_stage_that_is_wrong_or_beyond_this_server_is_refused(sales: Data, stage: Any) -> None:
    with pytest.raises(OperationFailure):
        list(sales.a.aggregate([stage]))

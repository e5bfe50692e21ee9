"""Of `$search`, `$vectorSearch` and the definitions of their indexes: see `test_grammar.py`."""

from collections.abc import Mapping
from typing import Any

import pytest
from bson import ObjectId
from bson.binary import Binary, BinaryVectorDtype

from anamnesis_pipeline.store.mongo.facets import FACETS
from anamnesis_pipeline.store.mongo.search_definitions import text_definition, vector_definition
from anamnesis_tests.mongo_server.grammar import check_command

NEAREST = {"index": "i", "path": "v", "queryVector": [0.1, 0.2, 0.3], "numCandidates": 100, "limit": 10}
TEXT = {"text": {"query": "word", "path": "title"}}


def aggregate(stage: Mapping[str, Any]) -> list[str]:
    return check_command("aggregate", {"aggregate": "c", "pipeline": [stage], "cursor": {}, "$db": "db"})


def search_index(definition: Any, kind: str = "search") -> list[str]:
    model = {"name": "i", "type": kind, "definition": definition}
    return check_command("createSearchIndexes", {"createSearchIndexes": "c", "indexes": [model], "$db": "db"})


def vectors(*fields: Mapping[str, Any], **vector: Any) -> dict[str, Any]:
    first = {"type": "vector", "path": "v", "numDimensions": 8, "similarity": "cosine", **vector}
    return {"fields": [first, *fields]}


def mapped(field: Any, **further: Any) -> dict[str, Any]:
    return {"mappings": {"dynamic": False, "fields": {"f": field}}, **further}


def analyzed(tokenizer: Any, *filters: Any) -> dict[str, Any]:
    custom = {"name": "own", "tokenizer": tokenizer, "tokenFilters": list(filters)}
    return mapped({"type": "string", "analyzer": "own"}, analyzers=[custom])


DOCUMENTED_SEARCHES = [
    {"index": "default", **TEXT},
    {"text": {"query": ["a", "b"], "path": ["title", {"value": "title", "multi": "x"}], "matchCriteria": "all"}},
    {"phrase": {"path": "title", "query": "new york", "slop": 5}},
    {"equals": {"path": "verified", "value": True}, "concurrent": True},
    {"equals": {"path": "id", "value": ObjectId("64e5f0a2b3c4d5e6f7a8b9c0")}},
    {"equals": {"path": "id", "value": None}},
    {"in": {"path": "birthdate", "value": [1, 2, 3]}},
    {"range": {"path": "year", "gte": 2010, "lt": 2015}, "sort": {"year": -1, "score": {"$meta": "searchScore"}}},
    {"exists": {"path": "type"}, "count": {"type": "total"}},
    {"compound": {"must": [TEXT], "mustNot": [TEXT], "filter": [{"equals": {"path": "a", "value": 1}}]}},
    {"compound": {"should": [TEXT, TEXT], "minimumShouldMatch": 1}, "scoreDetails": True},
    {"compound": {"filter": TEXT}, "returnStoredSource": True},
    {"text": {**TEXT["text"], "score": {"boost": {"value": 3}}}},
]


@pytest.mark.parametrize("body", DOCUMENTED_SEARCHES, ids=str)
def test_a_search_as_the_documentation_shows_it_passes(body: Mapping[str, Any]) -> None:
    assert aggregate({"$search": body}) == []


WRONG_SEARCHES = [
    ({}, "exactly one"),
    ({**TEXT, "exists": {"path": "a"}}, "exactly one"),
    ({**TEXT, "limit": 5}, "'limit'"),
    ({"texts": TEXT["text"]}, "exactly one"),
    ({"text": {"query": "", "path": "title"}}, "not empty"),
    ({"text": {"query": "a"}}, "path is required"),
    ({"text": {"query": "a", "path": "b", "matchCriteria": "every"}}, "matchCriteria"),
    ({"text": {"query": "a", "path": "b", "slop": 1}}, "'slop'"),
    ({"phrase": {"query": "a", "path": "b", "slop": -1}}, "slop"),
    ({"equals": {"path": ["a"], "value": 1}}, "path"),
    ({"equals": {"path": "a", "value": [1]}}, "value"),
    ({"in": {"path": "a", "value": [1, "b"]}}, "same type"),
    ({"in": {"path": "a", "value": []}}, "not be empty"),
    ({"in": {"path": "a", "value": [None]}}, "value"),
    ({"range": {"path": "a"}}, "at least one"),
    ({"range": {"path": "a", "gt": 1, "gte": 1}}, "both"),
    ({"range": {"path": "a", "gt": 1, "lt": "b"}}, "one type"),
    ({"range": {"path": "a", "gt": True}}, "one type"),
    ({"exists": {"path": "a", "value": True}}, "'value'"),
    ({"compound": {}}, "at least one clause"),
    ({"compound": {"must": []}}, "at least one clause"),
    ({"compound": {"must": [{"text": {"query": "a"}}]}}, "path is required"),
    ({"compound": {"must": [TEXT], "minimumShouldMatch": 1}}, "minimumShouldMatch"),
    ({"compound": {"should": [TEXT], "minimumShouldMatch": 2}}, "minimumShouldMatch"),
    ({"compound": {"must": [{**TEXT, "exists": {"path": "a"}}]}}, "one operator"),
    ({"compound": {"must": [TEXT], "must_not": [TEXT]}}, "'must_not'"),
    ({**TEXT, "count": {"type": "exact"}}, "count.type"),
    ({**TEXT, "sort": {"a": "up"}}, "sort.a"),
    ({**TEXT, "searchAfter": "a", "searchBefore": "b"}, "both"),
]


@pytest.mark.parametrize(("body", "told"), WRONG_SEARCHES, ids=str)
def test_a_search_that_is_near_to_a_right_one_is_refused(body: Mapping[str, Any], told: str) -> None:
    problems = aggregate({"$search": body})
    assert any(told in problem for problem in problems), problems
    assert all("https://" in problem for problem in problems)


def packed(dtype: BinaryVectorDtype) -> Binary:
    return Binary.from_vector([1, 0, 1], dtype)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"queryVector": packed(BinaryVectorDtype.FLOAT32)},
        {"queryVector": packed(BinaryVectorDtype.INT8)},
        {"numCandidates": 10_000, "limit": 10_000},
        {"numCandidates": None, "exact": True},
        {"exact": False},
        {"filter": {"kind": "a", "at": {"$gte": 2**52, "$lt": 2**60}, "tags": {"$in": ["x", "y"]}}},
        {"filter": {"$and": [{"a": {"$ne": 1}}, {"$or": [{"b": {"$nin": [1]}}, {"c": {"$exists": True}}]}]}},
        {"filter": {"$nor": [{"a": 1}], "b": {"$not": {"$gt": 1}}, "c": {"$eq": None}}},
    ],
)
def test_a_vector_search_as_the_documentation_shows_it_passes(change: Mapping[str, Any]) -> None:
    body = {name: value for name, value in {**NEAREST, **change}.items() if value is not None}
    assert aggregate({"$vectorSearch": body}) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"numCandidates": 5}, "must not exceed"),
        ({"numCandidates": 10_001}, "numCandidates"),
        ({"numCandidates": None}, "is required"),
        ({"exact": True}, "must be omitted"),
        ({"limit": 0}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"limit": None}, "limit is required"),
        ({"index": None}, "index is required"),
        ({"queryVector": []}, "queryVector"),
        ({"queryVector": ["a"]}, "queryVector"),
        ({"k": 10}, "'k'"),
        ({"filter": {"a": {"$regex": "b"}}}, "$regex"),
        ({"filter": {"a": {"$in": [1, "b"]}}}, "same type"),
        ({"filter": {"a": {"$in": []}}}, "not be empty"),
        ({"filter": {"a": [1, 2]}}, "filter.a"),
        ({"filter": {"a": {"$elemMatch": {"$gt": 1}}}}, "$elemMatch"),
        ({"filter": {"$expr": {"$eq": ["$a", 1]}}}, "$expr"),
        ({"filter": {"$and": []}}, "$and"),
        ({"filter": {"a": {"$gt": None}}}, "$gt"),
        ({"filter": {"equals": {"path": "a", "value": 1}}}, "operator"),
    ],
)
def test_a_vector_search_that_is_near_to_a_right_one_is_refused(change: Mapping[str, Any], told: str) -> None:
    body = {name: value for name, value in {**NEAREST, **change}.items() if value is not None}
    problems = aggregate({"$vectorSearch": body})
    assert any(told in problem and "vector-search-stage" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        (text_definition(), "search"),
        *((vector_definition(384, ["text", "context"], how), "vectorSearch") for how in ("none", "scalar", "binary")),
        (vectors({"type": "filter", "path": "kind"}, quantization="scalar"), "vectorSearch"),
        (vectors(hnswOptions={"maxEdges": 32, "numEdgeCandidates": 200}), "vectorSearch"),
        (mapped([{"type": "string"}, {"type": "token", "normalizer": "lowercase"}]), "search"),
        (mapped({"type": "document", "dynamic": False, "fields": {"g": {"type": "date"}}}), "search"),
        (mapped({"type": "string", "multi": {"exact": {"type": "string", "analyzer": "lucene.keyword"}}}), "search"),
        (mapped({"type": "number", "representation": "int64"}), "search"),
        ({"mappings": {"dynamic": True}}, "search"),
        (analyzed({"type": "standard"}, {"type": "lowercase"}, {"type": "snowballStemming", "stemmerName": "english"}),
         "search"),
        (analyzed({"type": "whitespace", "maxTokenLength": 100}, {"type": "stopword", "tokens": ["the"]}), "search"),
    ],
)  # fmt: skip
def test_a_definition_as_the_documentation_shows_it_passes(definition: Mapping[str, Any], kind: str) -> None:
    assert search_index(definition, kind) == []


@pytest.mark.parametrize(
    ("definition", "kind", "told"),
    [
        ({"fields": []}, "vectorSearch", "at least 1"),
        ({"fields": [{"type": "filter", "path": "a"}]}, "vectorSearch", "type vector"),
        ({"mappings": {"dynamic": True}}, "vectorSearch", "fields is required"),
        (vectors(numDimensions=8193), "vectorSearch", "numDimensions"),
        (vectors(similarity="dot"), "vectorSearch", "similarity"),
        (vectors(quantization="int8"), "vectorSearch", "quantization"),
        (vectors(quantization="binary", numDimensions=12), "vectorSearch", "multiple of 8"),
        (vectors({"type": "filter", "path": "v"}), "vectorSearch", "distinct"),
        (vectors({"type": "token", "path": "kind"}), "vectorSearch", "type must be"),
        (vectors({"type": "filter", "path": "kind", "normalizer": "none"}), "vectorSearch", "'normalizer'"),
        (vectors(dimensions=8), "vectorSearch", "'dimensions'"),
        ({}, "search", "mappings is required"),
        ({"mappings": {"dynamic": False}}, "search", "must be dynamic"),
        (mapped({"type": "keyword"}), "search", "type must be"),
        (mapped({"type": "string", "analyzer": "own"}), "search", "does not define"),
        (mapped({"type": "string", "normalizer": "lowercase"}), "search", "'normalizer'"),
        (mapped({"type": "token", "analyzer": "lucene.keyword"}), "search", "'analyzer'"),
        (mapped({"type": "number", "representation": "float"}), "search", "representation"),
        (mapped({"type": "string"}, settings={}), "search", "'settings'"),
        (analyzed({"type": "letters"}), "search", "type must be"),
        (analyzed({"type": "standard"}, {"type": "stemming"}), "search", "type must be"),
        (analyzed({"type": "standard"}, {"type": "snowballStemming"}), "search", "stemmerName is required"),
        (analyzed({"type": "standard"}, {"type": "stopword", "tokens": []}), "search", "tokens"),
        (analyzed({"type": "regexSplit"}), "search", "pattern is required"),
        (mapped({"type": "string"}, analyzers=[{"name": "lucene.own", "tokenizer": {"type": "keyword"}}]), "search",
         "begin with"),
        (mapped({"type": "string"}), "text", "type must be"),
    ],
)  # fmt: skip
def test_a_definition_that_is_near_to_a_right_one_is_refused(definition: Any, kind: str, told: str) -> None:
    problems = search_index(definition, kind)
    assert any(told in problem for problem in problems), problems
    assert all("https://" in problem for problem in problems)


def test_every_facet_is_declared_as_a_filter_and_has_a_type_for_text() -> None:
    declared = {field["path"] for field in vector_definition(8, ["text"], "none")["fields"]}
    assert declared >= {*FACETS, "seq"}
    assert text_definition()["mappings"]["fields"].keys() >= {*FACETS, "seq"}

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from bson.binary import Binary, BinaryVectorDtype

from anamnesis_tests.mongo_server.search_catalog import SearchCatalog
from anamnesis_tests.mongo_server.search_errors import SearchRefused
from anamnesis_tests.mongo_server.search_vectors import FLOAT32, VectorMatrix, VectorSpec

RANDOM = np.random.default_rng(7)


def packed(numbers: Any, dtype: BinaryVectorDtype = BinaryVectorDtype.FLOAT32) -> Binary:
    return Binary.from_vector([float(n) if dtype is BinaryVectorDtype.FLOAT32 else int(n) for n in numbers], dtype)


class Collection:
    """Documents and a vector index over them that is always up to date."""

    def __init__(self, documents: list[dict[str, Any]], **field: Any) -> None:
        self.documents: dict[Any, Mapping[str, Any]] = {document["_id"]: document for document in documents}
        self.catalog = SearchCatalog(lambda _db, _coll: self.documents)
        self.catalog.behaviour.build_s = self.catalog.behaviour.lag_s = 0
        vector = {"type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine", **field}
        filters = [{"type": "filter", "path": path} for path in ("kind", "tags", "at", "gone")]
        self.catalog.create(
            "db", "c", [{"name": "i", "type": "vectorSearch", "definition": {"fields": [vector, *filters]}}]
        )

    def found(self, query: Any, **body: Any) -> list[tuple[Any, float]]:
        stage = {"index": "i", "path": "v", "queryVector": query, "limit": 10, "exact": True, **body}
        stage = {name: value for name, value in stage.items() if value is not None}
        hits = self.catalog.run("db", "c", {"$vectorSearch": stage})
        return [(document["_id"], metadata["vectorSearchScore"]) for document, metadata in hits]

    def ids(self, **body: Any) -> list[Any]:
        return sorted(key for key, _ in self.found([1.0, 0.0], **body))


@pytest.mark.parametrize(
    ("similarity", "scores"),
    [
        ("cosine", {"same": 1.0, "right angle": 0.5, "opposite": 0.0, "long": 1.0}),
        ("dotProduct", {"same": 1.0, "right angle": 0.5, "opposite": 0.0, "long": 2.0}),
        ("euclidean", {"same": 1.0, "right angle": 1 / 3, "opposite": 1 / 5, "long": 1 / 5}),
    ],
)
def test_scores_are_normalized_as_the_similarity_says(similarity: str, scores: Mapping[str, float]) -> None:
    vectors = {"same": [1, 0], "right angle": [0, 1], "opposite": [-1, 0], "long": [3, 0]}
    documents = [{"_id": name, "v": packed(numbers)} for name, numbers in vectors.items()]
    found = dict(Collection(documents, similarity=similarity).found([1.0, 0.0]))
    assert found == pytest.approx(scores)


def test_vectors_come_as_packed_floats_as_small_integers_or_as_arrays() -> None:
    documents = [
        {"_id": "packed", "v": packed([1, 0])},
        {"_id": "array", "v": [1.0, 0.0]},
        {"_id": "int8", "v": packed([127, 0], BinaryVectorDtype.INT8)},
        {"_id": "bits", "v": packed([1, 0], BinaryVectorDtype.PACKED_BIT)},
    ]
    collection = Collection(documents)
    assert {key for key, _ in collection.found(packed([1, 0]))} == {"packed", "array"}
    assert {key for key, _ in collection.found([1.0, 0.0])} == {"packed", "array"}
    assert {key for key, _ in collection.found(packed([127, 0], BinaryVectorDtype.INT8))} == {"int8"}


def test_what_is_no_vector_of_the_right_width_is_not_indexed() -> None:
    documents: list[dict[str, Any]] = [
        {"_id": 1, "v": packed([1, 0, 0])},
        {"_id": 2, "v": "text"},
        {"_id": 3},
        {"_id": 4, "v": packed([0, 0])},
        {"_id": 5, "v": packed([float("nan"), 1])},
        {"_id": 6, "v": packed([1, 0])},
    ]
    assert Collection(documents).ids() == [6]


@pytest.mark.parametrize(
    ("query", "body", "told"),
    [
        ([1.0, 0.0, 0.0], {}, "indexed with 2 dimensions but queried with 3"),
        ([1.0, 0.0], {"path": "w"}, "w is not indexed as vector"),
        ([0.0, 0.0], {}, "zero vector"),
        ([1.0, 0.0], {"filter": {"other": 1}}, "Path 'other' needs to be indexed as filter"),
        ([1.0, 0.0], {"filter": {"$or": [{"kind": "a"}, {"other": 1}]}}, "Path 'other' needs to be indexed as filter"),
    ],
)
def test_a_query_that_does_not_fit_the_index_is_refused(query: Any, body: Mapping[str, Any], told: str) -> None:
    collection = Collection([{"_id": 1, "v": packed([1, 0]), "kind": "a"}])
    with pytest.raises(SearchRefused, match=told) as caught:
        collection.found(query, **body)
    assert caught.value.code == 8


FILTERED = [
    {"_id": 1, "kind": "a", "tags": ["x", "y"], "at": 2**53 + 1},
    {"_id": 2, "kind": "b", "tags": [], "at": 5},
    {"_id": 3, "kind": "a", "tags": ["y"], "at": 7, "gone": None},
    {"_id": 4, "at": "text"},
]


@pytest.mark.parametrize(
    ("where", "passing"),
    [
        ({}, [1, 2, 3, 4]),
        ({"kind": "a"}, [1, 3]),
        ({"kind": {"$eq": "b"}}, [2]),
        ({"kind": {"$ne": "a"}}, [2, 4]),
        ({"kind": {"$in": ["a", "c"]}}, [1, 3]),
        ({"kind": {"$nin": ["a"]}}, [2, 4]),
        ({"tags": "y"}, [1, 3]),
        ({"tags": {"$in": ["x", "z"]}}, [1]),
        ({"tags": {"$nin": ["x"]}}, [2, 3, 4]),
        ({"at": {"$gte": 5, "$lt": 7}}, [2]),
        ({"at": {"$gt": 2**53}}, [1]),
        ({"at": {"$not": {"$gt": 5}}}, [2, 4]),
        ({"gone": {"$exists": True}}, [3]),
        ({"gone": {"$exists": False}}, [1, 2, 4]),
        ({"gone": None}, [3]),
        ({"$and": [{"kind": "a"}, {"tags": "x"}]}, [1]),
        ({"$or": [{"kind": "b"}, {"tags": "x"}]}, [1, 2]),
        ({"$nor": [{"kind": "b"}, {"tags": "x"}]}, [3, 4]),
        ({"kind": "a", "at": 7.0}, [3]),
    ],
    ids=str,
)
def test_filters_pass_what_mql_would(where: Mapping[str, Any], passing: list[int]) -> None:
    documents = [{**document, "v": packed([1, document["_id"]])} for document in FILTERED]
    collection = Collection(documents)
    assert collection.ids(filter=where) == passing
    assert collection.ids(filter=where, exact=None, numCandidates=10) == passing


def matrix(quantization: str, dimensions: int = 64, count: int = 2000) -> tuple[VectorMatrix, Any]:
    numbers = RANDOM.normal(size=(count, dimensions)).astype(np.float32)
    numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
    held = VectorMatrix(VectorSpec("v", dimensions, "cosine", quantization), FLOAT32)
    for row, vector in enumerate(numbers):
        held.put(row, vector)
    return held, numbers


def recall(held: VectorMatrix, numbers: Any, candidates: int) -> float:
    """The share of the 10 nearest that are found, on average over 20 queries."""
    shares = []
    for query in numbers[:20] + RANDOM.normal(scale=0.2, size=(20, numbers.shape[1])).astype(np.float32):
        true = {row for row, _ in held.exact(query, None, 10)}
        shares.append(len(true & {row for row, _ in held.approximate(query, None, candidates, 10)}) / 10)
    return sum(shares) / len(shares)


@pytest.mark.parametrize("quantization", ["none", "binary"])
def test_more_candidates_find_more_of_the_nearest(quantization: str) -> None:
    held, numbers = matrix(quantization)
    few, many, all_of_them = (recall(held, numbers, count) for count in (10, 200, 2000))
    assert few < many <= all_of_them == 1.0
    assert many > 0.7


def test_a_scalar_index_scores_what_it_holds_and_an_exact_search_what_was_written() -> None:
    held, numbers = matrix("scalar")
    query = numbers[0] + 0.1
    exact = dict(held.exact(query, None, 20))
    found = dict(held.approximate(query, None, 2000, 20))
    common = exact.keys() & found.keys()
    assert any(exact[row] != found[row] for row in common)
    assert all(abs(exact[row] - found[row]) < 0.01 for row in common)


def test_a_binary_index_scores_its_candidates_with_what_was_written() -> None:
    held, numbers = matrix("binary")
    exact = dict(held.exact(numbers[0], None, 2000))
    assert all(exact[row] == score for row, score in held.approximate(numbers[0], None, 100, 20))


def test_a_filter_narrows_before_candidates_are_chosen() -> None:
    held, numbers = matrix("none")
    rows = {row for row, _ in held.exact(-numbers[0], None, 15)}
    assert {row for row, _ in held.approximate(numbers[0], rows, 20, 15)} == rows


def test_a_changed_vector_takes_the_place_of_the_old_one_and_a_removed_one_is_gone() -> None:
    held = VectorMatrix(VectorSpec("v", 2, "cosine"), FLOAT32)
    held.put(1, np.array([1, 0], np.float32))
    held.put(2, np.array([0, 1], np.float32))
    held.put(1, np.array([0, 1], np.float32))
    assert held.exact(np.array([1, 0], np.float32), None, 5) == [(1, 0.5), (2, 0.5)]
    held.remove(1)
    assert [row for row, _ in held.approximate(np.array([1, 0], np.float32), None, 5, 5)] == [2]

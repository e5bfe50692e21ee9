"""Search through the real client: the commands, the stages, and the scores that `$meta` gives."""

import time
from typing import Any

import pytest
from bson.binary import Binary, BinaryVectorDtype
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from anamnesis_tests.mongo_server.conftest import Data
from anamnesis_tests.mongo_server.server import LoopbackServer

VECTORS = {"fields": [{"type": "vector", "path": "v", "numDimensions": 2, "similarity": "cosine"},
                      {"type": "filter", "path": "k"}]}  # fmt: skip
TEXTS = {"mappings": {"dynamic": False, "fields": {"text": {"type": "string"}}}}


def vector(*numbers: float) -> Binary:
    return Binary.from_vector(list(numbers), BinaryVectorDtype.FLOAT32)


@pytest.fixture
def searched(data: Data) -> Data:
    data.a.insert_many([{"_id": n, "v": vector(1.0, n / 10), "k": n % 2, "text": f"word{n} common"} for n in range(5)])
    data.a.create_search_index(SearchIndexModel(VECTORS, "vectors", "vectorSearch"))
    data.a.create_search_index(SearchIndexModel(TEXTS, "texts", "search"))
    until = time.monotonic() + 30
    while not all(index["queryable"] for index in data.a.list_search_indexes()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return data


def nearest(data: Data, **given: object) -> list[dict[str, object]]:
    stage = {"index": "vectors", "path": "v", "queryVector": vector(1.0, 0.0), "numCandidates": 10, "limit": 2, **given}
    score = {"$project": {"k": 1, "score": {"$meta": "vectorSearchScore"}}}
    return list(data.a.aggregate([{"$vectorSearch": stage}, score]))


def test_the_nearest_vectors_come_with_their_scores_within_a_filter(searched: Data) -> None:
    found = nearest(searched)
    assert [each["_id"] for each in found] == [0, 1]
    assert found[0]["score"] == pytest.approx(1.0)
    assert [each["_id"] for each in nearest(searched, filter={"k": 1})] == [1, 3]


def test_a_text_is_found_with_a_score_that_survives_other_stages(searched: Data) -> None:
    stages: list[dict[str, Any]] = [
        {"$search": {"index": "texts", "text": {"query": "word3", "path": "text"}}},
        {"$match": {"k": 1}},
        {"$set": {"score": {"$meta": "searchScore"}}},
        {"$sort": {"score": -1}},
        {"$project": {"score": 1}},
    ]
    found = list(searched.a.aggregate(stages))
    assert [each["_id"] for each in found] == [3]
    assert found[0]["score"] > 0


def test_a_commit_is_found_a_little_later_and_an_abort_never(searched: Data) -> None:
    client = searched.client
    with client.start_session() as session, session.start_transaction():
        searched.a.insert_one({"_id": "new", "v": vector(1.0, 0.0), "k": 5}, session=session)
    with client.start_session() as session:
        session.start_transaction()
        searched.a.insert_one({"_id": "never", "v": vector(1.0, 0.0), "k": 5}, session=session)
        session.abort_transaction()
    until = time.monotonic() + 30
    while not (found := nearest(searched, filter={"k": 5})):
        assert time.monotonic() < until
    assert [each["_id"] for each in found] == ["new"]
    searched.a.delete_one({"_id": "new"})
    assert nearest(searched, filter={"k": 5}) == []  # it is read as it is now


def test_an_index_that_is_never_ready_can_be_asked_for_and_removed(server: LoopbackServer, data: Data) -> None:
    server.catalog.behaviour.never_ready.add("slow")
    data.a.insert_one({"_id": 1})
    data.a.create_search_index(SearchIndexModel(TEXTS, "slow", "search"))
    time.sleep(0.1)
    assert [index["queryable"] for index in data.a.list_search_indexes()] == [False]
    with pytest.raises(OperationFailure):
        list(data.a.aggregate([{"$search": {"index": "slow", "text": {"query": "x", "path": "text"}}}]))
    data.a.drop_search_index("slow")
    assert list(data.a.list_search_indexes()) == []
    with pytest.raises(OperationFailure) as refused:
        data.a.drop_search_index("slow")
    assert refused.value.code == 27


def test_an_index_is_given_another_definition_and_counts_are_told(searched: Data) -> None:
    searched.a.update_search_index("texts", {"mappings": {"dynamic": False, "fields": {"k": {"type": "number"}}}})
    until = time.monotonic() + 30
    while next(iter(searched.a.list_search_indexes("texts")))["status"] != "READY":
        assert time.monotonic() < until
        time.sleep(0.02)
    stage = {"$searchMeta": {"index": "texts", "range": {"path": "k", "gte": 1}, "count": {"type": "total"}}}
    assert list(searched.a.aggregate([stage])) == [{"count": {"total": 2}}]


def test_search_indexes_go_with_their_collection(searched: Data) -> None:
    searched.a.drop()
    searched.a.insert_one({"_id": 1})
    assert list(searched.a.list_search_indexes()) == []

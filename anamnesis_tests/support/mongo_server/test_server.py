"""The relay and the search service, asked by the real client; what SecantusDB does itself is not tested here."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson.binary import Binary, BinaryVectorDtype
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect, OperationFailure
from pymongo.operations import SearchIndexModel
from pymongo.write_concern import WriteConcern

from anamnesis_tests.support.mongo_server import wire
from anamnesis_tests.support.mongo_server.faults import Faults
from anamnesis_tests.support.mongo_server.relay import Relay
from anamnesis_tests.support.mongo_server.server import LoopbackServer

Data = Database[dict[str, Any]]
STEM = {
    "name": "stem",
    "tokenizer": {"type": "regexSplit", "pattern": r"(?U)[\W_]+"},
    "tokenFilters": [{"type": "icuFolding"}, {"type": "porterStemming"}],
}
TEXT = {
    "mappings": {"fields": {"said": {"type": "string", "analyzer": "stem"}, "at": {"type": "number"}}},
    "analyzers": [STEM],
}
VECTOR = {
    "fields": [
        {"type": "vector", "path": "v", "numDimensions": 2, "similarity": "dotProduct"},
        {"type": "filter", "path": "at"},
    ]
}
PHRASE = {"index": "words", "phrase": {"query": "Moving cranes", "path": "said"}}


def packed(*numbers: float) -> Binary:
    return Binary.from_vector([*numbers], BinaryVectorDtype.FLOAT32)


NEAR = {"index": "near", "path": "v", "queryVector": packed(1, 0), "limit": 9, "exact": True}


@pytest.fixture
def data(server: LoopbackServer) -> Iterator[Data]:
    """A database with two documents, and both kinds of index over them."""
    with MongoClient[dict[str, Any]](server.uri, retryWrites=False, heartbeatFrequencyMS=500) as client:
        data = client["relayed"]
        rows = [("The cränes' moving crane", (0, 1)), ("A crane moved", (1, 0)), ("Moved a crane", (0.6, 0.8))]
        data.c.insert_many([{"_id": i, "said": said, "v": packed(*v), "at": i} for i, (said, v) in enumerate(rows)])
        for name, kind, definition in (("words", "search", TEXT), ("near", "vectorSearch", VECTOR)):
            data.c.create_search_index(SearchIndexModel(definition=definition, name=name, type=kind))
        until(lambda: all(each["queryable"] for each in data.c.list_search_indexes()))
        yield data


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def found(data: Data, *stages: dict[str, Any]) -> list[Any]:
    return [each["_id"] for each in data.c.aggregate([*stages], readConcern={"level": "local"})]


def test_what_is_no_search_passes_byte_for_byte() -> None:
    class Nothing:
        answer = done = staticmethod(lambda _: None)

    with socket.create_server(("127.0.0.1", 0)) as upstream:
        relay = Relay("127.0.0.1", 0, upstream.getsockname(), Faults(), Nothing())
        relay.open()
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            server, _ = upstream.accept()
            with server:
                asked, told = wire.asked({"ping": 1, "text": "$searched"}), wire.asked({"ok": 1.0})
                for sender, receiver, raw in ((client, server, asked), (server, client, told)):
                    sender.sendall(raw)
                    assert receiver.recv(len(raw) + 1) == raw
        relay.close()


def test_clients_are_told_of_the_relay_and_of_changes(server: LoopbackServer, data: Data) -> None:
    assert data.client.address == ("127.0.0.1", int(server.uri.split(":")[2].split("/")[0]))
    data.c.with_options(write_concern=WriteConcern(w=0)).insert_one({"_id": "unanswered"})
    until(lambda: data.c.find_one("unanswered"))
    server.step_down()
    until(lambda: data.client.primary is None)
    until(lambda: data.client.primary)


def test_words_are_stemmed_and_folded_and_phrases_scored(data: Data) -> None:
    score = {"$project": {"score": {"$meta": "searchScore"}}}
    (hit,) = data.c.aggregate([{"$search": PHRASE}, score])
    assert (hit["_id"], hit["score"]) == (0, pytest.approx(0.1122, abs=1e-4))
    assert found(data, {"$search": PHRASE | {"phrase": {"query": "CRANE", "path": "said"}}}, {"$limit": 1}) == [0]
    count = {"index": "words", "range": {"path": "at", "gte": 1}, "count": {"type": "total"}}
    assert list(data.c.aggregate([{"$searchMeta": count}])) == [{"count": {"total": 2}}]


def test_the_nearest_come_first_with_their_scores(data: Data) -> None:
    stages = [
        {"$vectorSearch": NEAR | {"filter": {"at": {"$gt": 0}}}},
        {"$project": {"s": {"$meta": "vectorSearchScore"}}},
    ]
    hits = {each["_id"]: each["s"] for each in data.c.aggregate(stages)}
    assert list(hits) == [1, 2]
    assert list(hits.values()) == pytest.approx([1.0, 0.8])
    assert found(data, {"$vectorSearch": NEAR}, {"$match": {"said": "Moved a crane"}}) == [2]


def test_an_index_shows_what_is_committed_and_nothing_else(server: LoopbackServer, data: Data) -> None:
    with data.client.start_session() as session:
        for ended, there in ((session.abort_transaction, [1, 2, 0]), (session.commit_transaction, [3, 1, 2, 0])):
            session.start_transaction()
            data.c.insert_one({"_id": 3, "v": packed(1.5, 0), "at": 3}, session=session)
            assert found(data, {"$vectorSearch": NEAR}) == [1, 2, 0]
            ended()
            until(lambda there=there: found(data, {"$vectorSearch": NEAR}) == there)
    server.catalog.behaviour.frozen = True
    data.c.insert_one({"_id": 4, "v": packed(2, 0)})
    data.c.delete_one({"_id": 3})
    assert found(data, {"$vectorSearch": NEAR}) == [1, 2, 0]
    server.catalog.behaviour.frozen = False
    until(lambda: found(data, {"$vectorSearch": NEAR}) == [4, 1, 2, 0])
    data.client.drop_database(data)
    assert list(data.c.list_search_indexes()) == found(data, {"$vectorSearch": NEAR}) == []


@pytest.mark.parametrize(
    "stage",
    [
        {"$search": PHRASE | {"slop": 1}},
        {"$search": {"index": "words"}},
        {"$search": {"index": "words", "in": {"path": "at", "value": []}}},
        {"$vectorSearch": NEAR | {"numCandidates": 9}},
        {"$vectorSearch": NEAR | {"filter": {"$where": 1}}},
    ],
)
def test_what_the_manual_does_not_know_is_refused(data: Data, stage: dict[str, Any]) -> None:
    with pytest.raises(OperationFailure) as refused:
        found(data, stage)
    assert refused.value.code == 9


@pytest.mark.parametrize(("drop", "written"), [("before", 0), ("after", 1)])
def test_a_dropped_connection_leaves_what_was_done(server: LoopbackServer, data: Data, drop: str, written: int) -> None:
    fault = server.faults.add("insert", drop=drop)
    with pytest.raises(AutoReconnect):
        data.c.insert_one({"_id": "new"})
    assert (fault.met, data.c.count_documents({"_id": "new"})) == (1, written)


def test_a_refusal_and_an_outage_end_the_transaction(server: LoopbackServer, data: Data) -> None:
    ends: tuple[Callable[[], object], ...] = (lambda: server.faults.add("commitTransaction", error=112), server.vanish)
    for end in ends:
        with data.client.start_session() as session:
            session.start_transaction()
            data.c.insert_one({"_id": "new"}, session=session)
            end()
            threading.Timer(0.2, server.come_back).start()
            with pytest.raises((AutoReconnect, OperationFailure)):
                session.commit_transaction()
        until(lambda: data.c.update_one({"_id": "new"}, {"$set": {"at": 1}}, upsert=True).upserted_id)
        data.c.delete_one({"_id": "new"})


@pytest.mark.xfail(strict=True, reason="SecantusDB 0.7.0b3: docs/decisions/0027-secantusdb.md")
def test_a_snapshot_session_reads_one_moment(data: Data) -> None:
    with data.client.start_session(snapshot=True) as session:
        before = data.c.find_one({"_id": 1}, session=session)
        data.c.update_one({"_id": 1}, {"$set": {"at": 9}})
        assert data.c.find_one({"_id": 1}, session=session) == before

import threading
import time
from collections.abc import Callable

import pytest
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from anamnesis_tests.mongo_server import engine
from anamnesis_tests.mongo_server.conftest import Client, Data
from anamnesis_tests.mongo_server.server import LoopbackServer


def test_others_see_a_transaction_only_once_it_is_committed(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1, "n": 1})
    with client.start_session() as session, session.start_transaction():
        data.a.update_one({"_id": 1}, {"$set": {"n": 2}}, session=session)
        data.a.insert_one({"_id": 2, "n": 2}, session=session)
        assert [each["n"] for each in data.a.find({}, session=session)] == [2, 2]
        assert list(data.a.find()) == [{"_id": 1, "n": 1}]
    assert [each["n"] for each in data.a.find()] == [2, 2]


def test_a_transaction_sees_the_moment_of_its_first_command(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1, "n": 1})
    with client.start_session() as session, session.start_transaction(read_concern=ReadConcern("snapshot")):
        assert data.a.find_one({}, session=session) == {"_id": 1, "n": 1}
        data.a.update_one({"_id": 1}, {"$set": {"n": 2}})
        data.a.insert_one({"_id": 2})
        data.a.create_index("n")
        assert list(data.a.find({}, session=session)) == [{"_id": 1, "n": 1}]
        assert list(data.a.find({"n": 1}, session=session)) == [{"_id": 1, "n": 1}]
        assert list(data.a.find({"n": 2}, session=session)) == []
        assert data.a.count_documents({}, session=session) == 1


def test_an_aborted_transaction_leaves_nothing_not_even_its_collection(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1, "n": 1})
    data.a.create_index("n")
    with client.start_session() as session:
        session.start_transaction()
        data.a.update_one({"_id": 1}, {"$set": {"n": 2}}, session=session)
        data.a.delete_one({"n": 2}, session=session)
        data.b.insert_one({"_id": 1}, session=session)
        session.abort_transaction()
    assert list(data.a.find({"n": 1})) == [{"_id": 1, "n": 1}]
    assert list(data.a.find({"n": 2})) == []
    assert data.list_collection_names() == ["a"]


def test_of_two_transactions_that_change_one_document_the_second_is_told_to_begin_again(
    client: Client, data: Data
) -> None:
    data.a.insert_one({"_id": 1, "n": 0})
    with client.start_session() as one, client.start_session() as other:
        one.start_transaction()
        other.start_transaction()
        data.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=one)
        with pytest.raises(OperationFailure) as refused:
            data.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=other)
        assert refused.value.code == 112
        assert refused.value.has_error_label("TransientTransactionError")
        one.commit_transaction()
    assert data.a.find_one() == {"_id": 1, "n": 1}


def test_what_was_changed_since_the_snapshot_is_not_changed_again(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session:
        session.start_transaction()
        data.a.find_one({}, session=session)
        data.a.update_one({"_id": 1}, {"$set": {"n": 5}})
        with pytest.raises(OperationFailure) as refused:
            data.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        assert refused.value.code == 112


def test_a_key_that_was_taken_since_the_snapshot_is_a_conflict_and_one_seen_is_a_duplicate(
    client: Client, data: Data
) -> None:
    data.a.insert_one({"_id": 1})
    with client.start_session() as session:
        session.start_transaction()
        data.a.find_one({}, session=session)
        data.a.insert_one({"_id": 2})
        with pytest.raises(OperationFailure) as refused:
            data.a.insert_one({"_id": 2}, session=session)
        assert refused.value.code == 112
        session.abort_transaction()
        session.start_transaction()
        with pytest.raises(DuplicateKeyError):
            data.a.insert_one({"_id": 2}, session=session)
        with pytest.raises(OperationFailure) as refused:
            data.a.insert_one({"_id": 3}, session=session)
        assert refused.value.code == 251  # an error ends a transaction


def test_transactions_that_count_up_together_lose_no_count(connect: Callable[..., Client]) -> None:
    clients = [connect() for _ in range(4)]
    clients[0]["data"]["a"].insert_one({"_id": 1, "n": 0})

    def count_up(client: Client) -> None:
        def work(session: object) -> None:
            held = client["data"]["a"].find_one({"_id": 1}, session=session)
            client["data"]["a"].update_one({"_id": 1}, {"$set": {"n": held["n"] + 1}}, session=session)

        for _ in range(25):
            with client.start_session() as session:
                session.with_transaction(work, ReadConcern("snapshot"), WriteConcern("majority"))

    threads = [threading.Thread(target=count_up, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clients[0]["data"]["a"].find_one() == {"_id": 1, "n": 100}


def test_a_write_by_itself_waits_for_the_transaction_that_holds_the_document(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session:
        session.start_transaction()
        data.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        waiting = threading.Thread(target=lambda: data.a.update_one({"_id": 1}, {"$inc": {"n": 10}}))
        waiting.start()
        time.sleep(0.1)
        assert waiting.is_alive()
        session.commit_transaction()
        waiting.join()
    assert data.a.find_one() == {"_id": 1, "n": 11}


def test_a_transaction_that_is_open_too_long_is_given_up(client: Client) -> None:
    with LoopbackServer(transaction_lifetime_s=0.1) as server, type(client)(server.uri) as short:
        data = short["data"]
        data.a.insert_one({"_id": 1, "n": 0})
        with short.start_session() as session:
            session.start_transaction()
            data.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            data.a.update_one({"_id": 1}, {"$inc": {"n": 10}})  # waits, and has its turn
            with pytest.raises(OperationFailure) as refused:
                session.commit_transaction()
            assert refused.value.code == 251
        assert data.a.find_one() == {"_id": 1, "n": 10}


def test_a_snapshot_is_of_one_moment_for_every_read_of_its_session(client: Client, data: Data) -> None:
    data.a.insert_many([{"_id": n, "n": n} for n in range(3)])
    with client.start_session(snapshot=True) as session:
        assert data.a.count_documents({}, session=session) == 3
        data.a.delete_one({"_id": 0})
        data.a.update_one({"_id": 1}, {"$set": {"n": 7}})
        assert [each["n"] for each in data.a.find({}, sort=[("_id", 1)], session=session)] == [0, 1, 2]
        assert sorted(data.a.distinct("n", session=session)) == [0, 1, 2]
    with client.start_session(snapshot=True) as session:
        assert sorted(data.a.distinct("n", session=session)) == [2, 7]


def test_versions_that_nobody_can_see_are_not_kept(server: LoopbackServer, client: Client, data: Data) -> None:
    data.a.create_index("n")
    data.a.insert_one({"_id": 1, "n": 0})
    with client.start_session() as session, session.start_transaction():
        data.a.find_one({}, session=session)
        for n in range(1, 5):
            data.a.update_one({"_id": 1}, {"$set": {"n": n}})
    data.a.update_one({"_id": 1}, {"$set": {"n": 9}})
    held = server.engine.collection("data", "a")
    assert [len(record.versions) for record in held.records.values()] == [1]
    assert [len(index) for index in held.indexes.values()] == [1, 1]
    data.a.delete_one({"_id": 1})
    assert (len(held.records), [len(index) for index in held.indexes.values()]) == (0, [0, 0])


def test_a_snapshot_too_old_to_be_kept_is_refused(client: Client, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_WINDOW_S", 0.0)
    data.a.insert_one({"_id": 1})
    with client.start_session(snapshot=True) as session:
        data.a.find_one({}, session=session)
        data.a.update_one({"_id": 1}, {"$set": {"n": 1}})
        with pytest.raises(OperationFailure) as refused:
            data.a.find_one({}, session=session)
        assert refused.value.code == 239


def test_a_write_that_is_sent_twice_is_done_once(server: LoopbackServer, data: Data) -> None:
    data.a.insert_one({"_id": 1, "n": 0})
    for command in ("update", "findAndModify", "insert", "delete"):
        server.faults.add(command, drop="after")
    data.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    found = data.a.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, return_document=True)
    data.a.insert_one({"_id": 2})
    assert data.a.delete_one({"_id": 2}).deleted_count == 1
    assert found == {"_id": 1, "n": 2}
    assert list(data.a.find()) == [{"_id": 1, "n": 2}]


def test_of_a_bulk_that_is_sent_twice_each_statement_is_done_once(server: LoopbackServer, data: Data) -> None:
    server.faults.add("update", drop="after")
    done = data.a.bulk_write([UpdateOne({"_id": n % 3}, {"$inc": {"n": 1}}, upsert=True) for n in range(9)])
    assert (done.upserted_count, done.matched_count) == (3, 6)
    assert [each["n"] for each in data.a.find()] == [3, 3, 3]


def test_a_commit_whose_answer_is_lost_is_sent_again_and_holds(
    server: LoopbackServer, client: Client, data: Data
) -> None:
    server.faults.add("commitTransaction", drop="after")
    with client.start_session() as session, session.start_transaction():
        data.a.insert_one({"_id": 1}, session=session)
    assert data.a.count_documents({}) == 1


def test_a_conflict_on_demand_makes_the_whole_work_run_again(
    server: LoopbackServer, client: Client, data: Data
) -> None:
    fault = server.faults.add("insert", error=112, times=2)
    runs = []

    def work(session: object) -> None:
        runs.append(data.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True, session=session))
        data.b.insert_one({"_id": len(runs)}, session=session)

    with client.start_session() as session:
        session.with_transaction(work)
    assert (len(runs), fault.met) == (3, 2)
    assert (data.a.find_one(), list(data.b.find())) == ({"_id": 1, "n": 1}, [{"_id": 3}])


def test_a_server_of_its_own_has_no_transactions() -> None:
    with LoopbackServer(replica_set=None) as server, Client(server.uri, retryWrites=False) as client:
        client["data"]["a"].insert_one({"_id": 1})
        with client.start_session() as session, pytest.raises(OperationFailure) as refused, session.start_transaction():
            client["data"]["a"].insert_one({"_id": 2}, session=session)
        assert refused.value.code == 20


def test_a_collection_is_dropped_only_when_no_transaction_changes_it(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1})
    with client.start_session() as session:
        session.start_transaction()
        data.a.insert_one({"_id": 2}, session=session)
        dropping = threading.Thread(target=data.a.drop)
        dropping.start()
        time.sleep(0.05)
        assert dropping.is_alive()
        session.commit_transaction()
        dropping.join()
    assert data.list_collection_names() == []

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from bson import Binary
from pymongo import MongoClient, ReadPreference
from pymongo.errors import (
    AutoReconnect,
    DocumentTooLarge,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WriteError,
)

from anamnesis_tests.mongo_server.conftest import Client, Data
from anamnesis_tests.mongo_server.server import LoopbackServer


def test_a_dropped_connection_is_made_again_for_a_read(server: LoopbackServer, data: Data) -> None:
    data.a.insert_one({"_id": 1})
    fault = server.faults.add("find", drop="before")
    assert data.a.find_one() == {"_id": 1}
    assert fault.met == 1


def test_connections_that_always_drop_are_an_error(server: LoopbackServer, data: Data) -> None:
    server.faults.add("find", drop="before", times=None)
    with pytest.raises(AutoReconnect):
        data.a.find_one()


def test_a_slow_reply_meets_the_clients_patience(
    server: LoopbackServer, client: Client, connect: Callable[..., Client]
) -> None:
    hasty = connect(socketTimeoutMS=1_000, retryReads=False)
    server.faults.add("find", delay_s=1.5)
    with pytest.raises(NetworkTimeout):
        hasty["data"]["a"].find_one()
    server.faults.add("find", delay_s=0.5)
    with pytest.raises(ExecutionTimeout):
        client["data"]["a"].find_one(max_time_ms=10)


def test_after_a_step_down_the_other_member_takes_the_same_data_on(
    server: LoopbackServer, client: Client, data: Data
) -> None:
    data.a.insert_one({"_id": 1})
    before = client.primary
    server.step_down()
    data.a.insert_one({"_id": 2})
    assert client.primary != before
    assert client.secondaries == {before}
    assert data.a.count_documents({}) == 2


def test_the_former_primary_refuses_writes_with_the_label_to_try_again_and_answers_reads(
    server: LoopbackServer,
) -> None:
    member = server.replica_set.members[0]
    with MongoClient(f"mongodb://{member.address}/", directConnection=True) as direct:
        data = direct["data"]
        data.a.insert_one({"_id": 1})
        server.step_down()
        with pytest.raises(NotPrimaryError) as refused:
            data.a.insert_one({"_id": 2})
        assert refused.value.details["code"] == 10107
        assert refused.value.has_error_label("RetryableWriteError")
        with direct.start_session() as session, pytest.raises(NotPrimaryError) as refused, session.start_transaction():
            data.a.insert_one({"_id": 2}, session=session)
        assert refused.value.has_error_label("TransientTransactionError")
        assert data.a.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED).find_one() == {"_id": 1}


def test_a_transaction_does_not_outlive_its_primary_but_its_work_runs_again(
    server: LoopbackServer, client: Client, data: Data
) -> None:
    runs = []

    def work(session: object) -> None:
        data.a.insert_one({"_id": len(runs)}, session=session)
        runs.append(None)
        if len(runs) == 1:
            server.step_down()
        data.b.insert_one({"_id": 1}, session=session)

    with client.start_session() as session:
        session.with_transaction(work)
    assert list(data.a.find()) == [{"_id": len(runs) - 1}]


def test_a_commit_during_an_election_is_sent_again_to_the_new_primary_and_begun_anew(
    server: LoopbackServer, client: Client, data: Data
) -> None:
    runs = []

    def work(session: object) -> None:
        data.a.insert_one({"_id": len(runs)}, session=session)
        runs.append(None)
        if len(runs) == 1:
            server.step_down()

    with client.start_session() as session:
        session.with_transaction(work)
    assert list(data.a.find()) == [{"_id": 1}]


def test_a_server_that_is_gone_for_a_while_is_found_again_without_a_new_client(
    server: LoopbackServer, connect: Callable[..., Client]
) -> None:
    client = connect(serverSelectionTimeoutMS=300)
    data = client["data"]
    data.a.insert_one({"_id": 1})
    server.vanish()
    with pytest.raises((AutoReconnect, ServerSelectionTimeoutError)):
        data.a.insert_one({"_id": 2})
    server.come_back()
    _until(lambda: data.a.find_one({"_id": 1}) == {"_id": 1})
    data.a.insert_one({"_id": 3})


def _until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except AutoReconnect:
            pass
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_full_disk_refuses_writes_and_answers_reads(server: LoopbackServer, client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1})
    server.faults.disk_is_full = True
    for write in (
        lambda: data.a.insert_one({"_id": 2}),
        lambda: data.a.update_one({"_id": 1}, {"$set": {"n": 1}}),
        lambda: data.a.find_one_and_update({"_id": 1}, {"$set": {"n": 1}}),
        lambda: data.a.create_index("n"),
    ):
        with pytest.raises(OperationFailure) as refused:
            write()
        assert refused.value.code == 14031
    assert data.a.find_one() == {"_id": 1}
    server.faults.clear()
    data.a.insert_one({"_id": 2})


def test_a_document_that_is_too_large_is_refused_by_the_client_or_as_it_grows(data: Data) -> None:
    with pytest.raises(DocumentTooLarge):
        data.a.insert_one({"_id": 1, "data": Binary(bytes(17 * 1024 * 1024))})
    data.a.insert_one({"_id": 1, "data": Binary(bytes(9 * 1024 * 1024))})
    with pytest.raises(WriteError) as refused:
        data.a.update_one({"_id": 1}, {"$set": {"more": Binary(bytes(9 * 1024 * 1024))}})
    assert refused.value.code == 10334
    assert "more" not in data.a.find_one()


def test_a_wrong_password_or_none_is_refused_and_the_right_one_is_not() -> None:
    with LoopbackServer(user="mem,ory=", password="pass wörd") as server:
        with MongoClient(server.uri, username="mem,ory=", password="pass wörd") as client:
            client["data"]["a"].insert_one({"_id": 1})
        with MongoClient(server.uri, username="mem,ory=", password="wrong") as client:
            with pytest.raises(OperationFailure) as refused:
                client["data"]["a"].find_one()
            assert refused.value.code == 18
        with MongoClient(server.uri, username="other", password="pass wörd") as client:
            with pytest.raises(OperationFailure) as refused:
                client["data"]["a"].find_one()
            assert refused.value.code == 18
        with MongoClient(server.uri) as client:
            with pytest.raises(OperationFailure) as refused:
                client["data"]["a"].find_one()
            assert refused.value.code == 13


def test_another_process_asks_for_faults_by_commands(client: Client, data: Data) -> None:
    data.a.insert_one({"_id": 1})
    fail = {"configureFailPoint": "failCommand", "data": {"failCommands": ["find"], "errorCode": 50}}
    client.admin.command({**fail, "mode": {"times": 1}})
    with pytest.raises(ExecutionTimeout):
        data.a.find_one()
    assert client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})["count"] == 1
    client.admin.command({"loopback": "diskIsFull", "value": True})
    with pytest.raises(OperationFailure):
        data.a.insert_one({"_id": 2})
    client.admin.command({"loopback": "clear"})
    client.admin.command({"loopback": "vanish", "seconds": 0.3})
    time.sleep(0.15)
    _until(lambda: data.a.find_one() == {"_id": 1})
    with pytest.raises(OperationFailure):
        client.admin.command({"loopback": "explode"})


def test_a_process_of_its_own_listens_where_it_says_until_it_is_told_to_stop() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "anamnesis_tests.mongo_server", "--members", "1", "--user", "u", "--password", "p"],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        uri = started.stdout.readline().strip()
        with MongoClient(uri, username="u", password="p") as client:
            client["data"]["a"].insert_one({"_id": 1})
            assert client["data"]["a"].find_one() == {"_id": 1}
    finally:
        started.send_signal(signal.SIGTERM)
        assert started.wait(60) == 0
        started.stdout.close()

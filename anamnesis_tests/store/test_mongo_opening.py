"""Opening a MongoDB that is late, refuses, or does not search."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from pymongo.monitoring import CommandStartedEvent

from anamnesis_pipeline.errors import BadSetting, GiveUp, StoreBusy
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.mongo import opening
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_tests.mongo_server.server import LoopbackServer
from anamnesis_tests.store.mongo_watching import Sent, watched
from anamnesis_tests.store.samples import put


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(members=1) as running:
        yield running


def test_wrong_credentials_are_told_at_once() -> None:
    with LoopbackServer(members=1, user="anna", password="right") as server:
        began = time.monotonic()
        with pytest.raises(GiveUp, match=r"refuses the user.*ANAMNESIS_MONGO_URI") as told:
            open_mongo(server.uri.replace("://", "://anna:wrong@"), "memory", wait_s=30)
        assert time.monotonic() - began < 5
        assert "wrong" not in str(told.value)
        open_mongo(server.uri.replace("://", "://anna:right@"), "memory", wait_s=30).close()


@pytest.mark.parametrize("uri", ["mongodb://", "http://127.0.0.1/", "mongodb://127.0.0.1:port/", "mongodb://a:b@c@d/"])
def test_an_address_that_is_none_is_told_at_once(uri: str) -> None:
    with pytest.raises(BadSetting, match="mongo_uri"):
        open_mongo(uri, "memory", wait_s=30)


def test_a_server_of_its_own_is_refused_with_what_to_do() -> None:
    with LoopbackServer(replica_set=None) as server, pytest.raises(GiveUp, match="--replSet"):
        open_mongo(server.uri, "memory", wait_s=5)


def test_a_server_that_starts_late_is_waited_for_and_the_log_says_so(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "ASKED_FOR_S", 0.5)
    server.vanish()
    threading.Timer(2.0, server.come_back).start()
    with caplog.at_level(logging.WARNING):
        store = open_mongo(server.uri, "memory", wait_s=30)
    store.close()
    waits = [record.getMessage() for record in caplog.records if "Waiting for MongoDB" in record.getMessage()]
    assert len(waits) >= 2
    assert "of at most 30" in waits[0]


def test_the_wait_for_a_server_that_never_comes_ends(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ASKED_FOR_S", 0.5)
    server.vanish()
    began = time.monotonic()
    with pytest.raises(StoreBusy, match="does not answer"):
        open_mongo(server.uri, "memory", wait_s=1.5)
    assert time.monotonic() - began < 6


@pytest.mark.parametrize("state", ["away", "building"])
def test_without_its_search_service_the_store_opens_and_is_written(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    behaviour = server.catalog.behaviour
    behaviour.reachable, behaviour.never_ready = state != "away", {"*"} if state == "building" else set()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        store = open_mongo(server.uri, "memory", wait_s=1)
    assert 0.9 < time.monotonic() - began < 10
    assert "Full text cannot be searched fast yet" in caplog.text
    try:
        put(store, "e", "some words")
        assert [hit.episode_id for hit in store.text.matching(["words"], 5, Where())] == ["e"]
        assert store.episodes.count(Where()) == 1
    finally:
        store.close()


def test_what_one_process_opened_another_opens_without_waiting(server: LoopbackServer) -> None:
    open_mongo(server.uri, "memory", wait_s=30).close()
    began = time.monotonic()
    open_mongo(server.uri, "memory", wait_s=30).close()
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("preference", ["secondaryPreferred", "nearest"])
def test_a_secondary_is_asked_for_nothing_that_is_stored_whatever_the_address_says(
    monkeypatch: pytest.MonkeyPatch, preference: str
) -> None:
    asked: set[tuple[str, int | None]] = set()

    def note(_: Sent, event: CommandStartedEvent) -> None:
        asked.add((event.command_name, event.connection_id[1]))

    monkeypatch.setattr(Sent, "started", note)
    watched(monkeypatch)
    with LoopbackServer() as server:
        with closing(open_mongo(f"{server.uri}&readPreference={preference}", "memory")) as store:
            put(store, "e", "zebra")
            assert list(store.episodes.get(["e"])) == ["e"]
            assert [hit.episode_id for hit in store.text.matching(["zebra"], 5, Where())] == ["e"]
        primary = server.replica_set.primary
    assert primary is not None
    assert {name for name, port in asked if port != primary.port} <= {"endSessions"}

"""Opening a MongoDB that is late, refuses, or does not search."""

import logging
import re
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace

import dns.resolver
import pytest
from pymongo.monitoring import CommandStartedEvent

from anamnesis_pipeline.errors import BadSetting, GiveUp, StoreBusy
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.mongo import fulltext, opening
from anamnesis_pipeline.store.mongo import search_indexes as search_indexes_of
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_pipeline.store.mongo.search_indexes import UNSPACED, text_definition
from anamnesis_tests.store.mongo_searched import (
    NAME,
    found,
    from_outside,
    search_indexes,
    wait_for,
    wait_until_queryable,
)
from anamnesis_tests.support.mongo_server.search_behaviour import EVERY
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.mongo_watching import Sent, watched
from anamnesis_tests.support.samples import put, space


def test_wrong_credentials_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    never = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waited"))
    monkeypatch.setattr(opening, "time", never)
    with LoopbackServer(user="anna", password="right") as server:
        with pytest.raises(GiveUp, match=r"refuses the user.*ANAMNESIS_MONGO_URI") as told:
            open_mongo(server.uri.replace("://", "://anna:wrong@"), "memory", wait_s=30)
        assert "wrong" not in str(told.value)
        open_mongo(server.uri.replace("://", "://anna:right@"), "memory", wait_s=30).close()


@pytest.mark.parametrize("uri", ["mongodb://", "http://127.0.0.1/", "mongodb://127.0.0.1:port/", "mongodb://a:b@c@d/"])
def test_an_address_that_is_none_is_told_at_once(uri: str) -> None:
    with pytest.raises(BadSetting, match="mongo_uri"):
        open_mongo(uri, "memory", wait_s=30)


@pytest.mark.parametrize(
    "problem", [dns.resolver.LifetimeTimeout(timeout=3, errors=[]), dns.resolver.NoNameservers(), OSError("no network")]
)
def test_names_that_cannot_be_looked_up_are_waited_for(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(name: str, *_: object, **__: object) -> None:
        asked.append(name)
        raise problem

    def sleep(seconds: float) -> None:
        now.append(now[-1] + seconds)

    now = [0.0]
    monkeypatch.setattr(opening, "time", SimpleNamespace(monotonic=lambda: now[-1], sleep=sleep))
    monkeypatch.setattr(dns.resolver, "resolve", resolve)
    with pytest.raises(StoreBusy, match=r"db\.example\.com/memory: its name cannot be looked up"):
        open_mongo("mongodb+srv://anna:right@db.example.com/", "memory", wait_s=1.2)
    assert len(asked) > 1
    assert 0.5 < now[-1] < 1.2


def test_a_name_that_is_nobodys_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise dns.resolver.NXDOMAIN

    monkeypatch.setattr(dns.resolver, "resolve", resolve)
    with pytest.raises(BadSetting, match="mongo_uri"):
        open_mongo("mongodb+srv://db.example.com/", "memory", wait_s=30)


def test_a_server_of_its_own_is_refused_with_what_to_do(server: LoopbackServer) -> None:
    told = "Transaction numbers are only allowed on a replica set member or mongos"
    server.faults.add("insert", "update", "findAndModify", error=20, says=told, times=None)
    with pytest.raises(GiveUp, match="start it with --replSet"):
        open_mongo(server.uri, "memory", wait_s=5)


def test_server_that_starts_late_is_waited_for_and_logged(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "ASKED_FOR_S", 0.5)

    def waits() -> list[str]:
        return [record.getMessage() for record in list(caplog.records) if "Waiting since" in record.getMessage()]

    def come_back_late() -> None:
        try:
            wait_for(lambda: len(waits()) >= 2)
        finally:
            server.come_back()

    server.vanish()
    late = threading.Thread(target=come_back_late)
    late.start()
    with caplog.at_level(logging.WARNING):
        store = open_mongo(server.uri, "memory", wait_s=60)
    store.close()
    late.join()
    assert len(waits()) >= 2
    assert re.search(r" of at most \d+: MongoDB ", waits()[0])


def test_the_wait_for_a_server_that_never_comes_ends(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ASKED_FOR_S", 0.5)
    server.vanish()
    with pytest.raises(StoreBusy, match="does not answer"):
        open_mongo(server.uri, "memory", wait_s=1.5)


@pytest.mark.parametrize("state", ["away", "building"])
def test_store_opens_without_its_search(server: LoopbackServer, caplog: pytest.LogCaptureFixture, state: str) -> None:
    behaviour = server.catalog.behaviour
    behaviour.reachable, behaviour.never_ready = state != "away", {EVERY} if state == "building" else set()
    for _ in range(2):  # as each run does
        caplog.clear()
        began = time.monotonic()
        store = open_mongo(server.uri, NAME, wait_s=60)
        assert time.monotonic() - began < 50
        assert caplog.text.count("Full text cannot be searched fast yet") == (state == "away")
        put(store, "e", "some words")
        assert found(store, "words") == ["e"]
        assert store.episodes.count(EpisodeFilter()) == 1
        store.close()
    behaviour.reachable = True
    assert len(search_indexes(server, "passages")) == (state == "building")


def test_index_is_made_once_the_service_is_back(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_indexes_of, "ASKED_AGAIN_S", 0.1)
    server.catalog.behaviour.reachable = False
    with closing(open_mongo(server.uri, NAME)) as store:
        put(store, "e", "some words")
        assert found(store, "words") == ["e"]
        server.catalog.behaviour.reachable = True
        assert found(store, "words") == ["e"]
        assert len(search_indexes(server, "passages")) == 1
        monkeypatch.setattr(fulltext, "MAX_SCANNED", 0)
        wait_until_queryable(server, "passages")
        assert found(store, "words") == ["e"]
        assert store.text.check() == []


def test_failed_index_is_made_anew_by_a_build_alone(server: LoopbackServer, caplog: pytest.LogCaptureFixture) -> None:
    server.catalog.behaviour.failing = {EVERY}
    for _ in range(3):
        with closing(open_mongo(server.uri, NAME)) as store:
            put(store, "e", "some words")
            assert found(store, "words") == ["e"]
        wait_for(lambda: server.catalog.list(NAME, "passages")[0]["status"] == "FAILED")
    assert len(search_indexes(server, "passages")) == 1
    assert "is FAILED" in caplog.text
    server.catalog.behaviour.failing = set()
    with closing(open_mongo(server.uri, NAME)) as store:
        store.spaces.put(space("s"))
        store.vectors.build("s")
        assert store.text.check() == []


def test_index_goes_once_its_successor_is_ready(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    open_mongo(server.uri, NAME).close()
    wait_until_queryable(server, "passages")
    (old,) = search_indexes(server, "passages")
    definition = text_definition()
    monkeypatch.setattr(search_indexes_of, "text_definition", lambda: {**definition, "numPartitions": 2})
    server.catalog.behaviour.never_ready = {EVERY}
    for _ in range(2):
        open_mongo(server.uri, NAME).close()
        assert old in search_indexes(server, "passages")
    server.catalog.behaviour.never_ready = set()
    wait_until_queryable(server, "passages")
    open_mongo(server.uri, NAME).close()
    assert len(search_indexes(server, "passages")) == 1
    assert old not in search_indexes(server, "passages")


@pytest.mark.parametrize("preference", ["secondaryPreferred", "nearest"])
def test_no_secondary_is_asked(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, preference: str) -> None:
    asked: dict[str, set[str]] = {}

    def note(_: Sent, event: CommandStartedEvent) -> None:
        member = event.command.get("$readPreference", {"mode": "primary"})["mode"]
        asked.setdefault(event.command_name, set()).add(member)

    monkeypatch.setattr(Sent, "started", note)
    watched(monkeypatch)
    with closing(open_mongo(f"{server.uri}&readPreference={preference}", "memory")) as store:
        put(store, "e", "zebra")
        assert list(store.episodes.get(["e"])) == ["e"]
        assert [hit.episode_id for hit in store.text.matching(["zebra"], 5, EpisodeFilter())] == ["e"]
    assert {"find", "aggregate", "insert"} <= asked.keys()
    assert {name for name, members in asked.items() if members != {"primary"}} <= {"endSessions"}


def test_what_an_older_version_counted_stays_counted(server: LoopbackServer) -> None:
    with closing(open_mongo(server.uri, NAME)) as store:
        for name in ("e", "other"):
            put(store, name, "text")
        for _ in range(3):
            store.episodes.track(["e"], datetime.now(UTC))
    with from_outside(server) as database:
        database.command("collMod", "episodes", validator={})
        database["episodes"].update_many({}, {"$unset": {"read_count": ""}})
        database["store"].update_one({}, {"$set": {"version": 2}})
    with closing(open_mongo(server.uri, NAME)) as store:
        found = store.episodes.get(["e", "other"])
        assert {name: each.read_count for name, each in found.items()} == {"e": 3, "other": 0}
        assert store.overview.most_read(EpisodeFilter(), 5) == ["e"]


def test_passages_of_an_older_version_get_full_text(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_ROWS_PER_WRITE", 2)
    texts = ["登录超时改成三十秒", "plain words", "夜间重跑gen-itgc后", "เซสชันหมดเวลา"]
    with closing(open_mongo(server.uri, NAME)) as store:
        keys = [put(store, f"e{n}", text, context=text)[0] for n, text in enumerate(texts)]
    with from_outside(server) as database:
        database["passages"].update_many({}, {"$unset": dict.fromkeys(UNSPACED.values(), "")})
        database["store"].update_one({}, {"$set": {"version": 1, "indexed_to": keys[0] - 1}})
    with closing(open_mongo(server.uri, NAME)) as store:
        for n, word in enumerate(["登录", "plain", "itgc", "หม"]):
            assert found(store, word) == [f"e{n}"]
    with from_outside(server) as database:
        (made,) = database["store"].find()
        assert made["version"] == opening.VERSION
        fields = [UNSPACED.values() & each.keys() for each in database["passages"].find(sort=[("_id", 1)])]
        assert fields == [set() if text.isascii() else {*UNSPACED.values()} for text in texts]


def test_what_an_older_version_had_to_observe_is_noted_with_its_source(server: LoopbackServer) -> None:
    with closing(open_mongo(server.uri, NAME)) as store:
        put(store, "e1", "said in a log", session_id="s1", source="box--logs")
    with from_outside(server) as database:
        database.command("collMod", "unobserved", validator={})
        database["unobserved"].update_many({}, {"$unset": {"source": ""}})
        database["store"].update_one({}, {"$set": {"version": 4}})
    with closing(open_mongo(server.uri, NAME)) as store:
        assert store.observations.unobserved_count() == 0
        store.observations.note_all()
        assert [each.origin for each in store.observations.unobserved(10, ["box--logs"])] == ["s1"]


def test_sessions_of_an_older_version_are_noted(server: LoopbackServer) -> None:
    with closing(open_mongo(server.uri, NAME)) as store:
        put(store, "e1", "said in a log", session_id="s1", source="box--logs")
        put(store, "e2", "posted", session_id="s2", source="direct")
    with from_outside(server) as database:
        database["session_notes"].delete_many({})
        database["store"].update_one({}, {"$set": {"version": 2}})
    with closing(open_mongo(server.uri, NAME)) as store:
        assert store.sessions.changed("box--logs", "", 10) == ["s1"]
        assert store.sessions.states(["s2"]) == []

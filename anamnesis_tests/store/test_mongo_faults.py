"""What goes wrong on the way to MongoDB is told in our errors, loses nothing, and is over when the server is back."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

import psutil
import pymongo
import pytest

from anamnesis_pipeline.errors import GiveUp, StoreBusy, StoreFull
from anamnesis_pipeline.model import EpisodeFilter, LlmBudget, LlmUse
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import client, fulltext
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.engine import MongoGateway
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_pipeline.store.records.exclusion import BuriedSection
from anamnesis_pipeline.store.records.settings import SettingsRecords
from anamnesis_tests.store.mongo_searched import wait_for
from anamnesis_tests.store.test_contract_documents import commit, section
from anamnesis_tests.support.mongo_server.faults import DISK_FULL, TOO_LARGE
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.samples import DAY, at_once, episode, parsed, part, passages, put, segment

NAME = "faults"
SLOW_S = 2.0
"""An answer that takes longer is not waited for, where a test makes the server slow."""
WRITE_CONFLICT, UNAUTHORIZED = 112, 13
DAY_OF_CALLS = "2026-03-01"


@pytest.fixture
def server(server: LoopbackServer) -> LoopbackServer:
    """With a store that is made already, for which a busy machine takes its time."""
    open_mongo(server.uri, NAME, wait_s=20).close()
    return server


@pytest.fixture
def answer_s() -> float:
    """So long a client waits for an answer: for a busy machine, where no test makes the server slow."""
    return 60.0


@pytest.fixture(autouse=True)
def impatient(server: LoopbackServer, answer_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the store is made, an answer that does not come is not waited for."""
    monkeypatch.setattr(client, "SOCKET_TIMEOUT_MS", 1_000 * answer_s)


@pytest.fixture
def store(server: LoopbackServer) -> Iterator[Store]:
    with closing(open_mongo(server.uri, NAME, wait_s=20)) as opened:
        yield opened


@pytest.fixture
def database(store: Store, server: LoopbackServer) -> Iterator[Database]:
    with closing(Database(server.uri, NAME)) as opened:
        yield opened


def everything(database: Database) -> dict[str, Any]:
    """All that is stored, but for the numbers that are taken."""
    with database.read() as tables:
        return {name: tables[name].find({}, order=[("_id", 1)]) for name in tables.names() - {"counters", "writer"}}


# --- the server is gone ----------------------------------------------------------------------------------


def test_outage_is_told_and_then_over(store: Store, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    store.settings.set("a", 1)
    server.vanish()
    with pytest.raises(StoreBusy, match=r"MongoDB 127.0.0.1.* does not answer.*asked again with the next call"):
        store.settings.get("a")
    with pytest.raises(StoreBusy, match="does not answer"), pymongo.timeout(2):
        store.settings.set("a", 2)
    server.come_back()
    monkeypatch.setattr(client, "SILENT_S", 30)  # one second is enough for a machine that has nothing else to do
    assert store.settings.get("a") == 1
    store.settings.set("a", 2)
    assert store.settings.get("a") == 2


def test_first_answer_of_a_server_is_not_waited_for(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SELECTION_TIMEOUT_MS", 60_000)
    monkeypatch.setattr(client, "HEARTBEAT_MS", 120_000)
    with closing(open_mongo(server.uri, NAME, wait_s=20)) as store:
        store.settings.set("a", 1)
        server.vanish()
        time.sleep(1.5)  # long enough for the driver to look at the server every two minutes only
        server.come_back()
        # the driver looks at once when it is asked, and then every half a second
        assert store.settings.get("a") == 1


def test_a_write_outlasts_a_server_that_is_gone_for_a_while(store: Store, server: LoopbackServer) -> None:
    parsed(store, part(segment("m1")))
    server.vanish()
    back = threading.Timer(2.5, server.come_back)
    back.start()
    store.forgetting.bury({"a": ["k1"]})
    back.join()
    assert store.forgetting.forgotten(["k1"]) == {"k1"}
    assert len(store.forgetting.parts_after("", 9)) == 1


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, psutil.Process]]:
    """A server that can be stopped by a signal, and hangs then: it accepts connections and answers nothing."""
    monkeypatch.setattr(client, "HEARTBEAT_MS", 500)
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_MS", 1_000)
    command = [sys.executable, "-m", "anamnesis_tests.support.mongo_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), psutil.Process(process.pid)
        finally:
            process.kill()


def test_hanging_server_is_told(another_process: tuple[str, psutil.Process], monkeypatch: pytest.MonkeyPatch) -> None:
    uri, process = another_process
    with closing(open_mongo(uri, NAME, wait_s=60)) as store:
        put(store, "e", "some words")
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="does not answer"):
            store.settings.get("a")
        first_s = time.monotonic() - began
        assert first_s < 45, "the server would have had a minute for its answer"
        monkeypatch.setattr(client, "SILENT_S", 0.1)
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="does not answer"):
            store.settings.get("a")
        assert time.monotonic() - began < first_s
        process.resume()
        monkeypatch.setattr(client, "SILENT_S", 30)
        monkeypatch.setattr(fulltext, "SEARCHED_S", 30)
        assert store.settings.get("a") is None
        assert [hit.episode_id for hit in store.text.matching(["words"], 5, EpisodeFilter())] == ["e"]


def test_slow_search_is_given_up_in_time(store: Store, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, "e", "some words")
    monkeypatch.setattr(fulltext, "SEARCHED_S", 1.0)
    server.faults.add("aggregate", "find", delay_s=60.0, times=None)
    with pytest.raises(StoreBusy, match="it took too long"):
        store.text.matching(["words"], 5, EpisodeFilter())
    server.faults.clear()
    monkeypatch.setattr(fulltext, "SEARCHED_S", 20)
    assert [hit.episode_id for hit in store.text.matching(["words"], 5, EpisodeFilter())] == ["e"]


def test_waiting_writers_give_up(database: Database, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SettingsRecords(MongoGateway(database))
    server.vanish()
    first = threading.Thread(target=settings.set, args=("a", 1))
    first.start()
    wait_for(database._turn.locked)
    monkeypatch.setattr(client, "TURN_TIMEOUT_S", 0.2)
    with pytest.raises(StoreBusy, match="another write of this process"):
        settings.set("b", 1)
    server.come_back()
    first.join()
    assert (settings.get("a"), settings.get("b")) == (1, None)


# --- another primary -------------------------------------------------------------------------------------


def test_transaction_is_done_once_over_a_step_down(database: Database, server: LoopbackServer) -> None:
    runs = []

    def work(tables: Collections) -> None:
        tables["settings"].insert([{"name": f"n{len(runs)}", "value": "1"}])
        runs.append(1)
        if len(runs) == 1:
            server.step_down()
        tables["settings"].upsert({"name": "both"}, {"$set": {"value": "1"}})

    database.write(work)
    with database.read() as tables:
        names = [each["name"] for each in tables["settings"].find({"value": "1"})]
    assert (len(runs), sorted(names)) == (2, ["both", "n1"])


WRITES: dict[str, Callable[[Store], Any]] = {
    "documents": lambda store: commit(store, section("One", "first"), section("Two", "second")),
    "graves": lambda store: store.forgetting.bury({"a": ["k1", "k2"], "b": []}),
    "sections": lambda store: store.exclusion.bury_sections([BuriedSection("a", "s", "p", "q", b"")]),
    "questions": lambda store: store.queries.note("which port", {}, [], DAY),
    "episodes": lambda store: store.episodes.put([(episode("e"), passages("one", "two"))]),
    "calls": lambda store: store.llm.reserve("c", DAY_OF_CALLS, "b", "m", LlmUse(1, 2, 3, 0.5), LlmBudget()),
    "replies": lambda store: store.llm.put_reply("k", "told", "b", "m"),
}


MADE: dict[str, dict[str, int]] = {
    "documents": {"files": 1, "parts": 2, "sightings": 2},
    "graves": {"tombstones": 2, "tombstone_keys": 2},
    "sections": {"buried_sections": 1},
    "questions": {"query_log": 1},
    "episodes": {"episodes": 1, "passages": 2, "events": 1, "unobserved": 1, "unlinked": 1},
    "calls": {"llm_calls": 1},
    "replies": {"llm_replies": 1},
}
"""What each makes, by collection."""
FAULTS: dict[str, Callable[[LoopbackServer], Any]] = {
    "no commit": lambda server: server.faults.add("commitTransaction", drop="before"),
    "no answer": lambda server: server.faults.add("commitTransaction", drop="after"),
    "a slow answer": lambda server: server.faults.add("commitTransaction", delay_s=SLOW_S + 0.5),
    "a conflict": lambda server: server.faults.add(
        "commitTransaction", error=WRITE_CONFLICT, labels=("TransientTransactionError",)
    ),
    "another primary": lambda server: server.faults.add("commitTransaction", does=server.step_down),
}


@pytest.mark.parametrize(
    ("fault", "answer_s"), [pytest.param(each, SLOW_S if "slow" in each else 60.0, id=each) for each in sorted(FAULTS)]
)
@pytest.mark.parametrize("write", sorted(WRITES))
def test_write_is_there_once(store: Store, database: Database, server: LoopbackServer, write: str, fault: str) -> None:
    commit(store, section("Zero", "zeroth", path="z.md"), path="z.md")
    fresh = everything(database)
    FAULTS[fault](server)
    WRITES[write](store)
    server.faults.clear()
    once = everything(database)
    assert {name: len(once[name]) - len(rows) for name, rows in fresh.items() if once[name] != rows} == MADE[write]


@pytest.mark.parametrize("kind", ["find", "aggregate"])
def test_read_over_a_step_down_is_asked_of_the_next(store: Store, server: LoopbackServer, kind: str) -> None:
    store.llm.reserve("c", DAY_OF_CALLS, "b", "m", LlmUse(1), LlmBudget())
    server.faults.add(kind, does=server.step_down)
    assert store.llm.used(DAY_OF_CALLS).calls == 1
    assert store.settings.get("none") is None


# --- no room ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", sorted(WRITES))
def test_full_server_keeps_no_part(store: Store, database: Database, server: LoopbackServer, write: str) -> None:
    commit(store, section("Zero", "zeroth"))
    before = everything(database)
    server.faults.disk_is_full = True
    with pytest.raises(StoreFull, match=r"no room to write.*nothing was half written"):
        WRITES[write](store)
    assert everything(database) == before
    server.faults.clear()
    WRITES[write](store)
    assert everything(database) != before


@pytest.mark.parametrize("passed", range(6))
def test_write_that_fills_it_is_undone(store: Store, database: Database, server: LoopbackServer, passed: int) -> None:
    before = everything(database)
    fault = server.faults.add("insert", "update", skip=passed, error=DISK_FULL)
    with suppress(StoreFull):
        store.episodes.put([(episode("e"), passages("one", "two"))])
    assert (everything(database) == before) == bool(fault.met)


# --- refusals --------------------------------------------------------------------------------------------


def test_a_user_who_may_only_read_is_told_so(store: Store, server: LoopbackServer) -> None:
    server.faults.add("update", "insert", error=UNAUTHORIZED, times=None)
    with pytest.raises(GiveUp, match="what it may do"):
        store.settings.set("a", 1)
    assert store.settings.get("a") is None


def test_too_large_document_is_told_and_undone(store: Store, server: LoopbackServer) -> None:
    server.faults.add("insert", "update", error=TOO_LARGE, times=None, over_bytes=300_000)
    large = "walrus " * 60_000
    with pytest.raises(GiveUp, match=r"one document for episodes has more than the 16 MB.*split the text"):
        store.episodes.put([(episode("e", raw_exchange=large), passages("one"))])
    with pytest.raises(GiveUp, match="for llm_replies"):
        store.llm.put_reply("k", large, "b", "m")
    assert store.episodes.get(["e"]) == {}
    assert store.episodes.passages_of("e") == []
    assert store.episodes.put([(episode("e"), passages("one"))]).created == 1


# --- two writers -----------------------------------------------------------------------------------------


def test_two_writers_of_the_same_new_rows_see_one_of_each(store: Store, server: LoopbackServer) -> None:
    def write(each: Store) -> None:
        for n in range(10):
            each.llm.put_reply(f"k{n}", "told", "b", "m")
            each.forgetting.bury({f"e{n}": [f"m{n}"]})
            each.exclusion.bury_sections([BuriedSection(f"e{n}", "logs", f"{n}.md", f"{n}", b"kept")])
            each.episodes.put([(episode(f"e-{n}"), passages("one"))])

    with closing(open_mongo(server.uri, NAME, wait_s=20)) as other:
        at_once([partial(write, each) for each in (store, other)])
        for each in (store, other):
            assert len(each.llm.replies_after("", 99)) == 10
            assert len(each.exclusion.tombstones(99)) == 10
            assert [len(each.exclusion.buried_at("logs", f"{n}", [])) for n in range(10)] == [1] * 10
            assert len(each.episodes.get([f"e-{n}" for n in range(10)])) == 10


# --- slow answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer_s", [SLOW_S])
def test_slow_answer_is_told_and_the_next_one_comes(store: Store, server: LoopbackServer) -> None:
    store.settings.set("a", 1)
    server.faults.add("find", delay_s=SLOW_S + 0.5, times=2)  # the driver asks twice
    with pytest.raises(StoreBusy, match=r"does not answer .it took too long"):
        store.settings.get("a")
    assert store.settings.get("a") == 1

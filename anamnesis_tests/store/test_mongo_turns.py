"""The writer's turn: who waits for another process gets it next, with few questions, and not for ever."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from pymongo.collection import Collection as DriverCollection

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.store.mongo import client
from anamnesis_pipeline.store.mongo.client import TURN, Collections, Database, Turns
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.engine import MongoGateway
from anamnesis_pipeline.store.mongo.native import MongoNative
from anamnesis_pipeline.store.records import episodes
from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.store.mongo_searched import wait_for
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.mongo_watching import Sent

LONG_S = 30.0


@pytest.fixture
def ours(sent: Sent, tmp_path: Path) -> Iterator[Database]:
    with closing(Database(shared.uri(), mongo_database(tmp_path))) as opened:
        opened.write(lambda tables: None)
        yield opened
    shared.drop(mongo_database(tmp_path))


@pytest.fixture
def theirs(ours: Database) -> Iterator[Database]:
    """The same, of another process."""
    with closing(Database(shared.uri(), ours.name)) as opened:
        yield opened


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody is about to wait."""
    event, wait = threading.Event(), Turns.wait

    def told(self: Turns, writer: DriverCollection[Document], within_s: float) -> None:
        event.set()
        wait(self, writer, within_s)

    monkeypatch.setattr(Turns, "wait", told)
    return event


@contextmanager
def held(database: Database) -> Iterator[threading.Event]:
    """Its turn is taken until the event is set, or to the end."""
    began, over = threading.Event(), threading.Event()

    def hold(tables: Collections) -> None:
        began.set()
        over.wait(LONG_S)

    with apart(lambda: database.write(hold)):
        assert began.wait(LONG_S)
        try:
            yield over
        finally:
            over.set()


@contextmanager
def apart(work: Callable[[], object]) -> Iterator[None]:
    """Do this in a thread, and see it end."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(LONG_S)
    assert not thread.is_alive()


def state(database: Database) -> Document:
    with database.read() as tables:
        return tables["writer"].one(TURN) or {}


def test_who_waits_is_let_first_by_who_just_wrote(
    ours: Database, theirs: Database, waits: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GIVES_WAY_S", LONG_S)
    monkeypatch.setattr(client, "MAX_LATER_S", 0.3)
    theirs._turns._took_s = LONG_S  # so that they come late, for all that ours needs to write once more
    began, order = threading.Event(), list[str]()

    def first(tables: Collections) -> None:
        began.set()
        waits.wait(LONG_S)
        order.append("ours")

    with apart(lambda: ours.write(first)):
        assert began.wait(LONG_S)
        with apart(lambda: theirs.write(lambda tables: order.append("theirs"))):
            wait_for(lambda: state(ours).get("waited", 0) > 0)
            ours.write(lambda tables: order.append("ours again"))
    assert order == ["ours", "theirs", "ours again"]


def test_who_waits_for_long_asks_twice(ours: Database, theirs: Database, waits: threading.Event, sent: Sent) -> None:
    tried: list[int] = []

    def hold(tables: Collections) -> None:
        began.set()
        waits.wait(LONG_S)
        time.sleep(0.5)

    began = threading.Event()
    with apart(lambda: ours.write(hold)):
        assert began.wait(LONG_S)
        sent.commands.clear()
        theirs.write(lambda tables: tried.append(1))
    assert tried == [1]
    assert [name for name, _ in sent.commands].count("abortTransaction") == 1


def test_nobody_is_waited_for_for_ever(ours: Database, theirs: Database) -> None:
    with held(ours), pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "WAITED_S", 0.3)
        patched.setattr(client, "WAITS_S", 0.1)
        with pytest.raises(StoreBusy, match="other processes wrote"):
            theirs.write(lambda tables: None)
    theirs.write(lambda tables: None)


def test_answer_does_not_wait_to_be_counted(ours: Database, theirs: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "TRACKED_S", 0.3)
    with held(ours):
        for database in (ours, theirs):
            with pytest.raises(StoreBusy):
                episodes.EpisodeRecords(MongoGateway(database), MongoNative()).track(["e"], datetime.now(UTC))
    monkeypatch.setattr(episodes, "TRACKED_S", LONG_S)
    episodes.EpisodeRecords(MongoGateway(theirs), MongoNative()).track(["e"], datetime.now(UTC))


def test_a_turn_is_not_cut_off_when_it_was_got_late(ours: Database, theirs: Database) -> None:
    name = {"name": "slow"}

    def slow(tables: Collections) -> None:
        tables["settings"].upsert(name, {"$set": {"value": "1"}})
        time.sleep(1.2)
        tables["settings"].update(name, {"$set": {"value": "2"}})

    ours.write(slow, within_s=1.0)
    theirs.write(lambda tables: tables["settings"].update(name, {"$set": {"value": "3"}}), within_s=LONG_S)
    with ours.read() as tables:
        assert tables["settings"].one(name, ("value",)) == {"value": "3"}


def test_who_waits_for_long_says_for_what(
    ours: Database, theirs: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "LONG_S", 0.3)
    monkeypatch.setattr(client, "WAITS_S", 0.2)
    with held(ours) as over, apart(lambda: theirs.write(lambda tables: None)):
        wait_for(lambda: bool(caplog.messages))
        over.set()
    assert f"{theirs.place}: waiting for another writer since" in caplog.text
    assert "one that was killed holds its turn for up to a minute" in caplog.text


def test_who_let_another_first_comes_after_those_who_wait(ours: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    slept, numbers = list[float](), iter([7, 7, 8])
    monkeypatch.setattr(client, "_state", lambda writer: (next(numbers), 1))
    monkeypatch.setattr(client, "GIVES_WAY_S", LONG_S)
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    known = Turns()
    known.ended(time.monotonic() - LONG_S)
    known.give_way(ours._current()[ours.name]["writer"])
    assert slept == [client.LOOKS_EVERY_S, client.MAX_LATER_S]

"""`up` says which store it waits for, once, and when that is back."""

import threading
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from anamnesis_pipeline.cli.up import StoreWatch, open_when_there
from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.runtime.supervision import StopRequest
from anamnesis_pipeline.services.wiring import open_store, store_place
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.mongo import client, opening
from anamnesis_tests.runtime.conftest import wait_for
from anamnesis_tests.support.mongo_server.server import LoopbackServer


@pytest.fixture
def settings(server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a store in MongoDB that was opened before, and of somebody who does not wait for long."""
    found = Settings(home=tmp_path, store="mongo", mongo_uri=SecretStr(server.uri), mongo_wait_s=30)
    open_store(found).close()
    monkeypatch.setattr(opening, "ASKED_FOR_S", 1.5)
    monkeypatch.setattr(client, "SELECTION_TIMEOUT_MS", 1_500)
    return found


def test_server_away_at_the_start_is_named_once_and_waited_for(settings: Settings, server: LoopbackServer) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 1:
            server.come_back()

    server.vanish()
    store = open_when_there(settings, StopRequest(), say)
    assert store is not None
    store.close()
    waiting, there = said
    assert "nothing listens there" in waiting
    assert waiting.startswith(store_place(settings))
    assert "Waiting 30 s at most: start MongoDB" in waiting
    assert there == f"{store_place(settings)} answers"


def test_wait_for_a_server_ends_in_time_or_when_asked_to_stop(settings: Settings, server: LoopbackServer) -> None:
    server.vanish()
    with pytest.raises(StoreBusy, match=r"did not answer within 1 s; start MongoDB"):
        open_when_there(settings.model_copy(update={"mongo_wait_s": 1}), StopRequest(), lambda _: None)
    stop = StopRequest()
    threading.Timer(1, stop).start()
    assert open_when_there(settings, stop, lambda _: None) is None


def test_server_that_goes_and_comes_back_is_told_of_once_each(settings: Settings, server: LoopbackServer) -> None:
    said: list[str] = []
    with closing(open_store(settings)) as store, StoreWatch(settings, store, said.append, every_s=0.1):
        server.vanish()
        wait_for(lambda: said)
        assert "does not answer" in said[0]
        assert "start MongoDB" in said[0]
        server.come_back()
        wait_for(lambda: len(said) > 1)
    assert said[1:] == [f"{store_place(settings)} answers again"]


def test_of_a_file_nothing_is_said(tmp_path: Path) -> None:
    settings, said = Settings(home=tmp_path), list[str]()
    store = open_when_there(settings, StopRequest(), said.append)
    assert store is not None
    with closing(store), StoreWatch(settings, store, said.append, every_s=0.01):
        pass
    assert said == []

"""What doctor says of a store in MongoDB."""

from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.commands.doctor import examine, render
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.mongo import fulltext
from anamnesis_pipeline.wiring import open_store
from anamnesis_tests.mongo_server.server import LoopbackServer
from anamnesis_tests.store.samples import put


@pytest.fixture
def settings(server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    values = {"HOME": str(tmp_path), "LOG_ROOTS": str(tmp_path), "STORE": "mongo", "MONGO_URI": server.uri}
    for name, value in values.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    found = Settings()
    open_store(found).close()
    return found


def test_a_server_without_room_is_wrong_until_it_takes_a_write(settings: Settings, server: LoopbackServer) -> None:
    server.faults.disk_is_full = True
    told = render(examine(settings))
    assert "WRONG writing: MongoDB 127.0.0.1" in told
    assert "has no room to write" in told
    server.faults.disk_is_full = False
    assert "ok    writing: the store takes what is written" in render(examine(settings))


def test_one_that_is_away_is_to_be_started_and_one_whose_user_is_wrong_is_not(
    settings: Settings, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults.add("ping", error=18, times=9)
    told = render(examine(settings))
    assert "refuses the user" in told
    assert "start MongoDB" not in told
    server.vanish()
    monkeypatch.setattr("anamnesis_pipeline.store.mongo.opening.ASKED_FOR_S", 1.5)
    told = render(examine(settings))
    assert "does not answer (nobody listens there)" in told
    assert "-> start MongoDB" in told


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ({"reachable": False}, "WRONG store: search index passages_text"),
        ({"frozen": True}, "ok    store: search index passages_text"),
    ],
)
def test_a_search_index_that_is_down_or_behind_is_no_reason_to_restore_anything(
    settings: Settings, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, bool], told: str
) -> None:
    monkeypatch.setattr(fulltext, "CHECKED_FOR_S", 0.1)
    for name, value in behaviour.items():
        setattr(server.catalog.behaviour, name, value)
    with closing(open_store(settings)) as store:
        put(store, "new", "Written while the search service reads nothing")
    found = render(examine(settings))
    assert told in found
    assert "nothing is damaged" in found
    assert "backup" not in found

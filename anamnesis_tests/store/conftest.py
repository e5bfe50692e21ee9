"""What is the same for all tests of stores, and for those with a MongoDB of their own."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo import fulltext, search_indexes, vectors
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.store.mongo_searched import Open, handles
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.mongo_server.search_behaviour import SearchBehaviour
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.mongo_watching import Sent, watched


@pytest.fixture(autouse=True)
def indexes_settle_quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loopback server's indexes have shown is there whole, unless a test tells them otherwise; those of a real
    one are late. A test with a `server` has a loopback one of its own, whatever the others run on.
    """
    if "server" in request.fixturenames or not shared.is_given():
        monkeypatch.setattr(search_indexes, "SETTLED_AFTER_S", 0.0)
        for module in (fulltext, vectors):  # the process of the tests is the server, too, on a busy machine
            monkeypatch.setattr(module, "SEARCHED_S", 60.0)


@pytest.fixture
def behaviour(server: LoopbackServer) -> SearchBehaviour:
    """What the search process does from now on."""
    return server.catalog.behaviour


@pytest.fixture
def open_it(server: LoopbackServer) -> Iterator[Open]:
    yield from handles(server)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What clients send to MongoDB; to be asked for before the store whose client it listens to."""
    return watched(monkeypatch)


@pytest.fixture
def database(store: Store, tmp_path: Path) -> Iterator[Database]:
    """The MongoDB database of the test's store."""
    with closing(Database(shared.uri(), mongo_database(tmp_path))) as database:
        yield database

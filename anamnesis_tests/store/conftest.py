"""What is the same for all tests of stores, and for those with a MongoDB of their own."""

from collections.abc import Iterator

import pytest

from anamnesis_pipeline.store.mongo import fulltext, index_tail, vectors
from anamnesis_tests.mongo_server import shared
from anamnesis_tests.mongo_server.search_behaviour import SearchBehaviour
from anamnesis_tests.mongo_server.server import LoopbackServer
from anamnesis_tests.store.mongo_searched import Open, handles


@pytest.fixture(autouse=True)
def indexes_settle_quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loopback server's indexes show what was written at once and whole, unless a test tells them otherwise; those of
    a real one do not. A test with a `server` has a loopback one of its own, whatever the others run on.
    """
    if "server" in request.fixturenames or not shared.is_given():
        monkeypatch.setattr(index_tail, "SETTLED_AFTER_S", 0.1)
        for module in (fulltext, vectors):  # the process of the tests is the server, too, on a busy machine
            monkeypatch.setattr(module, "SEARCHED_S", 60.0)


@pytest.fixture
def behaviour(server: LoopbackServer) -> SearchBehaviour:
    """What the search process does from now on."""
    return server.catalog.behaviour


@pytest.fixture
def open_it(server: LoopbackServer) -> Iterator[Open]:
    yield from handles(server)

"""A server of its own for each test, and the real client."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from anamnesis_tests.mongo_server.server import LoopbackServer

Client = MongoClient[dict[str, Any]]
Data = Database[dict[str, Any]]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """Two members, an empty memory."""
    with LoopbackServer() as started:
        yield started


@pytest.fixture
def connect(server: LoopbackServer) -> Iterator[Callable[..., Client]]:
    """Opens clients of the server, and closes them at the end."""
    opened: list[Client] = []

    def another(**options: Any) -> Client:
        opened.append(MongoClient(server.uri, **({"serverSelectionTimeoutMS": 5000} | options)))
        return opened[-1]

    yield another
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """A client."""
    return connect()


@pytest.fixture
def data(client: Client) -> Data:
    """An empty database."""
    return client["data"]

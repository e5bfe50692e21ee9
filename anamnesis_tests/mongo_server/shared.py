"""The MongoDB that the tests of one pytest process share, and the processes that they start.

ANAMNESIS_TEST_MONGO_URI names it. Where that is not set, a loopback server is started with the first test that needs
one, and set there for the child processes.
"""

import os

from pymongo import MongoClient

from anamnesis_tests.mongo_server.server import LoopbackServer

VARIABLE = "ANAMNESIS_TEST_MONGO_URI"
TRANSACTION_LIFETIME_S = 15.0
"""A client that a test kills within a transaction keeps all others waiting so long, and not the minute of a server."""

_started: list[LoopbackServer] = []


def uri() -> str:
    """Where it is."""
    if VARIABLE not in os.environ:
        _started.append(LoopbackServer(transaction_lifetime_s=TRANSACTION_LIFETIME_S).start())
        os.environ[VARIABLE] = _started[0].uri
    return os.environ[VARIABLE]


def is_given() -> bool:
    """Whether it is another process or a real one."""
    return VARIABLE in os.environ and not _started


def server() -> LoopbackServer | None:
    """The loopback server of this process, for tests that make it fail; None: it is another process or a real one."""
    uri()
    return _started[0] if _started else None


def drop(database: str) -> None:
    """Remove a test's database."""
    with MongoClient[dict[str, object]](uri()) as client:
        client.drop_database(database)


def stop() -> None:
    """End the loopback server, if this process has one."""
    while _started:
        os.environ.pop(VARIABLE, None)
        _started.pop().stop()

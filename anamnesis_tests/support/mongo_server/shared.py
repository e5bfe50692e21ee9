"""The MongoDB that the tests of one pytest process share, and the processes that they start.

ANAMNESIS_TEST_MONGO_URI names it. Where that is not set, a loopback server is started with the first test that needs
one, and set there for the child processes. Tests that make a server fail use the loopback one, whatever is set.
"""

import os

from pymongo import MongoClient

from anamnesis_tests.support.mongo_server.server import LoopbackServer

VARIABLE = "ANAMNESIS_TEST_MONGO_URI"

_started: list[LoopbackServer] = []


def loopback() -> LoopbackServer:
    """The loopback server of this process."""
    if not _started:
        _started.append(LoopbackServer().start())
        os.environ.setdefault(VARIABLE, _started[0].uri)
    return _started[0]


def uri() -> str:
    """Where the tests' MongoDB is."""
    if VARIABLE not in os.environ:
        loopback()
    return os.environ[VARIABLE]


def is_given() -> bool:
    """Whether it is another process or a real one."""
    return VARIABLE in os.environ and not (_started and os.environ[VARIABLE] == _started[0].uri)


def server() -> LoopbackServer | None:
    """The tests' MongoDB, for tests that make it fail; None: it is another process or a real one."""
    uri()
    return None if is_given() else _started[0]


def drop(database: str) -> None:
    """Remove a test's database."""
    if (own := server()) is not None:
        own.drop(database)
        return
    with MongoClient[dict[str, object]](uri()) as client:
        client.drop_database(database)


def stop() -> None:
    """End the loopback server, if this process has one."""
    while _started:
        own = _started.pop()
        if os.environ.get(VARIABLE) == own.uri:
            del os.environ[VARIABLE]
        own.stop()

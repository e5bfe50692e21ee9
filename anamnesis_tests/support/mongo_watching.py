"""What the tests of the store in MongoDB look at beside the contract: the database itself, and what is sent to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from anamnesis_pipeline.store.mongo import client
from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.support.mongo_server import shared


class Sent(CommandListener):
    """Names of the commands that clients sent, and the collections they were for, since `clear`."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.commands.append((event.command_name, str(event.command[event.command_name])))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def during(self, work: Callable[[], Any]) -> int:
        """How many commands some work sends."""
        self.commands.clear()
        work()
        return len(self.commands)


def watched(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What every client sends that is made from now on."""
    listener, make = Sent(), client.MongoClient
    monkeypatch.setattr(client, "GIVES_WAY_S", 0)  # or a write looks whether another one waits, now and then
    monkeypatch.setattr(client, "MongoClient", lambda *args, **given: make(*args, **given, event_listeners=[listener]))
    return listener


def everything(folder: Path) -> str:
    """All that is in the database of a test's store, in every collection, as text."""
    with MongoClient[dict[str, Any]](shared.uri()) as reader:
        database = reader[mongo_database(folder)]
        return repr([list(database[name].find()) for name in sorted(database.list_collection_names())])

"""What no part of the system does to a store, done from outside."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.support.mongo_server import shared


def make_of_nothing(place: tuple[str, Path], part_id: str) -> None:
    """Let the episode of a part wait for a text that the part does not have.

    :param place: the fixture: backend and folder of the store.
    """
    backend, folder = place
    if backend == "mongo":
        with MongoClient[dict[str, Any]](shared.uri()) as client:
            parts = client[mongo_database(folder)]["parts"]
            parts.update_one({"part_id": part_id}, {"$set": {"wanted_hash": "of nothing"}})
        return
    with closing(sqlite3.connect(folder / "anamnesis.db")) as tampering, tampering:
        tampering.execute("UPDATE parts SET wanted_hash = 'of nothing' WHERE part_id = ?", (part_id,))

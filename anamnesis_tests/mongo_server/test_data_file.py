"""What a server holds outlives its process, if it is given a file for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, WriteError
from pymongo.operations import SearchIndexModel


@contextmanager
def process(data: Path) -> Iterator[Database[dict[str, Any]]]:
    """A database of a server of its own, which ends as a container does."""
    command = [sys.executable, "-m", "anamnesis_tests.mongo_server", "--members", "1", "--data", str(data)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as run:
        assert run.stdout is not None
        try:
            with MongoClient[dict[str, Any]](run.stdout.readline().strip(), serverSelectionTimeoutMS=5000) as client:
                yield client.things
        finally:
            run.send_signal(signal.SIGTERM)
            assert run.wait(timeout=60) == 0


def test_documents_indexes_and_validators_are_as_they_were(tmp_path: Path) -> None:
    data = tmp_path / "data.bson"
    with process(data) as things:
        things.create_collection("tools", validator={"weight": {"$gt": 0}})
        things.tools.create_index("name", unique=True)
        things.tools.create_search_index(
            SearchIndexModel({"mappings": {"fields": {"name": {"type": "string"}}}}, name="words")
        )
        things.tools.insert_many([{"_id": number, "name": f"saw {number}", "weight": 1} for number in range(3)])
        things.notes.insert_one({"_id": "of another collection"})
    with process(data) as things:
        assert [tool["name"] for tool in things.tools.find()] == ["saw 0", "saw 1", "saw 2"]
        assert things.notes.count_documents({}) == 1
        deadline = time.monotonic() + 20
        while not next(things.tools.list_search_indexes("words"))["queryable"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        stage = {"$search": {"index": "words", "text": {"query": "saw", "path": "name"}}}
        assert len(list(things.tools.aggregate([stage]))) == 3
        with pytest.raises(DuplicateKeyError):
            things.tools.insert_one({"name": "saw 1", "weight": 1})
        with pytest.raises(WriteError, match="failed validation"):
            things.tools.insert_one({"name": "feather", "weight": 0})
        things.tools.delete_one({"_id": 0})
    with process(data) as things:
        assert things.tools.count_documents({}) == 2

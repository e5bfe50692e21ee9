"""What a server holds, in a file: written when it ends, read when it starts, so that its container can be restarted.

The file is a row of BSON documents: one per collection, followed by its documents.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bson

from anamnesis_tests.mongo_server.indexes import Index
from anamnesis_tests.mongo_server.storage import Collection, Reader
from anamnesis_tests.mongo_server.wire import CODEC

if TYPE_CHECKING:
    from anamnesis_tests.mongo_server.server import LoopbackServer


def save(server: "LoopbackServer", path: Path) -> None:
    """Write everything that is committed, in the place of what the file held. Nobody may be connected any more."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for document in _described(server):
            file.write(bson.encode(document))
    part.replace(path)


def load(server: "LoopbackServer", path: Path) -> None:
    """Fill a server that holds nothing yet; its search indexes are built as after their command."""
    with path.open("rb") as file, server.engine.lock:
        entries = bson.decode_file_iter(file, CODEC)
        for head in entries:
            collection = server.engine.made(head["database"], head["name"])
            collection.visible = True
            collection.configure(head["options"])
            for spec in head["indexes"]:
                collection.build(Index(spec))
            _insert(server, collection, list(islice(entries, head["count"])))
            if head["search"]:
                server.catalog.create(head["database"], head["name"], head["search"])


def _described(server: "LoopbackServer") -> Iterator[dict[str, Any]]:
    for database in server.engine.databases:
        for collection in server.engine.collections(database):
            documents = [document for _, document in collection.documents(Reader())]
            listed = server.catalog.list(database, collection.name)
            yield {
                "database": database, "name": collection.name, "options": collection.options,
                "indexes": [index.described() for name, index in collection.indexes.items() if name != "_id_"],
                "search": [
                    {"name": index["name"], "type": index["type"], "definition": index["latestDefinition"]}
                    for index in listed
                ],
                "count": len(documents),
            }  # fmt: skip
            yield from documents


def _insert(server: "LoopbackServer", collection: Collection, documents: list[dict[str, Any]]) -> None:
    def work(writer: Any) -> None:
        for document in documents:
            collection.insert(writer, document, unchecked=True)

    server.engine.statement(work)

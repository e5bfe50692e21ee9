"""The search service on the wire: answers what the server does not know, from documents that it reads from it.

The stages after a search stage are few in the store; they are done here, but for `$match`, which the server answers.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bson import Int64
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from anamnesis_tests.support.mongo_server.search_catalog import Documents, Namespace, SearchCatalog
from anamnesis_tests.support.mongo_server.search_errors import NotEmulated, SearchRefused
from anamnesis_tests.support.mongo_server.search_shapes import must_fit
from anamnesis_tests.support.mongo_server.wire import Message

Document = dict[str, Any]
Row = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A document and its metadata."""

COMMANDS = frozenset({"createSearchIndexes", "dropSearchIndex"})
STAGES = frozenset({"$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes"})
_IN_BYTES = (b"$search", b"$vectorSearch", b"$listSearchIndexes")
_WRITES = frozenset({"insert", "update", "delete", "findAndModify"})
_RAW = CodecOptions(document_class=RawBSONDocument)


class Collections:
    """The server's collections, and which of them may have changed: what the relay saw written tells."""

    def __init__(self, client: MongoClient[Document]) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._changes: dict[Namespace, tuple[int, float]] = {}
        self._open: dict[bytes, set[Namespace]] = {}

    def exists(self, namespace: Namespace) -> bool:
        """Whether there is such a collection."""
        return namespace[1] in self._client[namespace[0]].list_collection_names(filter={"name": namespace[1]})

    def read(self, namespace: Namespace) -> Documents:
        """All that is committed of a collection, by id."""
        held = self._client[namespace[0]].get_collection(namespace[1], codec_options=_RAW).find()
        return {document["_id"]: document for document in held}

    def passing(self, namespace: Namespace, where: Document) -> set[Any]:
        """The ids of the documents that match. Not of some ids: the server compares each document with each of them."""
        return {document["_id"] for document in self._client[namespace[0]][namespace[1]].find(where, {"_id": 1})}

    def changed(self, namespace: Namespace) -> tuple[int, float]:
        """How often it may have been changed, and when it was last, by the monotonic clock."""
        with self._lock:
            return self._changes.get(namespace, (0, 0.0))

    def note(self, message: Message) -> None:
        """The server has answered a command that may have changed something."""
        name = message.name
        if name not in _WRITES and name != "commitTransaction":
            return
        command = message.command
        session = bytes(command["lsid"]["id"]) if "lsid" in command else b""
        with self._lock:
            if name == "commitTransaction":
                written = self._open.pop(session, set())
            elif command.get("autocommit") is False:
                self._open.setdefault(session, set()).add((command["$db"], command[name]))
                return
            else:
                written = {(command["$db"], command[name])}
            for namespace in written:
                count, _ = self._changes.get(namespace, (0, 0.0))
                self._changes[namespace] = count + 1, time.monotonic()


class SearchService:
    """What the relay asks before it asks the server, and tells what the server has done."""

    def __init__(self, client: MongoClient[Document]) -> None:
        self._collections = Collections(client)
        self.catalog = SearchCatalog(self._collections)

    def answer(self, message: Message) -> Document | None:
        """The reply to a command for search indexes or with a search stage; None: it is neither."""
        name = message.name
        if name not in COMMANDS and not (name == "aggregate" and any(each in message.raw for each in _IN_BYTES)):
            return None
        command = message.decoded()
        if name == "aggregate" and not _searches(command["pipeline"]):
            return None
        try:
            return {"ok": 1.0} | self._done(name, command)
        except SearchRefused as refused:
            told, code, code_name = refused.message, refused.code, refused.code_name
        except NotEmulated as unknown:
            told, code, code_name = f"the tests' search service does not know {unknown}", 238, "NotImplemented"
        return {"ok": 0.0, "errmsg": told, "code": code, "codeName": code_name}

    def done(self, message: Message) -> None:
        """The server has answered this one."""
        self._collections.note(message)
        if message.name in ("drop", "dropDatabase"):
            command = message.command
            self.catalog.forget(command["$db"], command["drop"] if message.name == "drop" else None)

    def _done(self, name: str, command: Document) -> Document:
        database, collection = command["$db"], command[name]
        must_fit(name, command)
        if name == "createSearchIndexes":
            names = self.catalog.create(database, collection, command["indexes"])
            return {"indexesCreated": [{"id": each, "name": each} for each in names]}
        if name == "dropSearchIndex":
            self.catalog.drop(database, collection, command["name"])
            return {}
        rows = self._run((database, collection), command["pipeline"])
        documents = [document for document, _ in rows]
        return {"cursor": {"firstBatch": documents, "id": Int64(0), "ns": f"{database}.{collection}"}}

    def _run(self, namespace: Namespace, pipeline: Sequence[Document]) -> list[Row]:
        """What a pipeline yields that begins with a search stage."""
        first, *others = pipeline
        ((name, body),) = first.items()
        if name == "$listSearchIndexes":
            rows: list[Row] = [(each, {}) for each in self.catalog.list(*namespace, body.get("name"))]
        else:
            rows = list(self.catalog.run(*namespace, first))
        for stage in others:
            ((name, body),) = stage.items()
            match name:
                case "$match":
                    passing = self._collections.passing(namespace, body)
                    rows = [row for row in rows if row[0]["_id"] in passing]
                case "$limit":
                    rows = rows[:body]
                case "$project":
                    rows = [(_projected(row, body), row[1]) for row in rows]
                case "$set":
                    rows = [({**row[0], **_constants(body)}, row[1]) for row in rows]
                case "$unionWith":
                    rows += self._run((namespace[0], body["coll"]), body["pipeline"])
                case _:
                    raise NotEmulated(f"{name} after a search stage")
        return rows


def _searches(pipeline: Iterable[Document]) -> bool:
    return any(STAGES & stage.keys() for stage in pipeline)


def _projected(row: Row, fields: Document) -> Document:
    """What `$project` makes of a document: fields that stay, constants and metadata."""
    document, metadata = row
    made: Document = {"_id": document["_id"]} if fields.get("_id", 1) and "_id" in document else {}
    for name, how in fields.items():
        if isinstance(how, Mapping) and "$meta" in how:
            made[name] = metadata[how["$meta"]]
        elif isinstance(how, Mapping) and "$literal" in how:
            made[name] = how["$literal"]
        elif isinstance(how, Mapping | str) or "." in name or (not how and name != "_id"):
            raise NotEmulated(f"{how!r:.60} in $project")
        elif how and name in document:
            made[name] = document[name]
    return made


def _constants(fields: Document) -> Document:
    for each in fields.values():
        if isinstance(each, Mapping | list) or (isinstance(each, str) and each.startswith("$")):
            raise NotEmulated(f"{each!r:.60} in $set")
    return fields

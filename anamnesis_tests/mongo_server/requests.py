"""A command on its way: as whom it reads and writes, and the cursors it leaves behind."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import bson
from bson import Int64

from anamnesis_tests.mongo_server.engine import Engine
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.storage import Reader, Writer
from anamnesis_tests.mongo_server.transactions import Session, Transaction
from anamnesis_tests.mongo_server.values import Document

T = TypeVar("T")

FIRST_BATCH = 101
BATCH_BYTES = 16 * 1024 * 1024
GENERIC = frozenset(
    {"$db", "lsid", "txnNumber", "startTransaction", "autocommit", "$clusterTime", "$readPreference", "readConcern",
     "writeConcern", "maxTimeMS", "comment", "stmtIds", "stmtId", "apiVersion", "apiStrict", "apiDeprecationErrors"}
)  # fmt: skip
"""Fields that any command may have."""
_LEVELS = ("local", "majority", "available", "linearizable", "snapshot")


@dataclass(slots=True)
class Cursor:
    """Documents that were found and not all fetched."""

    namespace: str
    documents: Iterator[Document]
    waiting: list[Document]
    """Taken from `documents`, but too much for the batch before."""


class Cursors:
    """The open cursors of a member."""

    def __init__(self) -> None:
        self._open: dict[int, Cursor] = {}
        self._numbers = count(1_000_003)

    def first(self, namespace: str, documents: Iterator[Document], size: int, *, single: bool = False) -> Document:
        """The first batch, and the number under which the rest is to be had; 0: there is none."""
        cursor = Cursor(namespace, documents, [])
        batch = _taken(cursor, size)
        number = 0
        if not single and (size == 0 or self._has_more(cursor)):
            number = next(self._numbers)
            self._open[number] = cursor
        return {"firstBatch": batch, "id": Int64(number), "ns": namespace}

    def more(self, number: int, namespace: str, size: int) -> Document:
        """The next batch.

        :raises Refusal: there is no such cursor here.
        """
        cursor = self._open.get(number)
        if cursor is None or cursor.namespace != namespace:
            raise Refusal(43, f"cursor id {number} not found")
        batch = _taken(cursor, size)
        if not self._has_more(cursor):
            del self._open[number]
            number = 0
        return {"nextBatch": batch, "id": Int64(number), "ns": namespace}

    def kill(self, numbers: list[int]) -> Document:
        """Close some."""
        killed = [number for number in numbers if self._open.pop(number, None) is not None]
        return {
            "cursorsKilled": killed,
            "cursorsNotFound": [number for number in numbers if number not in killed],
            "cursorsAlive": [],
            "cursorsUnknown": [],
        }

    def _has_more(self, cursor: Cursor) -> bool:
        if not cursor.waiting:
            cursor.waiting.extend(document for _, document in zip(range(1), cursor.documents, strict=False))
        return bool(cursor.waiting)


def _taken(cursor: Cursor, size: int) -> list[Document]:
    """Documents for a batch, which may not be larger than a message."""
    batch: list[Document] = []
    total = 0
    while len(batch) < size:
        document = cursor.waiting.pop() if cursor.waiting else next(cursor.documents, None)
        if document is None:
            break
        total += len(bson.encode(document))
        if batch and total > BATCH_BYTES:
            cursor.waiting.append(document)
            break
        batch.append(document)
    return batch


@dataclass
class Request:
    """A command, decoded, and where it runs."""

    name: str
    command: Document
    engine: Engine
    cursors: Cursors
    session: Session | None
    transaction: Transaction | None
    moment: Any = None
    """Of a snapshot that was read outside of a transaction, for the reply."""

    @property
    def database(self) -> str:
        """The database it is sent to."""
        return str(self.command["$db"])

    @property
    def target(self) -> str:
        """The collection that is the command's own argument.

        :raises Refusal: it is no name.
        """
        given = self.command[self.name]
        if not isinstance(given, str) or not given:
            raise Refusal(73, f"collection name has invalid type: {given!r}")
        return given

    def allow(self, *fields: str) -> None:
        """Refuse every field of the command that is neither one of these nor known to all commands."""
        for field in self.command:
            if field not in fields and field not in GENERIC and field != self.name:
                raise Refusal(40415, f"BSON field '{self.name}.{field}' is an unknown field.")

    def reader(self) -> Reader:
        """Who reads: the transaction, or somebody who asks for a moment, or for what is newest."""
        if self.transaction is not None:
            return self.transaction.writer
        concern: Mapping[str, Any] = self.command.get("readConcern") or {}
        level = concern.get("level", "local")
        if level not in _LEVELS:
            raise Refusal(9, f"Enumeration value '{level}' for field 'readConcern.level' is not a valid value.")
        holder = bytes(self.command["lsid"]["id"]) if "lsid" in self.command else None
        if level != "snapshot":
            return Reader()
        asked = concern.get("atClusterTime")
        moment = asked.inc if asked is not None else self.engine.now()
        self.moment = self.engine.timestamp(moment)
        return self.engine.at(moment, holder)

    def write(self, number: int, work: Callable[[Writer], T]) -> T:
        """Run one statement: inside the transaction; or by itself, once, however often it is sent."""
        if self.transaction is not None:
            return work(self.transaction.writer)
        numbers = self.command.get("stmtIds")
        number = numbers[number] if numbers else self.command.get("stmtId", 0) + number
        session = self.session if "txnNumber" in self.command else None
        if session is not None and number in session.done:
            return session.done[number]  # type: ignore[return-value]
        result = self.engine.statement(work, self.deadline())
        if session is not None:
            session.done[number] = result  # type: ignore[assignment]
        return result

    def deadline(self) -> float | None:
        """When `maxTimeMS` is over, by the monotonic clock."""
        limit = self.command.get("maxTimeMS")
        return time.monotonic() + limit / 1000 if limit else None

    def concern(self) -> None:
        """Refuse a write concern that no member set can meet.

        :raises Refusal: it asks for something else than a number of members or the majority.
        """
        wanted = (self.command.get("writeConcern") or {}).get("w", 1)
        if not (isinstance(wanted, int) or wanted == "majority"):
            raise Refusal(79, f"No write concern mode named '{wanted}' found in replica set configuration")

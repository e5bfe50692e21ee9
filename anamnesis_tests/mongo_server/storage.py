"""Databases, collections and the versions of their documents.

Every change makes a new version, stamped with the moment of its commit, so that a reader of an older moment still finds
what was there. Versions that nobody can ask for any more are removed. All of it is used under the engine's one lock.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import bson

from anamnesis_tests.mongo_server.indexes import Index, Keys
from anamnesis_tests.mongo_server.matching import Matcher, compile_filter
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.values import Document, key_of

NEWEST = float("inf")


class Version:
    """A document as it is from one commit on; None: it is gone."""

    __slots__ = ("document", "keys", "moment", "writer")

    def __init__(self, document: Document | None, keys: dict[str, Keys], writer: "Writer") -> None:
        self.document = document
        self.keys = keys
        self.moment: int | None = None
        self.writer: Writer | None = writer


class Record:
    """The versions of one document, oldest first."""

    __slots__ = ("number", "versions")

    def __init__(self, number: int) -> None:
        self.number = number
        self.versions: list[Version] = []

    def seen_by(self, reader: "Reader") -> Version | None:
        """The version that a reader sees."""
        for version in reversed(self.versions):
            if version.moment is None:
                if version.writer is reader:
                    return version
            elif version.moment <= reader.moment:
                return version
        return None

    def document(self, reader: "Reader") -> Document | None:
        """What a reader sees of it."""
        version = self.seen_by(reader)
        return version.document if version else None


class Reader:
    """Who sees what was committed up to a moment."""

    def __init__(self, moment: float = NEWEST) -> None:
        self.moment = moment


class Blocked(Exception):  # noqa: N818
    """Another transaction holds the document; who has no snapshot may wait for it."""


class Writer(Reader):
    """Who changes documents: one statement, or a whole transaction with its snapshot."""

    def __init__(self, moment: float = NEWEST) -> None:
        super().__init__(moment)
        self.changes: list[tuple[Collection, Record]] = []

    @property
    def has_snapshot(self) -> bool:
        """Whether it is a transaction of several statements."""
        return self.moment != NEWEST

    def conflict(self) -> Exception:
        """What to raise where another one was faster."""
        if self.has_snapshot:
            return Refusal(112, "Caused by :: Write conflict during plan execution and yielding is disabled. :: Please "
                                "retry your operation or multi-document transaction.")  # fmt: skip
        return Blocked()


class Collection:
    """Documents and their indexes."""

    def __init__(self, database: str, name: str, max_document_bytes: int) -> None:
        self.database = database
        self.name = name
        self.uuid = bson.Binary.from_uuid(uuid4())
        self.visible = False
        """Whether it was made by a command, or by a transaction that has committed."""
        self.options: dict[str, Any] = {}
        self.records: dict[int, Record] = {}
        self.indexes: dict[str, Index] = {"_id_": Index({"key": {"_id": 1}, "name": "_id_"})}
        self._max_document_bytes = max_document_bytes
        self._valid: Matcher | None = None
        self._last = 0

    @property
    def namespace(self) -> str:
        """Database and name."""
        return f"{self.database}.{self.name}"

    def configure(self, options: Mapping[str, Any]) -> None:
        """Options of `create` and `collMod`."""
        self.options.update(options)
        validator = self.options.get("validator")
        enforced = self.options.get("validationLevel") != "off" and self.options.get("validationAction") != "warn"
        self._valid = compile_filter(validator) if validator and enforced else None

    def documents(self, reader: Reader) -> Iterator[tuple[Record, Document]]:
        """Everything that a reader sees, in the order in which it came."""
        for record in self.records.values():
            document = record.document(reader)
            if document is not None:
                yield record, document

    def by_id(self, value: Any, reader: Reader) -> Document | None:
        """The document with this `_id`."""
        for number in self.indexes["_id_"].holders((key_of(value),)):
            document = self.records[number].document(reader)
            if document is not None:
                return document
        return None

    def insert(self, writer: Writer, document: Document, *, unchecked: bool = False) -> None:
        """A new document.

        :raises Refusal: it breaks a unique index, the validator or the limit of size.
        """
        self._last += 1
        self._write(writer, Record(self._last), document, unchecked=unchecked)

    def replace(self, writer: Writer, record: Record, document: Document | None, *, unchecked: bool = False) -> None:
        """A new version of a document; None removes it.

        :raises Blocked: another transaction holds it, and the writer has no snapshot.
        :raises Refusal: as `insert`; or it was changed since the writer's snapshot.
        """
        newest = record.versions[-1]
        if newest.writer is not None and newest.writer is not writer:
            raise writer.conflict()
        if newest.moment is not None and newest.moment > writer.moment:
            raise writer.conflict()
        self._write(writer, record, document, unchecked=unchecked)

    def _write(self, writer: Writer, record: Record, document: Document | None, *, unchecked: bool = False) -> None:
        keys: dict[str, Keys] = {}
        if document is not None:
            self._check(document, unchecked)
            keys = {name: index.keys(document) for name, index in self.indexes.items()}
            self._check_unique(writer, record, document, keys)
        own = record.versions.pop() if record.versions and record.versions[-1].writer is writer else None
        if own is None and not record.versions:
            for name, index in self.indexes.items():
                index.add(keys.get(name, ()), record.number)
        else:
            self._exchange(record, own, keys)
        record.versions.append(Version(document, keys, writer))
        self.records[record.number] = record
        if own is None:
            writer.changes.append((self, record))

    def _exchange(self, record: Record, own: Version | None, keys: dict[str, Keys]) -> None:
        """Entries of a new version, in the place of those of the writer's own last one."""
        last = own.keys if own is not None else record.versions[-1].keys
        changed = [name for name in self.indexes if keys.get(name, ()) != last.get(name, ())]
        kept = self._entries(record) if changed else {}
        for name in changed:
            held = kept.get(name, ())
            if own is not None:
                self.indexes[name].remove(tuple(k for k in last.get(name, ()) if k not in held), record.number)
            self.indexes[name].add(tuple(k for k in keys.get(name, ()) if k not in held), record.number)

    def _check(self, document: Document, unchecked: bool) -> None:
        size = len(bson.encode(document))
        if size > self._max_document_bytes:
            raise Refusal(
                10334,
                f"BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {self._max_document_bytes}",
            )
        if self._valid is not None and not unchecked and not self._valid(document):
            raise Refusal(121, "Document failed validation", errInfo={"failingDocumentId": document["_id"]})

    def _entries(self, record: Record) -> dict[str, set[Any]]:
        """Keys that the versions of a record have in each index."""
        kept: dict[str, set[Any]] = {}
        for version in record.versions:
            for name, keys in version.keys.items():
                kept.setdefault(name, set()).update(keys)
        return kept

    def _check_unique(self, writer: Writer, record: Record, document: Document, keys: dict[str, Keys]) -> None:
        for name, index in self.indexes.items():
            if not index.unique:
                continue
            for key in keys[name]:
                for number in index.holders(key):
                    if number != record.number:
                        self._refuse_duplicate(writer, self.records[number], index, key, document)

    def _refuse_duplicate(self, writer: Writer, other: Record, index: Index, key: Any, document: Document) -> None:
        newest = other.versions[-1]
        foreign = newest.writer is not None and newest.writer is not writer
        if foreign and (key in newest.keys.get(index.name, ()) or self._committed_has(other, index, key)):
            raise writer.conflict()
        if key not in newest.keys.get(index.name, ()):
            return
        if newest.moment is not None and newest.moment > writer.moment:
            raise writer.conflict()  # it is there, but not in the writer's snapshot
        raise index.duplicate(self.namespace, key, document)

    def _committed_has(self, record: Record, index: Index, key: Any) -> bool:
        committed = [version for version in record.versions if version.moment is not None]
        return bool(committed) and key in committed[-1].keys.get(index.name, ())

    def forget(self, record: Record, count: int) -> None:
        """Remove the oldest versions of a record, and it with them when nothing is left but that it is gone."""
        gone, record.versions = record.versions[:count], record.versions[count:]
        if len(record.versions) == 1 and record.versions[0].document is None and record.versions[0].writer is None:
            gone, record.versions = [*gone, record.versions[0]], []
        self.unlist(record, gone)

    def withdraw(self, record: Record, writer: Writer) -> None:
        """Remove the version of a writer that did not commit."""
        if record.versions and record.versions[-1].writer is writer:
            self.unlist(record, [record.versions.pop()])

    def unlist(self, record: Record, gone: list[Version]) -> None:
        """Remove the entries that only these versions had."""
        kept = self._entries(record)
        for version in gone:
            for name, keys in version.keys.items():
                held = kept.get(name, ())
                if name in self.indexes:
                    self.indexes[name].remove(tuple(key for key in keys if key not in held), record.number)
        if not record.versions:
            self.records.pop(record.number, None)

    def build(self, index: Index) -> None:
        """Fill a new index.

        :raises Refusal: it is unique, and two documents have one key.
        """
        newest = Reader()
        seen: dict[Any, int] = {}
        entries: list[tuple[Any, ...]] = []
        for record in self.records.values():
            current = record.seen_by(newest)
            for version in record.versions:
                if version.document is None:
                    continue
                keys = index.keys(version.document)
                version.keys[index.name] = keys
                for key in keys:
                    if index.unique and version is current and seen.setdefault(key, record.number) != record.number:
                        raise index.duplicate(self.namespace, key, version.document)
                    entries.append((*key, record.number))
        index.load(list(dict.fromkeys(entries)))
        self.indexes[index.name] = index

    def drop_index(self, name: str) -> None:
        """Remove an index."""
        del self.indexes[name]
        for record in self.records.values():
            for version in record.versions:
                version.keys.pop(name, None)

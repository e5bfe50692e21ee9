"""All data of a replica set: databases by name, the clock of commits, and the one lock.

A commit takes the next moment of the clock. Old versions stay while an open transaction or a snapshot that was read
lately may ask for them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from bson import Timestamp

from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.storage import NEWEST, Blocked, Collection, Reader, Record, Writer
from anamnesis_tests.mongo_server.values import Document

SNAPSHOT_WINDOW_S = 300.0
"""`minSnapshotHistoryWindowInSeconds`: how long a moment that was read can be read again."""
LOCK_WAIT_S = 60.0
EXPIRE_EVERY_S = 0.2

T = TypeVar("T")
Committed = Callable[[str, str, list[Any]], None]


class Engine:
    """The data, shared by the members."""

    def __init__(self, max_document_bytes: int) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.max_document_bytes = max_document_bytes
        self.databases: dict[str, dict[str, Collection]] = {}
        self.listeners: list[Committed] = []
        """Told of database, collection and `_id`s with each commit."""
        self.expire: Callable[[], None] = lambda: None
        """Gives up transactions that are open for too long."""
        self._started = int(time.time())
        self._moment = 1
        self._open: set[Writer] = set()
        self._pins: dict[Any, tuple[int, float]] = {}
        self._history: deque[tuple[int, Collection, Record]] = deque()

    def now(self) -> int:
        """The moment of the last commit."""
        return self._moment

    def timestamp(self, moment: float | None = None) -> Timestamp:
        """A moment as MongoDB writes it."""
        return Timestamp(self._started, int(self._moment if moment is None else moment))

    def collection(self, database: str, name: str) -> Collection | None:
        """A collection that exists, perhaps only for those who are about to make it."""
        return self.databases.get(database, {}).get(name)

    def collections(self, database: str) -> list[Collection]:
        """Those that all can see."""
        return [collection for collection in self.databases.get(database, {}).values() if collection.visible]

    def made(self, database: str, name: str) -> Collection:
        """The collection, made when it is missing; a transaction that makes it shows it when it commits."""
        if not name or "$" in name or name.startswith(".") or "\0" in name:
            raise Refusal(73, f"Invalid namespace specified '{database}.{name}'")
        held = self.databases.setdefault(database, {})
        if name not in held:
            held[name] = Collection(database, name, self.max_document_bytes)
        return held[name]

    def drop(self, collection: Collection) -> None:
        """Remove a collection at once, once no transaction uses it."""
        self._wait_for(lambda: not self._in_use(collection))
        self.databases[collection.database].pop(collection.name, None)
        self._history = deque(entry for entry in self._history if entry[1] is not collection)
        self._moment += 1

    def settle(self, collection: Collection) -> None:
        """Wait until no transaction has uncommitted changes in a collection."""
        self._wait_for(lambda: not self._in_use(collection))

    def _in_use(self, collection: Collection) -> bool:
        return any(changed is collection for writer in self._open for changed, _ in writer.changes)

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + LOCK_WAIT_S
        while not ready():
            if not self._wait(until):
                raise Refusal(24, "Unable to acquire a lock that a transaction holds within the time limit")

    def _wait(self, until: float) -> bool:
        """Wait for something to change; False once it is too late."""
        self.changed.wait(min(max(until - time.monotonic(), 0), EXPIRE_EVERY_S))
        self.expire()
        return time.monotonic() < until

    def begin(self, *, snapshot: bool) -> Writer:
        """A transaction, or one statement that sees what is newest."""
        writer = Writer(self._moment if snapshot else NEWEST)
        self._open.add(writer)
        return writer

    def at(self, moment: int, holder: Any) -> Reader:
        """Who reads a moment; it stays readable for a while, or until the holder reads another one."""
        if moment > self._moment:
            raise Refusal(246, "Unable to read from a snapshot due to pending collection catalog changes")
        if moment < self._oldest() and moment != self._moment:
            raise Refusal(239, "Read timestamp is older than the oldest available timestamp.")
        self._pins[holder] = (moment, time.monotonic() + SNAPSHOT_WINDOW_S)
        return Reader(moment)

    def unpin(self, holder: Any) -> None:
        """The holder reads no old moment any more."""
        self._pins.pop(holder, None)

    def commit(self, writer: Writer) -> int:
        """Make the changes of a writer visible to all; returns the moment."""
        self._open.discard(writer)
        if writer.changes:
            self._moment += 1
        told: dict[tuple[str, str], list[Any]] = {}
        for collection, record in writer.changes:
            version = record.versions[-1]
            version.moment, version.writer = self._moment, None
            collection.visible = True
            if len(record.versions) > 1 or version.document is None:
                self._history.append((self._moment, collection, record))
            document = version.document or record.versions[max(len(record.versions) - 2, 0)].document
            if document is not None:
                told.setdefault((collection.database, collection.name), []).append(document["_id"])
        self._clean()
        for (database, name), ids in told.items():
            for tell in self.listeners:
                tell(database, name, ids)
        self.changed.notify_all()
        return self._moment

    def abort(self, writer: Writer) -> None:
        """Take the changes of a writer back."""
        self._open.discard(writer)
        for collection, record in writer.changes:
            collection.withdraw(record, writer)
            if not collection.visible and not collection.records and not self._in_use(collection):
                self.databases[collection.database].pop(collection.name, None)
        self.changed.notify_all()

    def statement(self, work: Callable[[Writer], T], deadline: float | None = None) -> T:
        """Run one statement outside of transactions, again after each transaction that is in its way."""
        until = deadline or time.monotonic() + LOCK_WAIT_S
        while True:
            writer = self.begin(snapshot=False)
            try:
                result = work(writer)
            except Blocked:
                self.abort(writer)
                if not self._wait(until):
                    raise Refusal(50, "operation exceeded time limit") from None
            except BaseException:
                self.abort(writer)
                raise
            else:
                self.commit(writer)
                return result

    def committed(self, database: str, name: str) -> Mapping[Any, Document]:
        """The newest documents of a collection by `_id`, for the search service."""
        collection = self.collection(database, name)
        return ById(collection) if collection else {}

    def _oldest(self) -> int:
        """The oldest moment that somebody may ask for."""
        now = time.monotonic()
        self._pins = {holder: pin for holder, pin in self._pins.items() if pin[1] > now}
        moments = [pin[0] for pin in self._pins.values()]
        moments += [int(writer.moment) for writer in self._open if writer.has_snapshot]
        return min(moments, default=self._moment)

    def _clean(self) -> None:
        if not self._history:
            return
        oldest = self._oldest()
        while self._history and self._history[0][0] <= oldest:
            _, collection, record = self._history.popleft()
            self._forget(collection, record, oldest)

    def _forget(self, collection: Collection, record: Record, oldest: int) -> None:
        """Versions that were followed by another one before the oldest moment."""
        count = 0
        for later in record.versions[1:]:
            if later.moment is None or later.moment > oldest:
                break
            count += 1
        last = record.versions[-1] if record.versions else None
        if count or (last is not None and last.document is None):
            collection.forget(record, count)


class ById(Mapping[Any, Document]):
    """Committed documents of a collection by `_id`, read when asked."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._reader = Reader()

    def __getitem__(self, key: Any) -> Document:
        found = self._collection.by_id(key, self._reader)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[Any]:
        return (document["_id"] for _, document in self._collection.documents(self._reader))

    def __len__(self) -> int:
        return sum(1 for _ in self._collection.documents(self._reader))

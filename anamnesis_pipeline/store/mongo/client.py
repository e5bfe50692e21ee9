"""One MongoDB database, its transactions, and the border where `pymongo` errors become ours.

All that write take the writer's turn: the first write of each transaction is to one document, so that two never read
what the other is about to change. So a transaction here means what `BEGIN IMMEDIATE` means in SQLite, and a rule that
looks at one collection before it writes another holds. (Snapshot isolation alone allows write skew.)
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import dns.exception
import dns.resolver
import pymongo
from pymongo import MongoClient, ReadPreference, ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidURI, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from anamnesis_pipeline.errors import BadSetting, StoreBusy, StoreRefused
from anamnesis_pipeline.store.mongo.address import hosts_of
from anamnesis_pipeline.store.mongo.collections import Collection, Document
from anamnesis_pipeline.store.mongo.translation import translated
from anamnesis_pipeline.store.mongo.turns import Turns, TurnTaken, take

SELECTION_TIMEOUT_MS = 5_000
"""How long a read waits for a primary. A write goes on asking (WAITED_S), since an election may take longer
(https://www.mongodb.com/docs/manual/replication/).
"""
HEARTBEAT_MS = 4_000
"""How often a server says by itself that it lives. One that hangs is noticed after this and CONNECT_TIMEOUT_MS at the
latest, and then what waits for its answer is told; without, only SOCKET_TIMEOUT_MS would end it.
"""
SOCKET_TIMEOUT_MS = 60_000
"""No answer of a server may take longer; a transaction may not either (`transactionLifetimeLimitSeconds`)."""
CONNECT_TIMEOUT_MS = 3_000
SILENT_S = 1.0
"""How long a read waits for a primary once one was waited for in vain: the client looks every half second then."""
SEARCHED_S = 5.0
"""How long one list of a search may take; the others answer without it."""
WAITED_S = 120.0
"""How long a write waits for those of other processes; so long the driver tries a transaction again, too."""
TURN_TIMEOUT_S = 130.0
"""How long a thread waits for others of its process: somewhat longer than one write may take."""

LONG_S = 5.0
"""Who waits longer than this for other processes says so, with every further attempt (`turns.WAITS_S`)."""

_SNAPSHOT_TOO_OLD = 239
log = logging.getLogger(__name__)

_UNRESOLVED = (dns.exception.Timeout, dns.resolver.NoNameservers, dns.resolver.NoResolverConfiguration, OSError)
"""What keeps an address with `+srv` from being resolved for a while: the client does so when it is made."""

T = TypeVar("T")


class Collections:
    """The collections of the database by name, inside one transaction where `session` has one."""

    def __init__(self, client: "MongoClient[Document]", database: str, session: ClientSession | None = None) -> None:
        self._database = client.get_database(
            database,
            read_preference=ReadPreference.PRIMARY,  # whatever the URI says: a secondary may not have what was written
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority"),
        )
        self._session = session

    def __getitem__(self, name: str) -> Collection:
        """The collection of this name."""
        return Collection(self._database[name], self._session)

    def names(self) -> set[str]:
        """Collections that exist."""
        return set(self._database.list_collection_names())

    def next_number(self, counter: str, count: int = 1) -> int:
        """The first of `count` numbers that were never given before, taken in the transaction of what they are for: on
        its own the call would wait until a majority has it on disk.
        """
        found: Document | None = self._database["counters"].find_one_and_update(
            {"_id": counter},
            {"$inc": {"next": count}, "$currentDate": {"at": True}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
            session=self._session,
        )
        return int(found["next"] if found else 0) - count + 1

    def unused_s(self, counter: str) -> float:
        """Seconds since the last of these numbers was taken, both by the server's clock; 0 where it is not known.

        https://www.mongodb.com/docs/manual/reference/aggregation-variables/ (`$$NOW`),
        https://www.mongodb.com/docs/manual/reference/operator/aggregation/dateDiff/
        """
        age_ms: Document = {"$dateDiff": {"startDate": "$at", "endDate": "$$NOW", "unit": "millisecond"}}
        rows = self["counters"].aggregate([{"$match": {"_id": counter}}, {"$project": {"_id": 0, "age_ms": age_ms}}])
        return (rows[0]["age_ms"] or 0) / 1000 if rows else 0.0


class Database:
    """A database and the client that reaches it. Safe to share between threads; a forked child makes its own client."""

    def __init__(self, uri: str, name: str) -> None:
        self.name = name
        self._uri = uri
        self._turn = threading.Lock()
        self._turns = Turns()
        self._client = self._connect()
        self._pid = os.getpid()
        self._closed = False
        self._silent = False

    @property
    def place(self) -> str:
        """Where it is, without user and password."""
        return f"MongoDB {hosts_of(self._uri)}/{self.name}"

    def read(self, work: Callable[[Collections], T], *, within_s: float | None = None) -> T:
        """What `work` returns of committed data. What it reads in several calls may be of several moments.

        :param within_s: seconds that all of it may take; None: as long as the server lives.
        :raises StoreBusy: there is no primary, or it hangs, or the time is over.
        """
        with self.reading(within_s=within_s) as tables:
            return work(tables)

    @contextmanager
    def reading(self, *, within_s: float | None = None) -> Iterator[Collections]:
        """As `read`, for a block."""
        # A limit of none would lift that of the caller.
        limit = nullcontext() if within_s is None else pymongo.timeout(within_s)
        with translated(self.place), self._from_a_primary(), limit:
            yield Collections(self._current(), self.name)

    def snapshot(self, work: Callable[[Collections], T]) -> T:
        """As `read`, of one moment. Search indexes know no snapshots."""
        with self.reading_snapshot() as tables:
            return work(tables)

    @contextmanager
    def reading_snapshot(self) -> Iterator[Collections]:
        """As `snapshot`, for a block.

        :raises StoreRefused: it went on for longer than the server keeps a moment.
        """
        with translated(self.place), self._from_a_primary():
            try:
                with self._current().start_session(snapshot=True) as session:
                    yield Collections(self._current(), self.name, session)
            except OperationFailure as exc:
                if exc.code != _SNAPSHOT_TOO_OLD:
                    raise
                raise StoreRefused(_keeps_too_little(self.place)) from exc

    @contextmanager
    def _from_a_primary(self) -> Iterator[None]:
        """Where the last read found no primary in time, and none is known yet, the next does not wait for so long."""
        client = self._current()
        if self._silent and not client.topology_description.has_writable_server():
            with pymongo.timeout(SILENT_S):
                client.admin.command("ping")
        try:
            yield
        except ConnectionFailure:  # of a call that was asked again in vain the driver tells the first failure
            self._silent = True
            raise
        self._silent = False

    def write(self, work: Callable[[Collections], T], *, within_s: float | None = None) -> T:
        """What `work` returns, once all that it wrote is committed by a majority; nothing of it when it raises.

        `work` runs again where the transaction met another one or the primary changed, so it must not keep anything.

        :param within_s: seconds to wait for the turn; None: as long as a call may. The turn itself is never cut off, as
            the driver would not even tell the server that it is over.
        :raises StoreBusy: others had the turn for so long, or there is no primary.
        """
        waits_s, began_waiting = WAITED_S if within_s is None else within_s, time.monotonic()
        with translated(self.place), self._own_turn(TURN_TIMEOUT_S if within_s is None else within_s):
            writer = self._current().get_database(self.name, read_preference=ReadPreference.PRIMARY)["writer"]
            self._turns.give_way(writer)
            until = waits_s + (time.monotonic() if within_s is None else began_waiting)
            while True:
                began = time.monotonic()
                try:
                    done = self._transaction(work)
                except TurnTaken:
                    if (left_s := until - time.monotonic()) <= 0:
                        break
                    self._turns.wait(writer, left_s)
                    self._mention_wait(time.monotonic() - until + waits_s, waits_s)
                else:
                    self._turns.ended(began)
                    return done
        raise StoreBusy(f"{self.place}: other processes wrote for {waits_s:.0f} s without a pause; try again")

    def _mention_wait(self, waited_s: float, most_s: float) -> None:
        if waited_s > LONG_S:
            log.warning(
                "%s: waiting for another writer since %.0f s of at most %.0f; one that was killed holds its "
                "turn for up to a minute",
                self.place,
                waited_s,
                most_s,
            )

    def _transaction(self, work: Callable[[Collections], T]) -> T:
        """:raises TurnTaken: another process writes."""
        with self._current().start_session() as session:
            return session.with_transaction(
                lambda held: self._in_turn(held, work),
                read_concern=ReadConcern("snapshot"),
                write_concern=WriteConcern("majority"),
                read_preference=ReadPreference.PRIMARY,  # the server takes no other in a transaction
            )

    @contextmanager
    def _own_turn(self, within_s: float) -> Iterator[None]:
        """One thread of this process writes at a time; the others need not ask the server whether it is their turn.

        :raises StoreBusy: others had the turn for too long, as they have where the server does not answer.
        """
        turn = self._turn
        if not turn.acquire(timeout=within_s):
            raise StoreBusy(f"{self.place}: another write of this process did not end in {within_s:.0f} s; try again")
        try:
            yield
        finally:
            turn.release()

    def _in_turn(self, session: ClientSession, work: Callable[[Collections], T]) -> T:
        tables = Collections(self._current(), self.name, session)
        take(tables["writer"])
        return work(tables)

    def command(self, command: Mapping[str, Any], *, admin: bool = False) -> Document:
        """Run a command, by default on this database."""
        with translated(self.place):
            return self._current()["admin" if admin else self.name].command(dict(command))

    def close(self) -> None:
        """Close every connection; calling twice is harmless."""
        self._closed = True
        self._client.close()

    def _current(self) -> "MongoClient[Document]":
        if self._closed:
            raise StoreRefused(f"{self.place} was closed by this process; open the store again")
        if self._pid != os.getpid():  # a client does not survive a fork
            self._turn, self._pid, self._client = threading.Lock(), os.getpid(), self._connect()
        return self._client

    def _connect(self) -> "MongoClient[Document]":
        try:
            return MongoClient(
                self._uri,
                appname="anamnesis",
                serverSelectionTimeoutMS=SELECTION_TIMEOUT_MS,
                connectTimeoutMS=CONNECT_TIMEOUT_MS,
                heartbeatFrequencyMS=HEARTBEAT_MS,
                socketTimeoutMS=SOCKET_TIMEOUT_MS,
            )
        except (InvalidURI, ConfigurationError, ValueError) as exc:  # the last: of a port
            if isinstance(exc.__cause__, _UNRESOLVED):
                raise StoreBusy(f"{self.place}: its name cannot be looked up just now ({exc})") from exc
            # What the client says may be a piece of a password.
            problem = str(exc) if hosts_of(self._uri) else "write / ? # @ : % in user and password as %2F %3F %23 ..."
            raise BadSetting(f"mongo_uri is none that MongoDB's client takes: {problem}") from exc


def _keeps_too_little(place: str) -> str:
    """https://www.mongodb.com/docs/manual/reference/parameters/ (minSnapshotHistoryWindowInSeconds)."""
    more = "db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 3600})"
    return (
        f"{place} did not keep one moment for as long as reading it took; by itself it keeps 5 minutes. Let it keep "
        f"more, e.g. an hour: {more}, then try again"
    )

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
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import dns.exception
import dns.resolver
import pymongo
from pymongo import MongoClient, ReadPreference, ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection as DriverCollection
from pymongo.errors import ConfigurationError, ConnectionFailure, InvalidURI, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from anamnesis_pipeline.errors import BadSetting, StoreBusy, StoreRefused
from anamnesis_pipeline.store.mongo.address import hosts_of
from anamnesis_pipeline.store.mongo.collections import Collection, Document
from anamnesis_pipeline.store.mongo.translation import translated

# --- the write lock among processes ----------------------------------------------------------------------
# A transaction that meets another one's uncommitted change is refused at once, and a process that only tries again from
# time to time hardly ever meets the moment between two batches of another one. So a waiting process changes the lock's
# document outside of any transaction: such a write waits until the transaction ends
# (https://www.mongodb.com/docs/manual/core/transactions-production-consideration/). By the same write the process that
# just had the lock knows that another one waits, and lets it go first. Of those that wait, one that had the lock for
# long tries a little later: what a search writes in passing does not queue behind the batches of several others.

TURN = {"_id": "turn"}
"""The document that every transaction changes first. `waited`: how often a process waited for it."""
WAITS_S = 10.0
"""Limit of one attempt to wait, in seconds: it ends with the transaction that has the lock."""
MAX_LATER_S = 0.03
"""Maximum extra delay of a waiting process, in seconds: a fifth of its last transaction."""
GIVES_WAY_S = 0.1
"""Limit of how long a process that just wrote waits for another one to take the turn: longer than MAX_LATER_S."""
LOOKS_EVERY_S = 0.004

_WRITE_CONFLICT = 112


class TurnTaken(Exception):  # noqa: N818
    """Another process has the turn."""


def take(writer: Collection) -> None:
    """Take the turn, in a transaction and as its first statement.

    :raises TurnTaken: another process has it.
    """
    try:
        writer.upsert(TURN, {"$inc": {"turn": 1}})
    except OperationFailure as exc:
        if exc.code != _WRITE_CONFLICT:
            raise
        raise TurnTaken from exc


class Turns:
    """What one process knows of the turns. Used by one thread at a time."""

    def __init__(self) -> None:
        self._took_s = 0.0
        self._ended = -GIVES_WAY_S
        self._waited = 0

    def ended(self, began: float) -> None:
        """Note that a turn of this process, which began then, is over."""
        self._ended = time.monotonic()
        self._took_s = self._ended - began

    def wait(self, writer: DriverCollection[Document], within_s: float) -> None:
        """Wait until the current writer gives up its turn. A failure of this must not fail a write."""
        with suppress(PyMongoError), pymongo.timeout(min(WAITS_S, within_s)):
            writer.update_one(TURN, {"$inc": {"waited": 1}})
            self._waited += 1  # what this process did is no sign of another one
        self._come_later()

    def give_way(self, writer: DriverCollection[Document]) -> None:
        """Where this process wrote just now and another one waits, let that take the turn first. As for `wait`: a
        server that does not answer is the write's own matter.
        """
        until = self._ended + GIVES_WAY_S
        if time.monotonic() >= until:
            return
        with suppress(PyMongoError):
            turn, waited = _state(writer)
            waits, self._waited = waited != self._waited, waited
            while waits and time.monotonic() < until and _state(writer)[0] == turn:
                time.sleep(LOOKS_EVERY_S)
            if waits:  # that one's turn is over just now, and still others may be about to take theirs
                self._come_later()

    def _come_later(self) -> None:
        time.sleep(min(self._took_s / 5, MAX_LATER_S))


def _state(writer: DriverCollection[Document]) -> tuple[int, int]:
    """Return the number of the turn, and how often a process waited."""
    found = writer.find_one(TURN) or {}
    return found.get("turn", 0), found.get("waited", 0)


# --- the database ----------------------------------------------------------------------------------------

SELECTION_TIMEOUT_MS = 5_000
"""How long a read waits for a primary. A write goes on asking (WAITED_S), since an election may take longer
(https://www.mongodb.com/docs/manual/replication/).
"""
HEARTBEAT_MS = 4_000
"""Interval of the driver's heartbeats. A server that hangs is noticed after this and CONNECT_TIMEOUT_MS at the latest,
and calls that wait for its answer fail then; without, only SOCKET_TIMEOUT_MS would end them.
"""
SOCKET_TIMEOUT_MS = 60_000
"""No answer of a server may take longer; a transaction may not either (`transactionLifetimeLimitSeconds`)."""
CONNECT_TIMEOUT_MS = 3_000
SILENT_S = 1.0
"""How long a read waits for a primary after another read found none in time: the client polls every
half second then.
"""
SEARCHED_S = 5.0
"""How long one list of a search may take; the others answer without it."""
WAITED_S = 120.0
"""How long a write waits for those of other processes; so long the driver tries a transaction again, too."""
TURN_TIMEOUT_S = 130.0
"""How long a thread waits for others of its process: somewhat longer than one write may take."""

LONG_S = 5.0
"""A wait for other processes that is longer is logged, with every further attempt (`WAITS_S`)."""

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
            read_preference=ReadPreference.PRIMARY,  # despite the URI: a secondary may not have what was written
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

    @contextmanager
    def read(self, *, within_s: float | None = None) -> Iterator[Collections]:
        """Read committed data. Several calls may be answered of several moments.

        :param within_s: seconds that all of it may take; None: as long as the server lives.
        :raises StoreBusy: there is no primary, or it hangs, or the time is over.
        """
        # A limit of none would lift that of the caller.
        limit = nullcontext() if within_s is None else pymongo.timeout(within_s)
        with translated(self.place), self._from_a_primary(), limit:
            yield Collections(self._current(), self.name)

    @contextmanager
    def snapshot(self) -> Iterator[Collections]:
        """As `read`, of one moment. Search indexes know no snapshots.

        :raises StoreRefused: it went on for longer than the server keeps a moment
            (https://www.mongodb.com/docs/manual/reference/parameters/, `minSnapshotHistoryWindowInSeconds`).
        """
        with translated(self.place), self._from_a_primary():
            try:
                with self._current().start_session(snapshot=True) as session:
                    yield Collections(self._current(), self.name, session)
            except OperationFailure as exc:
                if exc.code != _SNAPSHOT_TOO_OLD:
                    raise
                more = "db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 3600})"
                raise StoreRefused(
                    f"{self.place} did not keep one moment for as long as reading it took; by default it keeps 5 "
                    f"minutes. Let it keep more, e.g. an hour: {more}, then try again"
                ) from exc

    @contextmanager
    def _from_a_primary(self) -> Iterator[None]:
        """Where the last read found no primary in time, and none is known yet, the next does not wait for so long."""
        client = self._current()
        if self._silent and not client.topology_description.has_writable_server():
            with pymongo.timeout(SILENT_S):
                client.admin.command("ping")
        try:
            yield
        except ConnectionFailure:  # of a call that failed twice the driver raises the first failure
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
        own_s = TURN_TIMEOUT_S if within_s is None else within_s

        def in_turn(session: ClientSession) -> T:
            collections = Collections(self._current(), self.name, session)
            take(collections["writer"])
            return work(collections)

        with translated(self.place):
            turn = self._turn  # one thread of a process writes at a time: the others need not ask the server
            if not turn.acquire(timeout=own_s):  # also where the server does not answer
                raise StoreBusy(f"{self.place}: another write of this process did not end in {own_s:.0f} s; try again")
            try:
                writer = self._current().get_database(self.name, read_preference=ReadPreference.PRIMARY)["writer"]
                self._turns.give_way(writer)
                until = waits_s + (time.monotonic() if within_s is None else began_waiting)
                while True:
                    began = time.monotonic()
                    try:
                        with self._current().start_session() as session:
                            done = session.with_transaction(
                                in_turn,
                                read_concern=ReadConcern("snapshot"),
                                write_concern=WriteConcern("majority"),
                                read_preference=ReadPreference.PRIMARY,  # the server takes no other in a transaction
                            )
                    except TurnTaken:
                        if (left_s := until - time.monotonic()) <= 0:
                            break
                        self._turns.wait(writer, left_s)
                        waited_s = time.monotonic() - until + waits_s
                        if waited_s > LONG_S:
                            log.warning(
                                "%s: waiting for another writer since %.0f s of at most %.0f; one that was killed "
                                "holds its turn for up to a minute",
                                self.place,
                                waited_s,
                                waits_s,
                            )
                    else:
                        self._turns.ended(began)
                        return done
            finally:
                turn.release()
        raise StoreBusy(f"{self.place}: other processes wrote for {waits_s:.0f} s without a pause; try again")

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

"""The members of the replica set: who is primary, what they say of themselves, and their listening sockets.

All members share the data, so that an election loses nothing that was committed; what a transaction had not committed
is lost with its primary, as in MongoDB.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from bson import Int64, ObjectId

from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.requests import Cursors
from anamnesis_tests.mongo_server.values import Document
from anamnesis_tests.mongo_server.wire import MAX_MESSAGE_BYTES
from anamnesis_tests.mongo_server.write_commands import MAX_BATCH

MAX_WIRE_VERSION = 25
"""That of MongoDB 8.0."""

Serve = Callable[["Member", socket.socket], None]


class Member:
    """One address of the replica set."""

    def __init__(self, bind: str, port: int, advertised: str, serve: Serve) -> None:
        self.cursors = Cursors()
        self._serve = serve
        self._bind = bind
        self._listener = self._listen(port)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"{advertised}:{self.port}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.is_up = False

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._bind, port))
        listener.listen(256)
        return listener

    def up(self) -> None:
        """Listen, if it does not."""
        with self._lock:
            if self.is_up:
                return
            if self._listener.fileno() < 0:
                self._listener = self._listen(self.port)
            self.is_up = True
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def down(self) -> None:
        """Close the listening socket and all connections, without a word."""
        with self._lock:
            self.is_up = False
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            held, self._open = self._open, set()
        for connection in held:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if not self.is_up:
                    connection.close()
                    return
                self._open.add(connection)
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        try:
            self._serve(self, connection)
        except OSError:
            pass  # the client is gone
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


class ReplicaSet:
    """Its name, its members and their terms of office."""

    def __init__(self, name: str | None, max_document_bytes: int) -> None:
        self.name = name
        self.members: list[Member] = []
        self.changed = threading.Condition()
        self._primary: int | None = 0
        self._term = 1
        self._process = ObjectId()
        self._version = 1
        self._max_document_bytes = max_document_bytes

    @property
    def primary(self) -> Member | None:
        """Who takes writes; None between two terms."""
        return None if self._primary is None else self.members[self._primary]

    def elect(self, number: int | None) -> None:
        """Make a member the primary, or none."""
        with self.changed:
            self._primary = number
            self._term += number is not None
            self._version += 1
            self.changed.notify_all()

    def step_down(self) -> None:
        """The next member takes over, if there is one; else the same one, for another term."""
        now = self._primary
        self.elect(None)
        self.elect(((now or 0) + 1) % len(self.members))

    def must_be_primary(self, member: Member) -> None:
        """:raises Refusal: the member takes no writes."""
        if member is not self.primary:
            raise Refusal(10107, "not primary", topologyVersion=self.topology_version())

    def topology_version(self) -> Document:
        """Which state of the set this is."""
        return {"processId": self._process, "counter": Int64(self._version)}

    def wait_for_change(self, known: Any, wait_s: float) -> None:
        """Return once the set is another one than a monitor knows, or after a while."""
        with self.changed:
            self.changed.wait_for(lambda: known["counter"] != self._version, wait_s)

    def hello(self, member: Member, command: Document) -> Document:
        """What a member says of itself and the others."""
        is_primary = member is self.primary
        legacy = "hello" not in command
        reply: Document = {
            "helloOk": True,
            "ismaster" if legacy else "isWritablePrimary": is_primary,
            "topologyVersion": self.topology_version(),
            "maxBsonObjectSize": self._max_document_bytes,
            "maxMessageSizeBytes": MAX_MESSAGE_BYTES,
            "maxWriteBatchSize": MAX_BATCH,
            "localTime": datetime.fromtimestamp(time.time(), UTC),
            "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0,
            "maxWireVersion": MAX_WIRE_VERSION,
            "readOnly": False,
        }
        return reply | (self._set_fields(member, is_primary) if self.name else {})

    def _set_fields(self, member: Member, is_primary: bool) -> Document:
        primary = self.primary
        fields: Document = {
            "setName": self.name,
            "setVersion": 1,
            "hosts": [each.address for each in self.members],
            "me": member.address,
            "secondary": not is_primary,
        }
        if primary is not None:
            fields["primary"] = primary.address
        if is_primary:
            fields["electionId"] = ObjectId(self._term.to_bytes(12, "big"))
        return fields

"""The server: a replica set in this process, its data in memory, on loopback ports.

with LoopbackServer() as server:
    client = MongoClient(server.uri)
"""

import socket
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count
from types import TracebackType
from typing import Any, Self

from anamnesis_tests.mongo_server import wire
from anamnesis_tests.mongo_server.commands import Client, execute
from anamnesis_tests.mongo_server.engine import Engine
from anamnesis_tests.mongo_server.faults import Faults
from anamnesis_tests.mongo_server.members import Member, ReplicaSet
from anamnesis_tests.mongo_server.refusals import failed_to_parse
from anamnesis_tests.mongo_server.requests import Cursors
from anamnesis_tests.mongo_server.scored import Scored
from anamnesis_tests.mongo_server.scram import Account
from anamnesis_tests.mongo_server.search_analysis import porter_stemmer
from anamnesis_tests.mongo_server.search_catalog import SearchCatalog
from anamnesis_tests.mongo_server.transactions import Sessions
from anamnesis_tests.mongo_server.values import Document

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
TRANSACTION_LIFETIME_S = 60.0
ANSWER_FIRST_S = 0.05
"""A server that is asked to vanish does so once its answer is on the way."""


class LoopbackServer:
    """A replica set of `members` on this machine.

    :param port: of the first member; the others have the next ones. 0: any that are free.
    :param replica_set: its name; None: one server of its own, which knows no transactions.
    :param user: who may do anything, with `password`; None: everybody may.
    :param advertised: the host that members name in `hello`, where clients must reach them.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        members: int = 2,
        replica_set: str | None = "loopback",
        user: str | None = None,
        password: str = "",
        bind: str = "127.0.0.1",
        advertised: str = "127.0.0.1",
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
        transaction_lifetime_s: float = TRANSACTION_LIFETIME_S,
    ) -> None:
        self.engine = Engine(max_document_bytes)
        self.sessions = Sessions(self.engine, transaction_lifetime_s)
        self.engine.expire = self.sessions.abort_expired
        self.faults = Faults()
        self.account = Account.of(user, password) if user is not None else None
        self.catalog = SearchCatalog(
            self.engine.committed, exists=lambda db, coll: bool(self.engine.collection(db, coll))
        )
        self.engine.listeners.append(self.catalog.committed)
        self.replica_set = ReplicaSet(replica_set, max_document_bytes)
        self._clients = count(1)
        self._stopped = False
        for number in range(members if replica_set else 1):
            self.replica_set.members.append(Member(bind, port + number if port else 0, advertised, self._serve))

    @property
    def uri(self) -> str:
        """For clients, without user and password."""
        hosts = ",".join(member.address for member in self.replica_set.members)
        return f"mongodb://{hosts}/" + (f"?replicaSet={self.replica_set.name}" if self.replica_set.name else "")

    def start(self) -> Self:
        """Listen."""
        porter_stemmer()
        for member in self.replica_set.members:
            member.up()
        return self

    def stop(self) -> None:
        """Close everything; the data is gone with the object."""
        self._stopped = True
        for member in self.replica_set.members:
            member.down()
        self.replica_set.elect(None)  # wakes the monitors' threads

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def step_down(self) -> None:
        """An election: open transactions are lost, the next member is primary."""
        with self.engine.lock:
            self.sessions.abort_all()
            self.replica_set.step_down()

    def vanish(self) -> None:
        """All members stop listening, and every connection breaks; the data stays."""
        for member in self.replica_set.members:
            member.down()
            member.cursors = Cursors()
        with self.engine.lock:
            self.sessions.abort_all()

    def come_back(self) -> None:
        """All members listen again, at their ports."""
        self.start()

    def steer(self, command: Mapping[str, Any]) -> None:
        """The command `loopback`, by which another process asks for what Python asks for here.

        :raises Refusal: there is no such thing to ask for.
        """
        wanted = command["loopback"]
        if wanted == "vanish":
            self._vanish_for(float(command["seconds"]))
        elif wanted == "diskIsFull":
            self.faults.disk_is_full = bool(command["value"])
        elif wanted == "clear":
            self.faults.clear()
        elif wanted == "neverReady":
            self.catalog.behaviour.never_ready = set(command["names"])
        else:
            raise failed_to_parse(f"the loopback server cannot be asked for {wanted!r}")

    def _vanish_for(self, seconds: float) -> None:
        def work() -> None:
            time.sleep(ANSWER_FIRST_S)
            self.vanish()
            time.sleep(seconds)
            self.come_back()

        threading.Thread(target=work, daemon=True).start()

    def search(
        self, database: str, collection: str, stage: Mapping[str, Any], _: Mapping[str, Any]
    ) -> Iterable[Document]:
        """The documents of a search stage, with their metadata."""
        name, given = next(iter(stage.items()))
        if name == "$listSearchIndexes":
            return self.catalog.list(database, collection, given.get("name"))
        return [Scored(document, meta) for document, meta in self.catalog.run(database, collection, stage)]

    def _serve(self, member: Member, connection: socket.socket) -> None:
        client = Client(next(self._clients))
        try:
            while (message := wire.read(connection)) is not None:
                if not self._answer(member, client, connection, message):
                    return
        except wire.BadMessage:
            return

    def _answer(self, member: Member, client: Client, connection: socket.socket, message: wire.Message) -> bool:
        """Whether the connection stays open."""
        command, name = message.command, next(iter(message.command))
        fault = self.faults.meeting(name)
        refusal = fault.strike(command.get("maxTimeMS")) if fault is not None else None
        if fault is not None and fault.drop == "before":
            return False
        if command.get("topologyVersion") and message.takes_many_answers:
            return self._monitor(member, client, connection, message)
        reply = execute(self, member, client, message, refusal)
        if fault is not None and fault.drop == "after":
            return False
        if message.wants_answer:
            wire.answer(connection, message, reply)
        return True

    def _monitor(self, member: Member, client: Client, connection: socket.socket, message: wire.Message) -> bool:
        """Tell a monitor of the set's state, again and again: with each change, else every `maxAwaitTimeMS`."""
        command = message.command
        known = command["topologyVersion"]
        while not self._stopped and member.is_up:
            self.replica_set.wait_for_change(known, command.get("maxAwaitTimeMS", 10_000) / 1000)
            reply = execute(self, member, client, message)
            known = reply["topologyVersion"]
            wire.answer(connection, message, reply, more=True)
        return False

"""The relay before the server: hands messages on byte for byte, but for what the search answers and faults meet."""

import select
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from anamnesis_tests.support.mongo_server import wire
from anamnesis_tests.support.mongo_server.faults import Fault, Faults

EXPIRED = 50


class Watcher(Protocol):
    """Who answers some messages, and looks at what the others did."""

    def answer(self, message: wire.Message) -> Mapping[str, Any] | None:
        """The reply to what the server does not know; None: it is the server's."""

    def done(self, message: wire.Message) -> None:
        """The server has answered this one."""


class Relay:
    """Listens, and has a connection to the server for each one of a client.

    :param port: 0: any that is free, which it keeps when it is closed and opened again.
    """

    def __init__(self, bind: str, port: int, server: tuple[str, int], faults: Faults, watcher: Watcher) -> None:
        self._bind, self.port = bind, port
        self._server, self.faults, self.watcher = server, faults, watcher
        self._lock = threading.Lock()
        self._listening: socket.socket | None = None
        self._open: set[socket.socket] = set()

    def open(self) -> None:
        """Listen; nothing where it does."""
        with self._lock:
            if self._listening is not None:
                return
            self._listening = socket.create_server((self._bind, self.port), backlog=128)
            self.port = self._listening.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        """Stop listening, and break every connection."""
        with self._lock:
            listening, self._listening = self._listening, None
            gone, self._open = self._open, set()
        for each in [*([listening] if listening else []), *gone]:
            _shut(each)
        if listening:
            listening.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
                server = socket.create_connection(self._server)
            except OSError:
                return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                is_open = self._listening is listening
                if is_open:
                    self._open |= {client, server}
            if not is_open:
                client.close()
                server.close()
                return
            threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            with suppress(OSError):
                _Conversation(self, client, server).go_on()
            with self._lock:
                self._open -= {client, server}


class _Conversation:
    """One client's connection. A client asks one thing at a time; a monitor is answered again and again."""

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket) -> None:
        self._relay, self._client, self._server = relay, client, server
        self._asked: tuple[wire.Message, Fault | None] | None = None

    def go_on(self) -> None:
        """Until one end is gone or a fault breaks the connection."""
        polled = select.poll()  # `select` itself knows no more than 1,024 files
        for each in (self._client, self._server):
            polled.register(each, select.POLLIN)
        while True:
            ready = {number for number, _ in polled.poll()}
            if self._server.fileno() in ready and not self._from_server():
                return
            if self._client.fileno() in ready and not self._from_client():
                return

    def _from_client(self) -> bool:
        if (message := wire.read(self._client)) is None:
            return False
        fault = self._relay.faults.meeting(message.name, len(message.raw))
        if fault is not None and not self._passes(message, fault):
            return fault.drop is None
        reply = self._relay.watcher.answer(message)
        if reply is not None:
            if fault is not None and fault.drop:
                return False
            self._client.sendall(message.answered(reply))
            return True
        self._server.sendall(message.raw)
        if not message.has_more_after_it:
            self._asked = message, fault
        return True

    def _from_server(self) -> bool:
        if (reply := wire.read(self._server)) is None:
            return False
        if self._asked is not None:
            message, fault = self._asked
            self._relay.watcher.done(message)
            if not reply.has_more_after_it:
                self._asked = None
            if fault is not None and fault.drop == "after":
                return False
        self._client.sendall(reply.raw)
        return True

    def _passes(self, message: wire.Message, fault: Fault) -> bool:
        """Whether a command gets through to the server all the same; one that is refused is answered here."""
        error, limit_s = fault.error, message.decoded().get("maxTimeMS", 0) / 1000 if message.is_command else 0
        if fault.delay_s:
            self._relay.faults.wait(min(fault.delay_s, limit_s or fault.delay_s))
            error = EXPIRED if limit_s and limit_s < fault.delay_s else error
        if fault.does:
            fault.does()
        if fault.drop == "before":
            return False
        if error is None:
            return True
        self._abort(message)
        labels = {"errorLabels": list(fault.labels)} if fault.labels else {}
        told = {"ok": 0.0, "errmsg": fault.says, "code": error}
        self._client.sendall(message.answered(told | labels))
        return False

    def _abort(self, message: wire.Message) -> None:
        """An error ends the transaction it comes in, where that has begun."""
        command = message.command
        if command.get("autocommit") is False and not command.get("startTransaction"):
            ended = {name: command[name] for name in ("lsid", "txnNumber", "autocommit")}
            self._server.sendall(wire.asked({"abortTransaction": 1, **ended, "$db": "admin"}))
            wire.read(self._server)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)

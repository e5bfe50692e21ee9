"""Limit on the number and duration of connections without a complete request. Otherwise a client that sends a thousand
half requests would take every descriptor of the process and lock out all others.
"""

import asyncio
import logging
import math
import resource
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.server import ServerState

WAITING_SHARE = 4
"""One in this many descriptors may be a waiting connection; the rest is for files, the store and answers."""
MAX_WAITING, MIN_WAITING = 256, 16
PATIENCE_S = 30.0
"""Limit in seconds for the head of a request, and between two pieces of its body."""
WARN_EVERY_S = 60.0
STATE = "connection"
"""Key of the connection in the state that uvicorn passes to each request."""

log = logging.getLogger(__name__)


class Connections:
    """The connections of one server that wait for a request or for the rest of one, longest wait first. Event loop
    only.
    """

    def __init__(self, most: int, patience_s: float = PATIENCE_S) -> None:
        """:param most: above this number, the connection that has waited longest is closed."""
        self._most, self._patience_s = most, patience_s
        self._waiting: dict[Connection, asyncio.TimerHandle] = {}
        self._warned_at = -math.inf

    def wait(self, connection: "Connection") -> None:
        """Register a connection as waiting, from now on."""
        self.end(connection)
        if len(self._waiting) >= self._most:
            self._warn()
            next(iter(self._waiting)).close()
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(self._patience_s, self._look, connection)

    def end(self, connection: "Connection") -> None:
        """Unregister a connection: its request is complete, or it closed."""
        if (timer := self._waiting.pop(connection, None)) is not None:
            timer.cancel()

    def _look(self, connection: "Connection") -> None:
        loop = asyncio.get_running_loop()
        quiet_s = loop.time() - connection.heard_at
        if connection.reads_body and quiet_s < self._patience_s:  # it keeps its place in the order
            self._waiting[connection] = loop.call_later(self._patience_s - quiet_s, self._look, connection)
        else:
            connection.close()

    def _warn(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._warned_at + WARN_EVERY_S:
            self._warned_at = now
            log.warning("%d connections wait for the rest of a request; the oldest are closed", len(self._waiting))


class Config(uvicorn.Config):
    """Configuration of a server with limited connections."""

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        super().__init__(app, http=Connection, **options)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.connections = Connections(max(MIN_WAITING, min(MAX_WAITING, descriptors // WAITING_SHARE)))


class Connection(asyncio.Protocol):
    """One connection: forwards every call to uvicorn's own protocol and tracks the waiting time."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        made = cast(Callable[..., asyncio.Protocol], AutoHTTPProtocol)
        self._protocol = made(config, server_state, {**app_state, STATE: self}, _loop)
        self._connections = config.connections
        self._transport: asyncio.Transport | None = None
        self.heard_at = 0.0
        self.reads_body = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connection_made(transport)
        self.wait()

    def data_received(self, data: bytes) -> None:
        """Receive a piece of a request."""
        self.heard_at = asyncio.get_running_loop().time()
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Handle the client's end of data."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the closed connection."""
        self._connections.end(self)
        self._transport = None
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause: the client reads too slowly."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resume: the client has read."""
        self._protocol.resume_writing()

    def wait(self, *, for_body: bool = False) -> None:
        """Wait for a request, or for the rest of its body."""
        self.reads_body = for_body
        if self._transport is not None:
            self._connections.wait(self)

    def work(self) -> None:
        """Stop the waiting time: the request is complete. The answer has no limit here."""
        self._connections.end(self)

    def close(self) -> None:
        """Abort the connection at once, with any data in transit."""
        self._connections.end(self)
        if self._transport is not None:
            self._transport.abort()


class Wholeness:
    """Outermost plain ASGI middleware: notifies the connection when a request is complete and when it is answered. A
    request with a body is passed on once its first piece has arrived.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        connection = scope.get("state", {}).get(STATE) if scope["type"] == "http" else None
        if connection is None:
            await self._app(scope, receive, send)
            return

        first: list[Message] = []

        async def receive_noted() -> Message:
            message = first.pop() if first else await receive()
            if not message.get("more_body"):
                connection.work()
            return message

        if {name for name, _ in scope["headers"]} & {b"content-length", b"transfer-encoding"}:
            connection.wait(for_body=True)
            first.append(await receive_noted())
            if first[0]["type"] == "http.disconnect":  # the client has disconnected
                return
        else:
            connection.work()
        try:
            await self._app(scope, receive_noted, send)
        finally:
            connection.wait()

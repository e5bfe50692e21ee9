"""`/mcp`: the tools over streamable HTTP, behind the same checks as every other route. Stateless between calls.

The SDK takes a second and some memory to import: a thread does so at the first call. Every call but `initialize` waits
for it.
"""

import logging
from contextlib import AsyncExitStack
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from anamnesis_pipeline.sidecar.mcp.client import PATH
from anamnesis_pipeline.sidecar.mcp.handshake import answer_to
from anamnesis_pipeline.sidecar.mcp.tools import LocalTools
from anamnesis_pipeline.sidecar.problems import json_reply, problem

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 64
"""Max HTTP calls running or queued; further ones get 429 at once."""
PATIENCE_S = 20.0
"""Seconds that a call waits for the SDK."""


class McpEndpoint:
    """ASGI application for one path; `run` serves it for the lifetime of the sidecar."""

    def __init__(self, tools: LocalTools, version: str) -> None:
        self.path = PATH
        self._tools = tools
        self._version = version
        self._sessions: StreamableHTTPSessionManager | None = None
        self._problem: str | None = None
        self._wanted: anyio.Event | None = None
        self._decided: anyio.Event | None = None
        self._calls = 0

    async def run(self) -> None:
        """Serve from the first call until cancelled. A failure is reported to MCP clients and affects nothing else."""
        self._sessions, self._problem, self._wanted, self._decided = None, None, anyio.Event(), anyio.Event()
        await self._wanted.wait()
        async with AsyncExitStack() as stack:
            try:
                sessions = await anyio.to_thread.run_sync(self._open, abandon_on_cancel=True)
                await stack.enter_async_context(sessions.run())
            except Exception as exc:
                log.exception("MCP is not served")
                self._problem = f"MCP is not served: {type(exc).__name__}; the log says more"
                self._decided.set()
                return
            self._sessions = sessions
            self._decided.set()
            await anyio.sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP call."""
        scope["route"] = self  # for the metrics' label
        if scope["method"] != "POST":  # stateless: nothing to end by DELETE, no stream to open by GET
            await problem(405, "MCP is answered to POST alone", {"Allow": "POST"})(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()  # first: a half-sent call takes no slot
        except ClientDisconnect:
            return
        if self._calls >= CALLS_AT_ONCE:
            await problem(429, "too many MCP calls at once; try again in a second")(scope, receive, send)
            return
        self._calls += 1
        try:
            await self._answer(scope, _replayed(body, receive), send, body)
        finally:
            self._calls -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        if self._wanted and self._decided and not self._decided.is_set():
            reply = answer_to(body)
            if reply is not None:
                await json_reply(reply)(scope, receive, send)
            self._wanted.set()
            if reply is not None:
                return
            with anyio.move_on_after(PATIENCE_S):
                await self._decided.wait()
        if self._sessions is None:
            reason = self._problem or "MCP is not served yet; try again in a second"
            await problem(503, reason)(scope, receive, send)
            return
        await self._sessions.handle_request(scope, receive, send)

    def _open(self) -> "StreamableHTTPSessionManager":
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from anamnesis_pipeline.sidecar.mcp.server import build_server

        logging.getLogger("mcp").setLevel(logging.WARNING)  # it logs every call
        server = build_server(self._tools, self._version, folder_named)
        return StreamableHTTPSessionManager(server, json_response=True, stateless=True)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers the body again."""
    is_read = False

    async def receive_again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def folder_named(request: object) -> str | None:
    """Return the client's folder from the URL, `/mcp?folder=...`; None without one.

    Clients do not escape the folder, so everything after `folder=` is part of it, `+` and `&` included.
    """
    asked = request.scope["query_string"].decode("latin-1") if isinstance(request, Request) else ""
    _, _, given = asked.partition("folder=")
    folder = unquote(given)[:4096]
    is_path = PurePosixPath(folder).is_absolute() or PureWindowsPath(folder).is_absolute()
    return folder if is_path else None  # else an unexpanded variable

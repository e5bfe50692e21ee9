"""A guard in front of Dagster's webserver: `python -m anamnesis_pipeline.sidecar.dagster_ui`, with the options of
`dagster-webserver`, such as `-h 127.0.0.1 -p 3000 -w workspace.yaml`.

Dagster checks neither Host nor Origin, has no login, and executes mutations sent by plain GET
(dagster_webserver/graphql.py, 1.13). So the guard owns the requested port and forwards what passes its checks. The
webserver itself listens in the same process, on a random address of 127.0.0.0/8 and a random port: 38 bits, which a
page that controls a browser cannot find.
"""

import argparse
import asyncio
import base64
import binascii
import os
import runpy
import secrets
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import uvicorn
from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketClose
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake
from websockets.typing import Subprotocol

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.errors import AnamnesisError, BadSetting
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.problems import problem
from anamnesis_pipeline.sidecar.security import (
    COOKIE,
    LOOPBACK,
    MIB,
    LoginRateLimiter,
    Refusal,
    allowed_hosts,
    client_of,
    limited,
    refuse_host,
    refuse_origin,
    refuse_token,
    session_value,
)

ALIVE = "/server_info"
"""Versions of Dagster, for health checks: the only path without a token."""
BODY_LIMIT = 16 * MIB
MESSAGE_LIMIT = 16 * MIB
"""Limit of one websocket message in bytes: uvicorn's own limit."""
MAX_CONNECTIONS = 200
CONNECT_TIMEOUT_S = 5.0
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
"""Hop-by-hop headers (RFC 9110, 7.6.1): not forwarded."""


class DagsterGuard:
    """Checks Host, Origin, token and GraphQL request type, in this order, of HTTP requests and websockets."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._guesses = app, LoginRateLimiter()
        named = (urlsplit(url).hostname for url in (settings.dagster_url, settings.dagster_link))
        self._hosts = allowed_hosts(settings) | {name for name in named if name}
        self._token = settings.api_token.get_secret_value() if settings.api_token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or one websocket."""
        headers = Headers(scope=scope)
        password = basic_password(headers)
        if refusal := self._refusal(scope, headers, password):
            refused = problem(refusal.status, refusal.detail, refusal.headers)
            is_socket = scope["type"] == "websocket"
            await (WebSocketClose() if is_socket else refused)(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                marked = MutableHeaders(scope=message)
                marked["X-Frame-Options"] = "DENY"  # a foreign page could direct clicks into a frame
                if self._token and password:
                    value = f"{COOKIE}={session_value(self._token)}; Path=/; HttpOnly; SameSite=Strict"
                    marked.append("Set-Cookie", value)
            await send(message)

        try:
            await self._app(scope, limited(receive, BODY_LIMIT), send_marked)
        except HTTPException as exc:
            await problem(exc.status_code, exc.detail)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, password: str | None) -> Refusal | None:
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        refusal = refuse_host(headers, self._hosts) or refuse_origin(headers, is_read=is_read)
        if refusal is None and self._token and scope["path"] != ALIVE:
            refusal = self._refuse_client(client_of(scope), headers, password, self._token)
        return refusal or (refuse_graphql(scope, headers) if scope["type"] == "http" else None)

    def _refuse_client(self, address: str, headers: Headers, password: str | None, token: str) -> Refusal | None:
        if self._guesses.is_shut_out(address):
            return Refusal(429, "too many wrong tokens from this address; wait a minute", {"Retry-After": "60"})
        given = headers if password is None else Headers({"authorization": f"Bearer {password}"})
        if refuse_token(given, token) is None:
            return None
        if "authorization" in headers:
            self._guesses.wrong(address)
        detail = "send Authorization: Bearer <ANAMNESIS_API_TOKEN>; in a browser, the token is the password of any user"
        return Refusal(401, detail, {"WWW-Authenticate": 'Basic realm="the token of Anamnesis", charset="UTF-8"'})


def basic_password(headers: Headers) -> str | None:
    """Return the basic-auth password of a request; None: it sends none. Pure."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def refuse_graphql(scope: Scope, headers: Headers) -> Refusal | None:
    """Return 405 for GraphQL by GET, which may be a mutation, and 415 for types that any page's form can send. Pure."""
    if not scope["path"].rstrip("/").endswith("/graphql"):
        return None
    if scope["method"] != "POST":
        is_page = scope["method"] == "GET" and "text/html" in headers.get("accept", "")  # GraphiQL: no execution
        return None if is_page else Refusal(405, "GraphQL is asked by POST here", {"Allow": "POST"})
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if media_type == "application/json" else Refusal(415, "send the query as application/json")


class Relay:
    """Forwards requests and websockets unchanged to a server on this machine."""

    def __init__(self, host: str, port: int) -> None:
        self._base = f"{host}:{port}"
        # No keep-alive: over loopback a new connection is cheaper than tracking an old one.
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(limits=limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or one websocket until either side closes it."""
        query = scope["query_string"]
        target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
        if scope["type"] == "websocket":
            await self._relay(WebSocket(scope, receive, send), target)
        else:
            answer = await self._answer(Request(scope, receive), target)
            await answer(scope, receive, send)

    async def _answer(self, request: Request, target: bytes) -> Response:
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        asked = httpx.Request(
            request.method,
            f"http://{self._base}/",
            headers=[(name, value) for name, value in request.headers.raw if name not in _HOP_BY_HOP],
            content=request.stream() if has_body else None,
            # `target`: the checked bytes, since a parsed URL is normalized (`/x/../graphql`)
            extensions={"target": target, "timeout": {"connect": CONNECT_TIMEOUT_S, "pool": CONNECT_TIMEOUT_S}},
        )
        try:
            found = await self._transport.handle_async_request(asked)
        except httpx.TransportError as exc:
            return problem(503, f"Dagster's webserver does not answer ({type(exc).__name__}); it may be starting")

        async def body() -> AsyncIterator[bytes]:
            try:
                async for piece in found.aiter_raw():
                    yield piece
            finally:
                await found.aclose()

        answer = StreamingResponse(body(), found.status_code)
        answer.raw_headers = [(n.lower(), value) for n, value in found.headers.raw if n.lower() not in _HOP_BY_HOP]
        return answer

    async def _relay(self, browser: WebSocket, target: bytes) -> None:
        url, wanted = f"ws://{self._base}{target.decode('ascii')}", map(Subprotocol, browser.scope["subprotocols"])
        try:
            dagster = await connect(
                url,
                subprotocols=list(wanted),
                max_size=MESSAGE_LIMIT,
                open_timeout=CONNECT_TIMEOUT_S,
                ping_interval=None,
                compression=None,
                proxy=None,
            )
        except (OSError, InvalidHandshake, TimeoutError):
            await browser.close()
            return

        async def up() -> None:
            while (message := await browser.receive())["type"] == "websocket.receive":
                text = message.get("text")
                await dagster.send(message["bytes"] if text is None else text)

        async def down() -> None:
            async for message in dagster:
                await (browser.send_text(message) if isinstance(message, str) else browser.send_bytes(message))
            await browser.close()

        async with dagster:
            await browser.accept(dagster.subprotocol)
            tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # either side may have closed


def hidden_address() -> tuple[str, int]:
    """Return a loopback address and a free port that no page can guess. Linux has all of 127.0.0.0/8.

    :raises BadSetting: this system has only 127.0.0.1.
    """
    address = ".".join(map(str, (127, secrets.randbelow(256), secrets.randbelow(256), 1 + secrets.randbelow(254))))
    try:
        with socket.create_server((address, 0)) as listener:
            return address, int(listener.getsockname()[1])
    except OSError as exc:
        raise BadSetting(f"{address} is no address of this machine ({exc.strerror}); Dagster's UI needs Linux") from exc


def require_token(host: str, token: SecretStr | None) -> None:
    """Raise BadSetting if the UI would be open to other machines without a token."""
    if host not in LOOPBACK and not token:
        raise BadSetting(f"{host} is open to other machines, which needs a token: set ANAMNESIS_API_TOKEN")


def main() -> None:
    """Serve until SIGTERM or Ctrl-C, as the webserver does."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "--host", default="127.0.0.1")
    parser.add_argument("-p", "--port", type=int, default=3000)
    given, others = parser.parse_known_args()
    try:
        settings = settings_file.load()
        require_token(given.host, settings.api_token)
        host, port = hidden_address()
    except AnamnesisError as exc:
        sys.exit(f"anamnesis dagster ui: {exc}")
    config = uvicorn.Config(
        DagsterGuard(Relay(host, port), settings),
        host=given.host,
        port=given.port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,  # the webserver's own are forwarded
        date_header=False,
        limit_concurrency=MAX_CONNECTIONS,
    )
    listener = config.bind_socket()

    def guard() -> None:
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:  # without the guard the webserver is unreachable
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=guard, name="guard", daemon=True).start()
    sys.argv = ["dagster-webserver", "-h", host, "-p", str(port), *others]
    runpy.run_module("dagster_webserver", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

"""Access control and size limits of the sidecar. Plain ASGI: streaming stays streaming.

The Host check stops pages whose name an attacker points at this machine (DNS rebinding), the Origin check pages of
other sites, and the token everyone else.
"""

import hmac
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.problems import SAFE_HEADERS, problem

# --- login rate ------------------------------------------------------------------------------------------

# Login rate limiter: an address that sends many wrong tokens is blocked for a while.

_HERE = frozenset({"127.0.0.1", "::1"})

MAX_WRONG = 20
WITHIN_S = 60.0
ADDRESSES = 1_000
"""Maximum number of addresses; the least recently active are dropped."""

log = logging.getLogger(__name__)


class LoginRateLimiter:
    """Wrong tokens of the last minute by address. Loopback is never blocked: a forgotten local client with an old token
    would block all others. Used from one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def is_shut_out(self, address: str) -> bool:
        """Return whether an address is blocked; then a right token is rejected too."""
        times = self._wrong.get(address, deque())
        return len(times) == MAX_WRONG and self._clock() - times[0] < WITHIN_S

    def wrong(self, address: str) -> None:
        """Record a wrong token."""
        if address in _HERE:
            return
        times = self._wrong.setdefault(address, deque(maxlen=MAX_WRONG))
        times.append(self._clock())
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)
        if self.is_shut_out(address):
            log.warning("%s has sent %d wrong tokens and is not answered for a while", address, MAX_WRONG)


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - names to recognize, not to bind
ALIVE = "/health"
OPEN_PATHS = frozenset({ALIVE, "/login"})
OPEN_FOLDER = "/static/"
"""Paths without a token: the liveness check, the login form and its static files."""
PAGES = ("/dashboard", "/chat", "/docs")
COOKIE = "anamnesis_session"
FOREIGN = "pages of another origin may not call this service"

MIB = 1024 * 1024
BODY_LIMIT = MIB
BULK_BODY_LIMIT = 32 * MIB
BULK_PATH = "/api/episodes/bulk"
CHAT_BODY_LIMIT = 8 * MIB
CHAT_PATH = "/api/chat/stream"
"""Attached files have up to a megabyte each, and more as JSON."""
UPLOAD_BODY_LIMIT = 51 * MIB
"""The largest document, plus the other fields of its form."""
UPLOAD_PATHS = frozenset({"/api/uploads", "/api/episodes/upload"})

Authority = tuple[str, int | None]
"""Host name in lower case, and the port if there is one."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused."""

    status: int
    detail: str
    headers: Mapping[str, str] | None = None


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Return the host names that a request may address, in lower case, without ports."""
    bound = set() if settings.bind in WILDCARDS else {settings.bind.lower()}
    return LOOPBACK | bound | {host.lower().strip("[]") for host in settings.allowed_hosts}


def split_authority(text: str) -> Authority | None:
    """Split `name:port` into (name, port), without the brackets of IPv6; None when it is not an authority."""
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not name or parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return name, port


def refuse_host(headers: Headers, allowed: Collection[str]) -> Refusal | None:
    """Return 421 unless exactly one Host header names this service."""
    given = headers.getlist("host")
    authority = split_authority(given[0]) if len(given) == 1 else None
    if authority and authority[0] in allowed:
        return None
    return Refusal(421, "the Host header names another server; a name to allow goes into ANAMNESIS_ALLOWED_HOSTS")


def refuse_origin(headers: Headers, *, is_read: bool) -> Refusal | None:
    """Return 403 for a request from a page of another origin. Comes after `refuse_host`, so the Host header is an
    allowed one. Images and the like on other sites send no Origin; browsers mark these by Fetch Metadata
    (https://www.w3.org/TR/fetch-metadata/). Only a link that leads here is allowed.

    :param is_read: whether the method changes nothing.
    """
    origins = headers.getlist("origin")
    if not origins:
        is_link = is_read and headers.get("sec-fetch-mode") == "navigate"
        return Refusal(403, FOREIGN) if headers.get("sec-fetch-site") == "cross-site" and not is_link else None
    scheme, _, rest = origins[0].partition("://")
    origin, host = split_authority(rest), split_authority(headers["host"])
    if len(origins) == 1 and scheme in _DEFAULT_PORTS and _same_place(origin, host, _DEFAULT_PORTS[scheme]):
        return None
    return Refusal(403, FOREIGN)


def _same_place(one: Authority | None, other: Authority | None, default_port: int) -> bool:
    if one is None or other is None:
        return False
    return (one[0], one[1] or default_port) == (other[0], other[1] or default_port)


def session_value(token: str) -> str:
    """Return the login cookie's value; the token cannot be derived from it."""
    return hmac.new(token.encode(), b"pages of anamnesis", "sha256").hexdigest()


def refuse_token(headers: Headers, token: str) -> Refusal | None:
    """Return 401 without the right bearer token or login cookie; compare in constant time."""
    kept = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    if kept is not None and hmac.compare_digest(kept.encode("latin-1", "replace"), session_value(token).encode()):
        return None
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return Refusal(401, "send Authorization: Bearer <ANAMNESIS_API_TOKEN>", {"WWW-Authenticate": "Bearer"})
    if hmac.compare_digest(given.strip().encode("latin-1", "replace"), token.encode()):
        return None
    return Refusal(401, "the token is not the right one", {"WWW-Authenticate": 'Bearer error="invalid_token"'})


def body_limit(path: str) -> int:
    """Return the limit of a request body at `path`, in bytes."""
    if path in UPLOAD_PATHS:
        return UPLOAD_BODY_LIMIT
    return {BULK_PATH: BULK_BODY_LIMIT, CHAT_PATH: CHAT_BODY_LIMIT}.get(path, BODY_LIMIT)


class Security:
    """Checks Host, Origin, token and body size, in this order; adds headers to every response."""

    def __init__(self, app: ASGIApp, settings: Settings, guesses: LoginRateLimiter) -> None:
        """:param guesses: counts wrong tokens, from here and from the login form."""
        self._app, self._guesses = app, guesses
        self._hosts = allowed_hosts(settings)
        self._token = settings.api_token.get_secret_value() if settings.api_token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal:
            await _answer(refusal, scope)(scope, receive, send_marked)
            return
        await self._app(scope, limited(receive, body_limit(scope["path"])), send_marked)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        is_read = scope["method"] in ("GET", "HEAD")
        refusal = refuse_host(headers, self._hosts) or refuse_origin(headers, is_read=is_read)
        if refusal is None and self._token:
            refusal = self._refuse_client(scope, headers, self._token)
        return refusal or _refuse_length(headers, body_limit(scope["path"]))

    def _refuse_client(self, scope: Scope, headers: Headers, token: str) -> Refusal | None:
        address = client_of(scope)
        if scope["path"] != ALIVE and self._guesses.is_shut_out(address):
            return Refusal(429, "too many wrong tokens from this address; wait a minute", {"Retry-After": "60"})
        refusal = None if _is_open(scope["path"]) else refuse_token(headers, token)
        if refusal is not None and "authorization" in headers:
            self._guesses.wrong(address)
        return refusal


def client_of(scope: Scope) -> str:
    """Return the client address of a request."""
    return str((scope.get("client") or ("", 0))[0])


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def _answer(refusal: Refusal, scope: Scope) -> Response:
    """Redirect a browser that opens a page to the login form; send every other client the problem."""
    path, headers = scope["path"], Headers(scope=scope)
    is_page = scope["method"] == "GET" and (path == "/" or path.startswith(PAGES))
    wants_page = is_page and "text/html" in headers.get("accept", "") and "hx-request" not in headers
    if refusal.status == 401 and wants_page:
        asked = f"{path}?{scope['query_string'].decode('latin-1')}".rstrip("?")
        return RedirectResponse(f"/login?next={quote(asked)}", 303)
    return problem(refusal.status, refusal.detail, refusal.headers)


def limited(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that stops at `limit` bytes, independent of the declared length.

    The error that it raises becomes a 413 inside the application.
    """
    seen = 0

    async def receive_limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, _too_large(limit))
        return message

    return receive_limited


def _refuse_length(headers: Headers, limit: int) -> Refusal | None:
    length = headers.get("content-length", "")
    return Refusal(413, _too_large(limit)) if length.isdigit() and int(length) > limit else None


def _too_large(limit: int) -> str:
    return f"the body is larger than {limit // MIB} MiB; send less, or split it into several calls"

"""Fetch one web page without exposing this machine or its network to requests of the page's author.

Names are resolved here, every address of a name is checked, and the connection goes to a checked address: a later DNS
change has no effect. Redirects are followed here as well, and each is checked again.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import httpx

from anamnesis_pipeline.errors import DocumentUnsupported, PageRefused, PageUnreachable, TooLarge

MAX_BYTES = 10 * 1024 * 1024
MAX_SECONDS = 30.0
MAX_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "application/pdf": ".pdf",
    "text/plain": ".txt",
    "text/markdown": ".md",
}
"""Media types that are read, each with its file suffix."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host name, port) -> its addresses, as texts."""


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page. `url` is the end of the redirects, `suffix` one of `SUFFIXES`."""

    url: str
    suffix: str
    data: bytes


def is_public(address: Address) -> bool:
    """Return whether an address is public; for an IPv6 address that embeds an IPv4 one, both must be."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.is_site_local or not all(is_public(found) for found in inner if found is not None):
            return False
        if address.ipv4_mapped is not None:
            return True
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


async def resolve(host: str, port: int) -> list[str]:
    """Return the answer of the system's resolver, which also reads decimal and octal numbers as addresses."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def fetch_page(url: str, *, resolve: Resolve = resolve, allows: Callable[[Address], bool] = is_public) -> Page:
    """Fetch a page of HTML, PDF or text.

    :param allows: which addresses may be connected to.
    :raises PageRefused: the address, or a redirect's target, is not allowed; or the server refuses.
    :raises PageUnreachable: no answer within 30 seconds, or the connection broke off.
    :raises TooLarge: more than 10 MiB.
    :raises DocumentUnsupported: another content type.
    """
    try:
        # a transport, since a client would handle redirects and proxies itself
        async with asyncio.timeout(MAX_SECONDS), httpx.AsyncHTTPTransport(trust_env=False) as transport:
            for _ in range(MAX_REDIRECTS + 1):
                found = await _fetch(transport, _parts(url), resolve, allows)
                if isinstance(found, Page):
                    return found
                try:
                    url = urljoin(url, found)
                except ValueError:
                    raise PageRefused(f"{_shown(url)} redirects to something that is not an address") from None
    except TimeoutError:
        raise PageUnreachable(f"{_shown(url)} was not there within {MAX_SECONDS:.0f} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        raise PageUnreachable(f"{_shown(url)} does not answer ({type(problem).__name__})") from None
    raise PageRefused(f"{_shown(url)} comes after {MAX_REDIRECTS} redirects; give the address where they end")


async def _fetch(
    transport: httpx.AsyncHTTPTransport,
    place: SplitResult,
    resolve: Resolve,
    allows: Callable[[Address], bool],
) -> Page | str:
    """Return the page, or the target of its redirect."""
    host, port = place.hostname or "", place.port or _PORTS[place.scheme]
    address = await _checked_address(host, port, resolve, allows)
    connected_to = f"[{address}]" if address.version == 6 else str(address)
    authority = f"[{host}]" if ":" in host else host
    if place.port:
        authority += f":{place.port}"
    request = httpx.Request(
        "GET",
        urlunsplit((place.scheme, f"{connected_to}:{port}", place.path or "/", place.query, "")),
        # no encoding: the received bytes are counted
        headers={
            "Host": authority,
            "Accept-Encoding": "identity",
            "User-Agent": "anamnesis",
        },
        extensions={"sni_hostname": host, "timeout": httpx.Timeout(MAX_SECONDS).as_dict()},
    )
    reply = await transport.handle_async_request(request)
    try:
        if reply.status_code in _REDIRECTS and "location" in reply.headers:
            return reply.headers["location"]
        return await _page(reply, urlunsplit(place))
    finally:
        await reply.aclose()


async def _page(reply: httpx.Response, url: str) -> Page:
    if not reply.is_success:
        raise PageRefused(f"{_shown(url)} answers with status {reply.status_code}")
    if reply.headers.get("content-encoding", "identity") != "identity":
        raise PageRefused(f"{_shown(url)} sends its content compressed, though it was asked not to")
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    suffix = SUFFIXES.get(media_type)
    if suffix is None:
        raise DocumentUnsupported(f"{_shown(url)} is {media_type or 'of no type'}; HTML, PDF and text are read")
    data = bytearray()
    async for chunk in reply.aiter_raw():
        data += chunk
        if len(data) > MAX_BYTES:
            raise TooLarge(f"{_shown(url)} has more than {MAX_BYTES >> 20} MiB")
    return Page(url, suffix, bytes(data))


def _parts(url: str) -> SplitResult:
    try:
        place = urlsplit(url)
        port = place.port
    except ValueError:
        raise PageRefused("that is no address of a page") from None
    if place.scheme not in _PORTS or not place.hostname or port == 0:
        raise PageRefused(f"{_shown(url)} is no http or https address")
    if place.username is not None or place.password is not None:
        raise PageRefused("an address with a user name or password is not fetched")
    return place


async def _checked_address(host: str, port: int, resolve: Resolve, allows: Callable[[Address], bool]) -> Address:
    """Return an address of a host if every one of its addresses is allowed."""
    try:
        found = [ipaddress.ip_address(text.partition("%")[0]) for text in await resolve(host, port)]
    except (OSError, UnicodeError):
        raise PageUnreachable(f"there is no host {host!r}, or its name is not known here") from None
    if not found:
        raise PageUnreachable(f"{host!r} has no address")
    if not all(map(allows, found)):
        raise PageRefused(f"{host!r} leads to an address that is not of the public internet; it is not fetched")
    return found[0]


def _shown(url: str) -> str:
    """Return an address without its query, which may hold a secret, and without a user name."""
    try:
        place = urlsplit(url)
        return repr(f"{place.scheme}://{place.hostname or ''}{place.path}"[:200])
    except ValueError:
        return "that"

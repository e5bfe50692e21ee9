"""Whether a service's URL and key are well-formed, and whether the URL stays on this machine. Pure."""

import ipaddress
from urllib.parse import urlsplit

from anamnesis_pipeline.errors import BadSetting


def check_url(setting: str, url: str) -> str:
    """The URL without a slash at its end.

    :raises BadSetting: it is no http(s) URL with a host, or it holds a password, which would end up in logs.
    """
    try:
        pieces = urlsplit(url)
        is_url = pieces.scheme in ("http", "https") and bool(pieces.hostname) and pieces.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        # the pieces of what is no URL cannot be told apart, so none that may be a secret is shown
        shown = "what it holds now" if any(mark in url for mark in "@?#") else repr(url)
        raise BadSetting(f"{setting} must hold URLs such as http://127.0.0.1:8080, not {shown}")
    if pieces.username or pieces.password or pieces.query or pieces.fragment:
        raise BadSetting(f"{setting} must hold plain URLs, without a user, a password or anything behind `?` or `#`")
    return url.rstrip("/")


def with_scheme(url: str) -> str:
    """The URL of a server that is named by its address alone, as Ollama's own command takes it."""
    return url if "://" in url else f"http://{url}"


def address_of(url: str) -> str:
    """Host and port of a server, as a message names it: without a user and a password."""
    return urlsplit(url).netloc.rpartition("@")[2]


def check_key(setting: str, key: str) -> str:
    """The key, as a header may hold it.

    :raises BadSetting: it holds what no key has; it is not shown.
    """
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise BadSetting(f"{setting} holds a line break, a space around it or a letter outside ASCII; copy it anew")
    return key


def is_loopback(url: str) -> bool:
    """Whether the URL's host is this machine, going by its name alone."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

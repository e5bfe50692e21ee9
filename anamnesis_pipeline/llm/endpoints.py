"""Checks of a service's URL and key: well-formed, and whether the URL stays on this machine. Pure."""

import ipaddress
from urllib.parse import urlsplit

from anamnesis_pipeline.errors import BadSetting


def check_url(setting: str, url: str) -> str:
    """Return the URL without a trailing slash.

    :raises BadSetting: it is no http(s) URL with a host, or it holds a password, which logs would expose.
    """
    try:
        pieces = urlsplit(url)
        is_url = pieces.scheme in ("http", "https") and bool(pieces.hostname) and pieces.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        # an invalid URL cannot be split, so show none of it that may be a secret
        shown = "what it holds now" if any(mark in url for mark in "@?#") else repr(url)
        raise BadSetting(f"{setting} must hold URLs such as http://127.0.0.1:8080, not {shown}")
    if pieces.username or pieces.password or pieces.query or pieces.fragment:
        raise BadSetting(f"{setting} must hold plain URLs, without a user, a password or anything behind `?` or `#`")
    return url.rstrip("/")


def with_scheme(url: str) -> str:
    """Return the URL of a server given by its address alone, as Ollama's command accepts it."""
    return url if "://" in url else f"http://{url}"


def address_of(url: str) -> str:
    """Return host and port of a server for messages, without user and password."""
    return urlsplit(url).netloc.rpartition("@")[2]


def check_key(setting: str, key: str) -> str:
    """Return a key that is valid in a header.

    :raises BadSetting: it has invalid characters; it is not shown.
    """
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise BadSetting(f"{setting} holds a line break, a space around it or a letter outside ASCII; copy it again")
    return key


def is_loopback(url: str) -> bool:
    """Return whether the URL's host is this machine, by its name alone."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

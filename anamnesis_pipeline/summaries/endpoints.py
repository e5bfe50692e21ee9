"""Whether a service's URL is well-formed, and whether it stays on this machine. Pure."""

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
        raise BadSetting(f"{setting} must hold URLs such as http://127.0.0.1:8080, not {url.rsplit('@', 1)[-1]!r}")
    if pieces.username or pieces.password or pieces.query or pieces.fragment:
        raise BadSetting(f"{setting} must hold plain URLs, without a user, a password or anything behind `?` or `#`")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the URL's host is this machine, going by its name alone."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")

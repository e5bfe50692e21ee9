"""What may be shown of the address of any MongoDB: passwords with signs that had to be escaped, too.

https://www.mongodb.com/docs/manual/reference/connection-string-formats/
"""

import re

MASK = "***"
OPEN_OPTIONS = frozenset(
    "authmechanism authsource directconnection readpreference replicaset retrywrites ssl tls w".split()
)
"""Options that hold no secret; of all others only the name is shown."""

_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[\w.%-]+)(?::\d+)?"
_HOSTS = re.compile(f"{_HOST}(?:,{_HOST})*")
_REST = re.compile(r"(/[\w-]*)?(\?[^/@#]*)?")


def hosts_of(uri: str) -> str:
    """The hosts, as they are written; empty where they cannot be told from user and password."""
    _, authority, rest = _split(uri)
    hosts = authority.rpartition("@")[2]
    # A password with / ? or # in it ends too early, and the @ behind it is left over.
    return hosts if "@" not in rest and _HOSTS.fullmatch(hosts) else ""


def masked(uri: str) -> str:
    """The address without password and without options that may hold a secret; all of it masked where it cannot be told
    what is what.
    """
    scheme, authority, rest = _split(uri)
    parts = _REST.fullmatch(rest)
    if not (hosts := hosts_of(uri)) or parts is None:
        return MASK
    user, at, _ = authority.rpartition("@")
    name, colon, _ = user.partition(":")
    options = "&".join(map(_option, (parts[2] or "")[1:].split("&")))
    return f"{scheme}://{name}{colon and ':' + MASK}{at}{hosts}{parts[1] or ''}{options and '?' + options}"


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme, what may be user, password and hosts, and what follows."""
    scheme, _, rest = uri.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return scheme, authority, rest[len(authority) :]


def _option(text: str) -> str:
    name, equals, _ = text.partition("=")
    return text if name.lower() in OPEN_OPTIONS else f"{name}{equals and equals + MASK}"

"""Addresses of SSH hosts."""

from anamnesis_pipeline.errors import BadSetting


def parse_place(text: str) -> tuple[str | None, str, int | None]:
    """Return (user, host, port) of `host`, `user@host`, `user@host:port` or `user@[IPv6 address]:port`.

    :raises BadSetting: it is none of these.
    """
    user, _, rest = text.strip().rpartition("@")
    host, _, port = rest.rpartition(":") if rest.count(":") == 1 or "]:" in rest else (rest, "", "")
    host = host.strip("[]")
    if not host or any(c.isspace() for c in text.strip()) or host.startswith("-") or not (port or "1").isdigit():
        raise BadSetting(f"a host over SSH is written host, user@host or user@host:port, not {text!r}")
    return user or None, host, int(port) if port else None

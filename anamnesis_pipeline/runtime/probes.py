"""Probes of local services over loopback, each limited to about a second."""

import http.client
import socket

_TIMEOUT_S = 1.0


def accepts(host: str, port: int) -> bool:
    """Return whether a server accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S):
            return True
    except OSError:
        return False


def answers(host: str, port: int, path: str) -> bool:
    """Return whether a GET of `path` gets a 2xx status."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

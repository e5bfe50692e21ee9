"""Does a local service answer? Cheap questions over loopback, each bounded to about a second."""

import http.client
import socket

_TIMEOUT_S = 1.0


def accepts(host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S):
            return True
    except OSError:
        return False


def answers(host: str, port: int, path: str) -> bool:
    """Whether a GET of `path` is answered with a 2xx status."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

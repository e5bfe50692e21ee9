"""Check of the ports that `anamnesis up` is about to use, and of the services that listen there."""

import contextlib
import errno
import http.client
import itertools
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from anamnesis_pipeline.errors import BadSetting, PortInUse


@dataclass(frozen=True, slots=True)
class WantedPort:
    """A port, its service, and the environment variable that changes it."""

    service: str
    host: str
    port: int
    variable: str


def require_free(wanted: Sequence[WantedPort]) -> None:
    """Check every port by binding to it briefly.

    :raises PortInUse: names the port, its listener if known, and the variable that changes it.
    :raises BadSetting: two services have the same port, or the address is not one of this machine.
    """
    for one, other in itertools.combinations(wanted, 2):
        if one.port == other.port:
            raise BadSetting(
                f"{one.variable} and {other.variable} are both {one.port}; {one.service} and {other.service} "
                "need different ports"
            )
    for want in wanted:
        family = socket.AF_INET6 if ":" in want.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Otherwise a port with lingering connections looks taken; a listener is detected anyway.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((want.host, want.port))
                probe.listen()
            except OSError as exc:
                if exc.errno == errno.EADDRINUSE:
                    raise PortInUse(
                        f"port {want.port} for {want.service} is in use{_by_whom(want.port)}; "
                        f"end that program, or set {want.variable} to another port"
                    ) from exc
                if exc.errno in {errno.EACCES, errno.EPERM}:
                    raise PortInUse(
                        f"port {want.port} for {want.service} may not be opened by this user; "
                        f"set {want.variable} to a port above 1023"
                    ) from exc
                raise BadSetting(
                    f"ANAMNESIS_BIND = {want.host!r}: this machine cannot listen there ({exc.strerror})"
                ) from exc


def _by_whom(port: int) -> str:
    """Return ``" by 'name' (process 123)"`` if known; the system may hide other users' processes."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr
            if listens and listens.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()!r} (process {connection.pid})"
    return ""


_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Probe:
    """The question whether a local service is ready; limited to about a second.

    It is once a GET of `path` gets a 2xx status, or once it accepts connections, if there is no path.
    """

    host: str
    port: int
    path: str = ""

    def is_ready(self) -> bool:
        """Ask once."""
        if not self.path:
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S):
                return True
            return False
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", self.path)
            return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

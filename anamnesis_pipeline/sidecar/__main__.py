"""`python -m anamnesis_pipeline.sidecar`: serve until SIGTERM or Ctrl-C."""

import errno
import logging
import socket
import sys
from collections.abc import Callable

import uvicorn
from threadpoolctl import threadpool_limits

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.errors import AnamnesisError, BadSetting, PortInUse
from anamnesis_pipeline.services.wiring import open_services
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.background import share_arenas
from anamnesis_pipeline.sidecar.connections import Config

SHUTDOWN_S = 5


def main() -> int:
    """Return the exit status: 0 after a clean end, 1 when the service cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    share_arenas()
    threadpool_limits(1, user_api="blas")  # searches run in parallel; BLAS threads in each would contend for the cores
    try:
        settings = settings_file.load()
        with listen(settings.bind, settings.port) as listener:
            serve(settings, listener)
    except AnamnesisError as exc:
        print(f"anamnesis sidecar: {exc}", file=sys.stderr)  # noqa: T201 - for the person who started it
        return 1
    return 0


def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve on `listener` until a signal arrives."""
    app = create_app(open_services(settings))
    config = Config(
        app,
        log_config=None,
        access_log=False,  # the application writes its own line, without query strings
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )

    def end_streams() -> None:
        app.state.event_feed.end()
        app.state.chats.stop_all()

    _Server(config, end_streams).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends open-ended streams on shutdown, before uvicorn waits for the responses in progress."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all streams, then shut down as uvicorn does. Called in the event loop after a signal."""
        self._end_streams()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Called before anything slow, so that a taken port is reported at once.

    :raises PortInUse: another program has the port.
    :raises BadSetting: this machine does not have the address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise BadSetting(f"ANAMNESIS_BIND = {host!r} is not an address of this machine: {exc.strerror}") from exc
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as exc:
        listener.close()
        raise _not_bound(host, port, exc) from exc
    return listener


def _not_bound(host: str, port: int, exc: OSError) -> AnamnesisError:
    if exc.errno == errno.EADDRINUSE:
        return PortInUse(f"another program listens on {host}:{port}; end it, or set ANAMNESIS_PORT to a free port")
    if exc.errno == errno.EACCES:
        return BadSetting(f"ANAMNESIS_PORT = {port} needs rights this user does not have; take one above 1023")
    return BadSetting(f"ANAMNESIS_BIND = {host!r} is not an address of this machine: {exc.strerror}")


if __name__ == "__main__":
    sys.exit(main())
